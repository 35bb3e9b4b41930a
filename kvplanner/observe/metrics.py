"""How full a server's KV cache really is, read once from its /metrics page when the user asks for it.

Only an address that the user confirmed is asked, and nothing is sent to it but the request. What an engine calls its
figures, its own package declares.
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from kvplanner import __version__
from kvplanner.deadline import OutOfTime, in_time
from kvplanner.engine import registry
from kvplanner.engine.serving import Held, MetricNames
from kvplanner.errors import BadInput, PlannerError
from kvplanner.jsonfile import parse_value
from kvplanner.printable import cut, printable
from kvplanner.record import NamedTuple
from kvplanner.units import counted

MAX_PAGE_BYTES: Final = 8 << 20
TIMEOUT_S: Final = 3.0
# What is read of a page: the lines of an engine, without the histograms that are most of it.
MAX_SAMPLES: Final = 20_000
MAX_LINE: Final = 20_000
MAX_LABELS: Final = 200
_MOST_DIGITS: Final = 18
_SHOWN: Final = 200
_SAID: Final = 600
_HISTOGRAM: Final = re.compile(r"\A[a-z0-9_:]+_bucket\{")
_ADDRESS: Final = re.compile(r"(?:https?://)?(?:\[[0-9a-fA-F:]+\]|[^\s/@:\[\]]+)(?::\d{1,5})?(?:/[^\s]*)?")

Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]


class Fill(NamedTuple):
    """A server's KV cache at one moment, summed over its engines (data-parallel replicas).

    share: 0 to 1, of the cache in use; tokens and used_tokens: capacity and what is in use, None when the server
    does not say. units, unit_tokens, budget_share, cache_dtype: as the server states them, None or "" when not.
    said: what else it says.
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
    units: int | None = None
    unit_tokens: int | None = None
    budget_share: float | None = None
    cache_dtype: str = ""
    engines: int = 1
    said: str = ""

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
        if self.said:
            parts.append(self.said)
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


def read_fill(address: str, timeout_s: float = TIMEOUT_S, command: Sequence[str] = ()) -> Fill:
    """Reads the page and what it says; where that leaves the cache open, the engine's own page beside it.

    command: the words that started the server, as far as they are known. Raises PlannerError in words when it fails.
    """
    url = metrics_url(address)
    fill: Fill | None = None
    try:
        fill = parse_fill(_fetch(url, timeout_s), address)
    except NoSuchPage as error:
        refused: PlannerError = error
    if fill is not None and fill.used_tokens is not None:
        return fill
    for names in registry.metrics():
        if names.state is not None and (fill is None or fill.engine == names.engine):
            held = _state(url.removesuffix("/metrics"), names.state, timeout_s, command)
            if held is not None:
                return _with_state(fill or _none(names, address), held)
    if fill is None:
        raise refused
    return fill


class NoSuchPage(PlannerError):
    """A server answers, but not with a metrics page that is known."""


def _state(
    base: str, state: tuple[str, Callable[[object, Sequence[str]], Held | None]], timeout_s: float,
    command: Sequence[str],
) -> Held | None:  # fmt: skip
    """What a server says on an engine's own page, None where it has no such page."""
    path, read = state
    try:
        page = parse_value(_fetch(base + path, timeout_s).encode(), base + path)
    except (NoSuchPage, BadInput):
        return None
    return read(page, command)


def _none(names: MetricNames, address: str) -> Fill:
    """An engine of which no metrics page was read."""
    return Fill(names.engine, address, (), None, None, None, None, None)


