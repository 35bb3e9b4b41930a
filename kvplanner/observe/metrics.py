"""How full a server's KV cache really is, read once from its /metrics page when the user asks for it.

Only an address that the user confirmed is asked, and nothing is sent to it but the request.
Names: vLLM v1/metrics/loggers.py (0.6 to 0.33); llama.cpp tools/server (2023 to 2026).
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from kvplanner.errors import BadInput, PlannerError
from kvplanner.units import counted

MAX_PAGE_BYTES: Final = 8 << 20
TIMEOUT_S: Final = 3.0
_ADDRESS: Final = re.compile(r"(?:https?://)?(?:\[[0-9a-fA-F:]+\]|[^\s/@:\[\]]+)(?::\d{1,5})?(?:/[^\s]*)?")

Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]


class Fill(NamedTuple):
    """A server's KV cache at one moment, summed over its engines (data-parallel replicas).

    share: 0 to 1, of the blocks in use; tokens and used_tokens: capacity and what is in use, None when the server
    does not say. blocks, block_size, utilization, cache_dtype: as the server states them, None or "" when not.
    """

    engine: str
    address: str
    models: tuple[str, ...]
    share: float | None
    tokens: int | None
    used_tokens: int | None
    running: int | None
    waiting: int | None
    preemptions: int | None = None
    max_concurrency: float | None = None
    blocks: int | None = None
    block_size: int | None = None
    utilization: float | None = None
    cache_dtype: str = ""
    engines: int = 1

    def text(self) -> str:
        """One line for people."""
        parts = []
        if self.share is not None:
            parts.append(f"KV cache {self.share:.0%} full")
        if self.used_tokens is not None and self.tokens is not None:
            parts.append(f"≈ {self.used_tokens:,} of {self.tokens:,} tokens")
        if self.running is not None:
            waiting = f", {self.waiting:,} waiting" if self.waiting else ""
            parts.append(f"{counted(self.running, 'request', 'requests')} running{waiting}")
        if self.preemptions:
            parts.append(f"{self.preemptions:,} preempted so far")
        return " · ".join(parts) or "the server states no KV cache figures"


def metrics_url(address: str) -> str:
    """The address of the metrics page of a server: "host:port" or a URL. Raises BadInput."""
    text = address.strip()
    if not _ADDRESS.fullmatch(text):
        raise BadInput(f"{address!r} is no server address", "address", "Write for example http://127.0.0.1:8000")
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        valid = bool(parts.hostname) and (parts.port is None or 0 < parts.port < 65536)
    except ValueError:
        valid = False
    if not valid or parts.username:
        raise BadInput(f"{address!r} is no server address", "address", "Write for example http://127.0.0.1:8000")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, path if path.endswith("/metrics") else path + "/metrics", "", ""))


def read_fill(address: str, timeout_s: float = TIMEOUT_S) -> Fill:
    """Reads the page and what it says. Raises PlannerError in words when that fails."""
    return parse_fill(_fetch(metrics_url(address), timeout_s), address)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The user confirmed this address and no other."""

    def redirect_request(self, *_args: object) -> None:
        """No redirect is followed."""


def _fetch(url: str, timeout_s: float) -> str:
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Accept": "text/plain", "User-Agent": "kvplanner"})
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            page: bytes = answer.read(MAX_PAGE_BYTES + 1)
    except urllib.error.HTTPError as error:
        remedy = "Start llama-server with --metrics" if error.code in (404, 501) else "Check the address"
        raise PlannerError(f"the server answers {error.code} {error.reason}", url, remedy) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise PlannerError(f"no answer ({reason})", url, "Is the server running, and is this its address?") from None
    if len(page) > MAX_PAGE_BYTES:
        raise PlannerError("the page is larger than a metrics page can be", url)
    return page.decode("utf-8", "replace")


def parse_fill(page: str, address: str = "") -> Fill:
    """What a metrics page says. Raises PlannerError when it is none of a known engine."""
    samples = _samples(page, address)
    if any(name.startswith("vllm:") for name in samples):
        return _vllm(samples, address)
    if any(name.startswith("llamacpp:") for name in samples):
        return _llamacpp(samples, address)
    raise PlannerError("the page is no metrics page of vLLM or llama-server", address or "metrics")


def _samples(page: str, address: str) -> Samples:
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, float(sample.value)))
    except (ValueError, KeyError, IndexError) as error:
        raise PlannerError(f"the page is no Prometheus text ({error})", address or "metrics") from None
    return found


def _total(samples: Samples, *names: str) -> int | None:
    for name in names:
        if name in samples:
            values = [v for _, v in samples[name] if v == v and abs(v) < 1e18]
            return round(sum(values)) if values else None
    return None


def _vllm(samples: Samples, address: str) -> Fill:
    usage_name = next(
        (n for n in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc") if samples.get(n)), ""
    )  # fmt: skip
    usage = samples.get(usage_name, [])
    shares = [min(max(v, 0.0), 1.0) for _, v in usage if v == v]
    share = sum(shares) / len(shares) if shares else None
    config = next((labels for labels, _ in samples.get("vllm:cache_config_info", [])), {})
    models = {labels.get("model_name", "") for labels, _ in usage} - {""}
    blocks, block_size = _int(config.get("num_gpu_blocks")), _int(config.get("block_size"))
    replicas = max(1, len({labels.get("engine", "0") for labels, _ in usage}))
    tokens = _int(config.get("kv_cache_size_tokens"))
    if tokens is not None:
        tokens *= replicas
    elif blocks and block_size:
        tokens = blocks * block_size  # older versions: right for models with one kind of cache
    return Fill(
        "vllm", address, tuple(sorted(models)), share, tokens,
        round(share * tokens) if share is not None and tokens is not None else None,
        _total(samples, "vllm:num_requests_running"), _total(samples, "vllm:num_requests_waiting"),
        _total(samples, "vllm:num_preemptions_total"), _float(config.get("kv_cache_max_concurrency")),
        blocks, block_size, _float(config.get("gpu_memory_utilization")), config.get("cache_dtype", ""), replicas,
    )  # fmt: skip


def _llamacpp(samples: Samples, address: str) -> Fill:
    used = _total(samples, "llamacpp:kv_cache_tokens")
    ratio = next((v for _, v in samples.get("llamacpp:kv_cache_usage_ratio", []) if 0 <= v <= 1), None)
    tokens = round(used / ratio) if used and ratio else None
    return Fill(
        "llamacpp", address, (), ratio, tokens, used,
        _total(samples, "llamacpp:requests_processing"), _total(samples, "llamacpp:requests_deferred"),
    )  # fmt: skip


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _float(text: str | None) -> float | None:
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if value == value and abs(value) < 1e18 else None
