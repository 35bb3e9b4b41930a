"""A server's metrics page: vLLM's by version, llama-server's, and pages that are none."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.errors import BadInput, PlannerError
from kvplanner.observe.metrics import MAX_PAGE_BYTES, metrics_url, parse_fill, read_fill
from kvplanner.printable import printable
from tests.observe.kit import VLLM_NEW

VLLM_OLD = """# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",num_gpu_blocks="1000"} 1.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 1.0
"""
LLAMA = """# TYPE llamacpp:kv_cache_usage_ratio gauge
llamacpp:kv_cache_usage_ratio 0.125
# TYPE llamacpp:kv_cache_tokens gauge
llamacpp:kv_cache_tokens 1024
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 4
"""


class Page:
    """A server on loopback that answers every request with one page."""

    def __init__(self) -> None:
        self.status, self.body = 200, b""
        self.pages: dict[str, bytes] = {}
        self.location = ""
        self.paths: list[str] = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.paths.append(self.path)
                self.send_response(200 if self.path in page.pages else page.status)
                if page.location:
                    self.send_header("Location", page.location)
                self.end_headers()
                self.wfile.write(page.pages.get(self.path, page.body))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_vllm_today(page: Page) -> None:
    page.body = VLLM_NEW.encode()
    fill = read_fill(page.address)
    assert page.paths == ["/metrics"]
    assert (fill.engine, fill.models) == ("vllm", ("Qwen/Qwen3-8B",))
    assert (fill.share, fill.tokens, fill.used_tokens) == (0.25, 212000, 53000)
    assert (fill.running, fill.waiting, fill.preemptions) == (7, 2, 3)
    assert (fill.max_concurrency, fill.budget_share, fill.units) == (6.5, 0.92, 13250)
    assert fill.text() == (
        "KV cache 25% full · ≈ 53,000 of 212,000 tokens · 7 requests running, 2 waiting · 3 preempted so far"
    )


def test_vllm_before_it_stated_tokens() -> None:
    fill = parse_fill(VLLM_OLD)
    assert (fill.share, fill.tokens, fill.used_tokens, fill.waiting) == (0.5, 16000, 8000, None)


def test_replicas_are_added_up() -> None:
    two = VLLM_NEW + VLLM_NEW.replace('engine="0"', 'engine="1"').replace("} 0.25", "} 0.75")
    fill = parse_fill("\n".join(line for line in two.splitlines() if not line.startswith("#")))
    assert (fill.engines, fill.share, fill.tokens, fill.running) == (2, 0.5, 424000, 14)


def test_what_a_server_names_and_counts_without_end_is_fit_to_be_shown() -> None:
    page = VLLM_NEW.replace('block_size="16"', f'block_size="{"9" * 5000}"')
    page = re.sub(r'model_name="[^"]*"', 'model_name="\x1b[2J\u202e%s"' % ("m" * 5000), page)
    fill = parse_fill(page)
    assert fill.unit_tokens is None
    assert all(name == printable(name) and len(name) < 300 for name in fill.models)
    assert fill.models


def test_llama_server() -> None:
    fill = parse_fill(LLAMA)
    assert (fill.engine, fill.tokens, fill.used_tokens, fill.running, fill.waiting) == ("llamacpp", 8192, 1024, 1, 4)


# What builds since June 2025 have of the page's figures, and their slots: a working one, one that keeps its last
# prompt, one that was never used (server_slot::to_json of tools/server).
LLAMA_NOW = b"# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 1\nllamacpp:n_tokens_max 980\n"
SLOTS: list[dict[str, object]] = [
    {"id": 0, "n_ctx": 8192, "speculative": False, "is_processing": True, "id_task": 3, "n_prompt_tokens": 3000,
     "n_prompt_tokens_processed": 2000, "n_prompt_tokens_cache": 500, "next_token": [{"n_decoded": 20}]},
    {"id": 1, "n_ctx": 8192, "is_processing": False, "n_prompt_tokens": 1000, "n_prompt_tokens_processed": 1000,
     "n_prompt_tokens_cache": 0, "next_token": [{"n_decoded": 480}]},
    {"id": 2, "n_ctx": 8192, "is_processing": False},
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "tokens", "said"),
    [
        (("llama-server", "-m", "a.gguf", "-np", "3"), 24576, "1 of 3 slots work"),
        (("llama-server", "-m", "a.gguf"), 8192, "1 of 3 slots work"),
        (("llama-server", "-np=3", "--kv-unified"), 8192, "1 of 3 slots work"),
        ((), None, "1 of 3 slots work · ≈ 4,000 tokens held, 8,192 a slot at most"),
    ],
)
def test_slots_say_how_full_llama_servers_cache_is(
    page: Page, command: tuple[str, ...], tokens: int | None, said: str
) -> None:
    page.pages = {"/metrics": LLAMA_NOW, "/slots": json.dumps(SLOTS).encode()}
    fill = read_fill(page.address, command=command)
    assert (fill.engine, fill.tokens, fill.running, fill.said) == ("llamacpp", tokens, 1, said)
    assert fill.used_tokens == (None if tokens is None else 4000)
    assert fill.share == (None if tokens is None else 4000 / tokens)
    # A server without --metrics tells its slots all the same.
    page.pages.pop("/metrics")
    page.status = 501
    assert read_fill(page.address, command=command)[3:6] == fill[3:6]
    assert page.paths == ["/metrics", "/slots", "/metrics", "/slots"]


def test_older_slots_say_how_far_they_are(page: Page) -> None:
    """Builds before June 2025: n_past, and next_token as an object."""
    page.pages = {"/slots": b'[{"id": 0, "n_ctx": 4096, "n_past": 100, "next_token": {"n_decoded": 7}}]'}
    page.status = 404
    assert read_fill(page.address).used_tokens == 100


def test_ollama_says_what_it_has_loaded(page: Page) -> None:
    models = [{"name": "gemma3:27b", "size": 21_000_000_000, "size_vram": 21_000_000_000, "context_length": 32768},
              {"name": "qwen3:8b\x1b[2J", "size": 6_000_000_000, "size_vram": 3_000_000_000}]  # fmt: skip
    page.pages = {"/api/ps": json.dumps({"models": models}).encode()}
    page.status = 404
    fill = read_fill(page.address)
    assert fill.engine == "ollama"
    assert fill.text() == (
        "gemma3:27b: 21 GB, 100% GPU, context 32768; " + printable("qwen3:8b\x1b[2J") + ": 6 GB, 50%/50% CPU/GPU"
    )
    page.pages = {"/api/ps": b'{"models": []}'}
    assert read_fill(page.address).text() == "no model is loaded"


@pytest.mark.parametrize("body", [b"", b"[]]", b"{}", b"[1]", b'{"models": 3}', b"[" * 100_000, b'[{"n_ctx": "x"}, 1]'])
def test_other_pages_of_json_say_nothing(page: Page, body: bytes) -> None:
    page.pages = {"/slots": body, "/api/ps": body}
    page.status = 404
    with pytest.raises(PlannerError, match="404"):
        read_fill(page.address)


def test_an_address_may_name_the_api(page: Page) -> None:
    page.body = VLLM_NEW.encode()
    read_fill(page.address.removeprefix("http://") + "/v1/")
    assert page.paths == ["/metrics"]


@pytest.mark.parametrize("address", ["", "ftp://x", "http://", "file:///etc/passwd", "a b", "http://u:p@h", "h:99999"])
def test_no_address(address: str) -> None:
    with pytest.raises(BadInput, match="address"):
        metrics_url(address)


def test_refusals_are_words(page: Page) -> None:
    page.status = 404
    with pytest.raises(PlannerError, match="--metrics"):
        read_fill(page.address)
    page.status, page.body = 200, b"<html>hello</html>"
    with pytest.raises(PlannerError):
        read_fill(page.address)
    page.body = b"#" * (MAX_PAGE_BYTES + 2)
    with pytest.raises(PlannerError, match="larger"):
        read_fill(page.address)
    page.server.shutdown()
    with pytest.raises(PlannerError, match="no answer"):
        read_fill("http://127.0.0.1:9", 0.5)


def test_a_redirect_is_not_followed(page: Page) -> None:
    page.status, page.location = 302, "http://127.0.0.1:9/elsewhere"
    with pytest.raises(PlannerError, match="302"):
        read_fill(page.address)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(PlannerError):
        parse_fill("vllm:num_requests_running " + text)