def _with_state(fill: Fill, held: Held) -> Fill:
    share = held.used_tokens / held.tokens if held.tokens and held.used_tokens is not None else None
    return fill._replace(
        models=tuple(map(_plain, held.models)) or fill.models, share=share, tokens=held.tokens,
        used_tokens=held.used_tokens, running=held.running if fill.running is None else fill.running,
        said=cut(printable(held.said), _SAID),
    )  # fmt: skip


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The user confirmed this address and no other."""

    def redirect_request(self, *_args: object) -> None:
        """No redirect is followed."""


def _fetch(url: str, timeout_s: float) -> str:
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
    headers = {"Accept": "text/plain", "Accept-Encoding": "identity", "User-Agent": f"kvplanner/{__version__}"}
    request = urllib.request.Request(url, headers=headers)

    def ask() -> bytes:
        with opener.open(request, timeout=timeout_s) as answer:
            if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise ValueError("it is packed, which was not asked for")
            page: bytes = answer.read(MAX_PAGE_BYTES + 1)
            return page

    try:
        # The time-out of a connection starts anew with every byte that drips.
        page = in_time(ask, 2 * timeout_s, lambda: None)
    except OutOfTime:
        raise PlannerError(f"no whole answer within {2 * timeout_s:g} s", url, "Is this its address?") from None
    except urllib.error.HTTPError as error:
        remedy = "Start llama-server with --metrics" if error.code in (404, 501) else "Check the address"
        raise NoSuchPage(f"the server answers {error.code} {_plain(str(error.reason))}", url, remedy) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise PlannerError(
            f"no answer ({_plain(str(reason))})", url, "Is the server running, and is this its address?"
        ) from None
    if len(page) > MAX_PAGE_BYTES:
        raise PlannerError("the page is larger than a metrics page can be", url)
    return page.decode("utf-8", "replace")


def parse_fill(page: str, address: str = "") -> Fill:
    """What a metrics page says. Raises PlannerError when it is none of a known engine."""
    known = registry.metrics()
    samples = _samples(page, tuple(names.prefix for names in known), address)
    for names in known:
        if any(name.startswith(names.prefix) for name in samples):
            return _fill(samples, names, address)
    titles = " or ".join(names.title for names in known)
    raise NoSuchPage(f"the page is no metrics page of {titles}", address or "metrics")


def _samples(page: str, prefixes: tuple[str, ...], address: str) -> Samples:
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    kept = [line for line in page.splitlines() if line.startswith(prefixes) and not _HISTOGRAM.match(line)]
    if len(kept) > MAX_SAMPLES or any(len(line) > MAX_LINE or line.count("=") > MAX_LABELS for line in kept):
        raise PlannerError("the page has more figures or labels than an engine's", address or "metrics",
                           "Is this its address?")  # fmt: skip
    try:
        for family in text_string_to_metric_families("\n".join(kept) + "\n"):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, float(sample.value)))
    except (ValueError, KeyError, IndexError) as error:
        raise PlannerError(f"the page is no Prometheus text ({_plain(str(error))})", address or "metrics") from None
    return found


def _values(samples: Samples, wanted: Sequence[str], names: MetricNames) -> list[tuple[Mapping[str, str], float]]:
    """The samples of the first name that the page has: of one rank where several say the same, and real numbers."""
    found = next((samples[name] for name in wanted if samples.get(name)), [])
    said = [(labels, v) for labels, v in found if all(labels.get(k, only) == only for k, only in names.only.items())]
    return [(labels, v) for labels, v in said if v == v and abs(v) < 1e18]


def _total(samples: Samples, wanted: Sequence[str], names: MetricNames) -> int | None:
    values = [v for _, v in _values(samples, wanted, names)]
    return round(sum(values)) if values else None


def _fill(samples: Samples, names: MetricNames, address: str) -> Fill:
    usage = _values(samples, names.share, names)
    shares = [min(max(v, 0.0), 1.0) for _, v in usage]
    share = sum(shares) / len(shares) if shares else None
    replicas = max(1, len({labels.get(names.group_label, "0") for labels, _ in usage}))
    labels = next((labels for labels, _ in samples.get(names.info, [])), {})
    said = {field: labels.get(label) for field, label in names.info_labels.items()}
    units, unit_tokens = _int(said.get("units")), _int(said.get("unit_tokens"))
    used, tokens = _total(samples, names.used, names), _total(samples, names.tokens, names)
    if (of_one := _int(said.get("tokens"))) is not None:
        tokens = of_one * replicas
    elif tokens is None and units and unit_tokens:
        tokens = units * unit_tokens  # older versions: right for models with one kind of cache
    elif tokens is None and used and share:
        tokens = round(used / share)
    if used is None and share is not None and tokens is not None:
        used = round(share * tokens)
    return Fill(
        engine=names.engine,
        address=address,
        models=tuple(sorted({_plain(labels.get(names.model_label, "")) for labels, _ in usage} - {""})),
        share=share,
        tokens=tokens,
        used_tokens=used,
        running=_total(samples, names.running, names),
        waiting=_total(samples, names.waiting, names),
        preemptions=_total(samples, names.preempted, names),
        max_concurrency=_float(said.get("max_concurrency")),
        units=units,
        unit_tokens=unit_tokens,
        budget_share=_float(said.get("budget_share")),
        cache_dtype=_plain(said.get("dtype") or ""),
        engines=replicas,
    )


def _plain(text: str) -> str:
    """What a server calls something, fit to be shown."""
    return cut(printable(text), _SHOWN)


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _float(text: str | None) -> float | None:
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if value == value and abs(value) < 1e18 else None
