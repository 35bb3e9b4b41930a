"""What a running server says of itself, on its metrics page or another: data that each engine's package declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kvplanner.record import NamedTuple


class Held(NamedTuple):
    """What a server says of its cache and its models on a page of its own.

    tokens: capacity, used_tokens: what is in use, running: requests, None where it does not say. said: the rest, for
    people.
    """

    tokens: int | None = None
    used_tokens: int | None = None
    running: int | None = None
    models: tuple[str, ...] = ()
    said: str = ""


class MetricNames(NamedTuple):
    """Sample names of one engine's metrics page; of several the first that the page has counts, () for none.

    prefix: of all its samples. share: of the cache in use, 0 to 1. tokens, used: capacity and what is in use, in
    tokens. running, waiting, preempted: requests. group_label: tells the engine's schedulers (data-parallel ranks)
    apart; only: labels that a sample must have where it has them, since ranks of one group say the same.
    info: a sample whose labels state the cache; info_labels: by the names tokens (of one replica), units,
    unit_tokens, max_concurrency, budget_share and dtype. state: the path of a page of JSON that says what the metrics
    page does not, and what reads it, given the words that started the server, () where they are not known; it returns
    None for a page of another server.
    """

    engine: str
    title: str
    prefix: str
    share: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    group_label: str = ""
    model_label: str = ""
    only: Mapping[str, str] = MappingProxyType({})
    info: str = ""
    info_labels: Mapping[str, str] = MappingProxyType({})
    state: tuple[str, Callable[[object, Sequence[str]], Held | None]] | None = None
