"""The interface between an engine and everything that plans with it: request in, plan out, both frozen.

Names follow the plan schema (kvplanner.plan/1). All sizes are bytes per device unless said otherwise.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol

from kvplanner.estimate import Estimate
from kvplanner.gpu.spec import Device, Machine
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory

SegmentKind = Literal[
    "driver_reserved", "other", "runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs",
    "kv_cache", "headroom",
]  # fmt: skip
# In drawing order; those of BUDGET_KINDS lie inside the engine's budget.
SEGMENT_KINDS: Final[tuple[SegmentKind, ...]] = (
    "driver_reserved", "other", "runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs",
    "kv_cache", "headroom",
)  # fmt: skip
BUDGET_KINDS: Final[tuple[SegmentKind, ...]] = (
    "runtime", "weights", "workspace", "activations", "cuda_graphs", "kv_cache",
)  # fmt: skip

Stage = Literal[
    "free_memory_check", "weights", "profile", "kv_cache_sizing", "kv_cache_too_small", "kv_cache_allocation",
    "graph_capture", "runtime",
]  # fmt: skip

OptionValue = bool | int | float | str
Origin = Literal["user", "default", "derived"]
OptionType = Literal["bool", "int", "tokens", "float", "text", "choice", "bytes"]


class Model(NamedTuple):
    """A model to plan for: what it is, its tensors and where both came from.

    id: hub id, file name or store name. stored_bytes: of the files' tensors, exact or by rule.
    source_kind: "catalogue", "config", "safetensors", "gguf", "hub" ...; inventory None: the layers are known but
    the tensors are not. problems: contradictions to tell the user.
    """

    id: str
    spec: ModelSpec
    inventory: Inventory | None
    source_kind: str
    source_detail: str = ""
    weight_format: str = ""
    parameters: int | None = None
    stored: Estimate | None = None
    problems: tuple[str, ...] = ()


class Load(NamedTuple):
    """What the server should carry: users at once, each with a prompt and an answer, in tokens."""

    users: int
    prompt_tokens: int
    output_tokens: int

    @property
    def tokens_per_user(self) -> int:
        """Tokens that one user holds in the KV cache at the end of the answer."""
        return self.prompt_tokens + self.output_tokens


class Calibration(NamedTuple):
    """A measured value from a neighbouring run: kind as in Segment, era, gpu and model family it was seen with."""

    kind: SegmentKind
    bytes: int
    era: str
    gpu: str
    family: str
    source: str


class PlanRequest(NamedTuple):
    """Everything that a plan depends on. `options` holds only what the user set, by canonical name.

    version None: the engine's newest modelled one. measured: given bytes by segment kind. draft: the model that
    drafts tokens, for speculative decoding with one.
    """

    model: Model
    machine: Machine
    engine: str = "vllm"
    version: str | None = None
    options: Mapping[str, OptionValue] = {}
    load: Load | None = None
    weight_format: str | None = None
    measured: Mapping[str, int] = {}
    calibration: tuple[Calibration, ...] = ()
    draft: Model | None = None


class Option(NamedTuple):
    """One engine option, declared once for the form, the terminal, command lines, plan files and documentation.

    name: the canonical long flag without dashes and with underscores. flags: every spelling, the canonical first.
    negation: the flag that turns a boolean off. env: an environment variable that sets it instead of a flag;
    env_also: one that sets it where the flag does not.
    json: "parent.key" where the value lives in a flag that takes JSON ("compilation_config.cudagraph_mode").
    json_also: further homes of that kind, read but never written. many: the flag takes one word or more, kept with
    commas. modelled False: understood, but nothing is planned by it. synonyms: (other spelling, choice) pairs.
    default: text of the default rule for people ("0.92", "from the GPU: 8192 or 2048").
    moves: the segment kinds (or "" for admission only) that it changes. everyday: shown without searching.
    low, high: the range that makes sense, None for open. above_low: the low end itself lies outside it.
    """

    name: str
    flags: tuple[str, ...]
    type: OptionType
    section: str
    help: str
    default: str = ""
    negation: str = ""
    env: str = ""
    json: str = ""
    choices: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    everyday: bool = False
    low: float | None = None
    high: float | None = None
    since: str = ""
    until: str = ""
    modelled: bool = True
    json_also: tuple[str, ...] = ()
    many: bool = False
    above_low: bool = False
    env_also: str = ""
    synonyms: tuple[tuple[str, str], ...] = ()

    @property
    def spelled(self) -> str:
        """How a command line writes it: the flag, or the JSON flag with the key."""
        parent, dot, key = self.json.partition(".")
        return f"--{parent.replace('_', '-')}.{key}" if dot else self.flags[0]


class FlagRule(NamedTuple):
    """How to read a flag that is no option.

    words: that follow it: "", "1", or "+" for one or more. reason: why a plan cannot leave it out, "" when it can;
    remedy: what to do then; harmless: values that it may have all the same. same_as: the JSON flag that it stands for.
    """

    words: Literal["", "1", "+"] = ""
    reason: str = ""
    remedy: str = ""
    harmless: tuple[str, ...] = ()
    same_as: str = ""


class Resolved(NamedTuple):
    """An option's value in a plan, who set it, and why the default is what it is."""

    value: OptionValue | None
    origin: Origin
    reason: str = ""


class Segment(NamedTuple):
    """One part of a device's memory."""

    kind: SegmentKind
    estimate: Estimate

    @property
    def bytes(self) -> int:
        """The part's size."""
        return self.estimate.value


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


class Engine(Protocol):
    """What an engine package offers. All functions are pure."""

    name: str
    title: str
    versions: tuple[str, ...]
    launch: tuple[str, ...]  # the command that starts a server, before the model's name

    def ignored_flags(self) -> Mapping[str, FlagRule]:
        """Flags and variables that are no option: left out, refused, or another's spelling."""
        ...

    def options(self, version: str | None = None) -> tuple[Option, ...]:
        """The options that exist in a version (the newest when None)."""
        ...

    def allowed(self, name: str, model: Model) -> tuple[int, ...]:
        """The values of a whole-number option that a model allows, ascending; empty where it rules none out."""
        ...

    def cannot_load(self, method: str, version: str | None = None, machine: Machine | None = None) -> str:
        """Why a version loads no weights of a quantisation method as configs name it on a machine, "" when it does.

        machine None: on any.
        """
        ...

    def plan(self, request: PlanRequest) -> Plan:
        """The plan. Raises BadInput for values that the engine refuses, NotModelled for models it does not know."""
        ...
