"""Plan: an engine's answer. Names follow the plan schema (kvplanner.plan/1); sizes are bytes per device unless said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kvplanner.engine.option import OptionValue, Resolved
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import BEFORE_BUDGET, Segment, SegmentKind
from kvplanner.engine.verdict import Verdict
from kvplanner.estimate import Estimate
from kvplanner.gpu.spec import Device
from kvplanner.record import NamedTuple, late

# In what an engine counts its cache.
CacheUnit = Literal["blocks", "cells", "pages", "tokens"]


class StageMemory(NamedTuple):
    """Device memory in use at one stage of start-up: at its end, and at its highest.

    label: for people ("load weights"). failing: the plan fails here. reached: False for what comes after that, whose
    sizes are 0.
    """

    stage: str
    label: str
    end_bytes: int
    peak_bytes: int
    failing: bool = False
    note: str = ""
    reached: bool = True


class Lack(NamedTuple):
    """From where to where (bytes from zero) a device lacks memory; asked: nothing stands there yet, it is only wanted.

    in_all: what the device lacks until one full-length request fits, None where that is not known or no more.
    """

    start: int
    end: int
    asked: bool
    in_all: int | None = None

    @property
    def bytes(self) -> int:
        """What is missing at the failing stage."""
        return self.end - self.start


class DevicePlan(NamedTuple):
    """One device (identical ranks are planned once and repeated here).

    role: "tp0", "pp1/tp0" ...; replica: which of the model's replicas it works for. budget: what the engine allows
    itself, None where it has no budget; budget_share: of what CUDA sees, None where the budget is no share.
    segments: from the start of the memory to its end. bytes_per_unit: of one unit of the cache, here.
    overflow_bytes: by how much the segments exceed total_bytes (0 when they fit). lack: None where nothing is missing
    here. group: devices of one number are alike in everything but their index.
    """

    device: Device
    role: str
    total_bytes: int
    cuda_total_bytes: int
    budget: Estimate | None
    segments: tuple[Segment, ...]
    bytes_per_unit: int = 0
    overflow_bytes: int = 0
    stages: tuple[StageMemory, ...] = ()
    budget_share: float | None = None
    lack: Lack | None = None
    group: int = 0
    replica: int = 0

    def segment(self, kind: SegmentKind) -> Segment | None:
        """The segment of a kind, None when the plan has none."""
        return next((s for s in self.segments if s.kind == kind), None)

    @property
    def in_use(self) -> tuple[Segment, ...]:
        """The segments that count at the stage that the plan is about."""
        return tuple(s for s in self.segments if s.state == "in_use")

    @property
    def used_bytes(self) -> int:
        """Everything in use but the headroom."""
        return sum(s.bytes for s in self.segments if s.state == "in_use" and s.kind != "headroom")

    @property
    def budget_start(self) -> int:
        """Where the budget begins: at the end of what was there before the engine looked."""
        return sum(s.bytes for s in self.segments if s.kind in BEFORE_BUDGET)

    @property
    def budget_end(self) -> int | None:
        """Where the budget ends, None without one."""
        return self.budget_start + self.budget.value if self.budget else None


class CacheGroup(NamedTuple):
    """A group of layers that share what a request holds. kind: "full", "sliding", "chunked", "mla", "state" ...

    unit_tokens: tokens of one unit; page_bytes: of one unit in one layer; units_per_request: at full length.
    """

    kind: str
    layers: int
    unit_tokens: int
    page_bytes: int
    units_per_request: int
    padding_layers: int = 0


@late("groups")
class KvCache(NamedTuple):
    """The KV cache of one engine replica, in the engine's own unit.

    available: bytes per device (of the tightest rank). unit: what the engine counts, of unit_tokens tokens and
    bytes_per_unit bytes; units: how many there are. tokens: what the engine prints as KV cache size; max_concurrency:
    full-length requests at once, as printed. bytes_per_token: on the tightest rank, of cells over all devices; None
    where it is not a constant. error: the engine's own
    words when one request does not fit; suggested_context_length: what it then suggests.
    """

    available: Estimate
    bytes_per_unit: int
    unit_tokens: int
    units: int
    tokens: int
    tokens_low: int
    tokens_high: int
    max_concurrency: float
    context_length: int
    bytes_per_token: float | None
    groups: tuple[CacheGroup, ...]
    error: str | None = None
    suggested_context_length: int | None = None
    unit: CacheUnit = "blocks"

    @property
    def shared_out(self) -> bool:
        """Whether each device keeps the cells of its own layers, and a token so takes a part of its bytes on each."""
        return self.unit == "cells"

    @property
    def request_bytes(self) -> int:
        """What one request of the full context length holds on the tightest device."""
        return sum(group.units_per_request for group in self.groups) * self.bytes_per_unit


class Step(NamedTuple):
    """What one step takes of a model without a KV cache: a sequence is computed whole, and nothing of it stays.

    tokens: of a step; sequences: at most, however short; length: of the longest sequence. One engine replica's.
    """

    tokens: int
    sequences: int
    length: int

    def holds(self, tokens: int) -> int:
        """Sequences of so many tokens that one step takes; none of those that are longer than the longest."""
        return min(self.tokens // max(tokens, 1), self.sequences) if tokens <= self.length else 0


@late("max_context_length", "sure_max_context_length")
class Limits(NamedTuple):
    """The largest settings that still work, and how many of the load's users are served at once, over all replicas.

    max_requests: what the engine runs at once whatever its memory. units_per_user, bytes_per_user: units and bytes of
    the cache (on the tightest device) that one user of the load holds. limited_by: why not all users are served
    ("context", "kv_cache", "max_requests", "step"), "" when they are. users_by_memory: users that the KV cache
    alone would hold.

    The longest contexts are looked for when they are first read.

    sure_...: the same at the unfavourable end of the bands; a length of None: no length surely works.
    """

    max_context_length: int | None
    max_concurrent_requests: int | None
    serves_users: int | None = None
    units_per_user: int | None = None
    limited_by: str = ""
    users_by_memory: int | None = None
    max_requests: int | None = None
    bytes_per_user: int | None = None
    sure_max_context_length: int | None = None
    sure_max_concurrent_requests: int | None = None
    sure_serves_users: int | None = None


class WorkingRange(NamedTuple):
    """Where a server starts as its option moves, everything else as it is: low to high by the values of the estimates.

    sure_low, sure_high: within every band. None: no value of the option does. below, above: what is in the way there,
    as a noun ("no KV cache").
    """

    option: str
    low: float | None
    high: float | None
    sure_low: float | None
    sure_high: float | None
    below: str
    above: str

    @property
    def open(self) -> bool:
        """Whether some value works."""
        return self.low is not None and self.high is not None and self.low <= self.high

    @property
    def sure(self) -> bool:
        """Whether some value surely works."""
        return self.sure_low is not None and self.sure_high is not None and self.sure_low <= self.sure_high


class Handle(NamedTuple):
    """What an option comes to in numbers that a form can move by hand.

    parts: of a count one, of shares one for each GPU that is used, in order. whole: the most that a count can be, or
    what the shares make together. An option that is kept as text takes them with commas between them. beside: options
    that write out what the engine places by itself around it, to be set with the first move, which would drop it.
    """

    option: str
    parts: tuple[int, ...]
    whole: int
    beside: tuple[tuple[str, OptionValue], ...] = ()


@late("devices", "warnings", "ranges", "handles")
class Plan(NamedTuple):
    """The answer.

    rules: the rule era used. tightest: the device that fails or limits the cache, as a position in devices.
    warnings: what the reader should know beside the numbers; what the verdict itself says is not among them.
    cache_given: the cache's size is given, so that no budget decides it. step: of a model that keeps no cache, so that
    only a step's size limits it. ranges:
    of options whose values work only between two failures, as far as the engine knows them. handles: of options that a
    form may move by hand. moved_bytes: of weights that the engine of its own keeps in RAM, because the GPUs have no
    room for them. Devices, warnings, ranges and handles are put together when they are first read.
    """

    request: PlanRequest
    engine_version: str
    rules: str
    verdict: Verdict
    devices: tuple[DevicePlan, ...]
    options: Mapping[str, Resolved]
    kv_cache: KvCache | None
    limits: Limits
    warnings: tuple[str, ...] = ()
    tightest: int = 0
    replicas: int = 1
    cache_given: bool = False
    step: Step | None = None
    ranges: tuple[WorkingRange, ...] = ()
    handles: tuple[Handle, ...] = ()
    moved_bytes: int = 0

    @property
    def gpus(self) -> tuple[DevicePlan, ...]:
        """What is planned for each GPU, without the host."""
        return tuple(device for device in self.devices if device.device.kind == "gpu")

    def bytes_of(self, kind: SegmentKind) -> int:
        """Bytes of a kind on all devices."""
        return sum(s.bytes for device in self.devices if (s := device.segment(kind)) is not None)

    @property
    def fits(self) -> bool | None:
        """Whether it works by the values; None where that cannot be told."""
        return {"fits": True, "does_not_fit": False, "cannot_tell": None}[self.verdict.state]

    @property
    def sure(self) -> bool:
        """Whether it works at the unfavourable end of every band too."""
        return self.verdict.state == "fits" and self.verdict.doubt is None

    @property
    def stage(self) -> str | None:
        """The stage of start-up that fails, None when none does."""
        failing = self.verdict.failing
        return failing.stage if failing is not None and self.verdict.state == "does_not_fit" else None

    @property
    def missing_bytes(self) -> int:
        """What is missing at the failing stage on the tightest device."""
        failing = self.verdict.failing
        return failing.missing_bytes if failing is not None and self.verdict.state == "does_not_fit" else 0

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions in devices of those that are alike together, in the order of their first ones."""
        made: dict[int, list[int]] = {}
        for position, device in enumerate(self.devices):
            made.setdefault(device.group, []).append(position)
        return tuple(tuple(members) for members in made.values())

    def group_of(self, position: int) -> tuple[int, ...]:
        """The positions of all devices that are like the one at a position."""
        group = self.devices[position].group
        return tuple(p for p, device in enumerate(self.devices) if device.group == group)
