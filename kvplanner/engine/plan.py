"""Plan: an engine's answer. Names follow the plan schema (kvplanner.plan/1); sizes are bytes per device unless said."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from kvplanner.engine.option import Resolved
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import Segment, SegmentKind
from kvplanner.estimate import Estimate
from kvplanner.gpu.spec import Device

Stage = Literal[
    "free_memory_check", "weights", "profile", "kv_cache_sizing", "kv_cache_too_small", "kv_cache_allocation",
    "graph_capture", "runtime",
]  # fmt: skip


class StageMemory(NamedTuple):
    """Device memory in use at one stage of start-up: at its end, and at its highest.

    label: for people ("load weights"); failing: the plan fails here.
    """

    stage: str
    label: str
    end_bytes: int
    peak_bytes: int
    failing: bool = False
    note: str = ""


class DevicePlan(NamedTuple):
    """One device (identical ranks are planned once and repeated here).

    role: "tp0", "pp1/tp0" ...; budget: what the engine allows itself, None where it has no budget.
    overflow_bytes: by how much the segments exceed total_bytes (0 when they fit). graphs_charged: whether CUDA graphs
    lie in the budget, or are captured out of what it leaves.
    """

    device: Device
    role: str
    total_bytes: int
    cuda_total_bytes: int
    budget: Estimate | None
    segments: tuple[Segment, ...]
    bytes_per_block: int = 0
    overflow_bytes: int = 0
    stages: tuple[StageMemory, ...] = ()
    graphs_charged: bool = True

    def segment(self, kind: SegmentKind) -> Segment | None:
        """The segment of a kind, None when the plan has none."""
        return next((s for s in self.segments if s.kind == kind), None)


class CacheGroup(NamedTuple):
    """A group of layers that share block tables. spec: "full", "sliding", "chunked", "mla", "state" ..."""

    kind: str
    layers: int
    block_size: int
    page_bytes: int
    blocks_per_request: int
    padding_layers: int = 0


class KvCache(NamedTuple):
    """The KV cache of one engine replica.

    available: bytes per device (of the tightest rank). tokens: what the engine prints as KV cache size;
    max_concurrency: full-length requests at once, as printed. bytes_per_token: None where it is not a constant.
    error: the engine's own words when one request does not fit; estimated_max_model_len: what it then suggests.
    """

    available: Estimate
    bytes_per_block: int
    block_size: int
    num_blocks: int
    tokens: int
    tokens_low: int
    tokens_high: int
    max_concurrency: float
    context_length: int
    bytes_per_token: float | None
    groups: tuple[CacheGroup, ...]
    error: str | None = None
    estimated_max_model_len: int | None = None


class Limits(NamedTuple):
    """The largest settings that still work, and how many of the load's users are served at once, over all replicas.

    blocks_per_user: KV blocks that one user of the load holds. limited_by: why not all users are served ("context",
    "kv_cache", "max_num_seqs"), "" when they are. users_by_memory: users that the KV cache alone would hold.
    """

    max_context_length: int | None
    max_concurrent_requests: int | None
    serves_users: int | None = None
    blocks_per_user: int | None = None
    limited_by: str = ""
    users_by_memory: int | None = None


class Plan(NamedTuple):
    """The answer. fits None: cannot be told, and warnings say why.

    stage: where start-up would fail, None when it does not. engine_message: what the engine would print there.
    missing_bytes: how much is missing at the failing stage on the tightest device.
    rules: the rule era used. tightest: index into devices.
    """

    request: PlanRequest
    engine_version: str
    rules: str
    fits: bool | None
    stage: Stage | None
    summary: str
    devices: tuple[DevicePlan, ...]
    options: Mapping[str, Resolved]
    kv_cache: KvCache | None
    limits: Limits
    warnings: tuple[str, ...] = ()
    engine_message: str = ""
    missing_bytes: int = 0
    tightest: int = 0
    replicas: int = 1
