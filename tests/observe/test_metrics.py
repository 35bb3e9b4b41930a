"""A server's metrics page: vLLM's by version, llama-server's, and pages that are none."""

from __future__ import annotations

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
        self.location = ""
        self.paths: list[str] = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.paths.append(self.path)
                self.send_response(page.status)
                if page.location:
                    self.send_header("Location", page.location)
                self.end_headers()
                self.wfile.write(page.body)

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
