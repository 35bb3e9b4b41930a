"""Start-up reports as plan requests: loose names made exact, flags as the engine spells them, or why not.

Nothing that a report does not state is filled in, but for the sequence and token limits, which every start-up has:
a report that names no such flag ran with the engine's defaults.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import PlannerError
from kvplanner.estimate import Input, exact
from kvplanner.gpu.match import custom_gpu
from kvplanner.gpu.spec import Device, GpuSpec, Machine
from kvplanner.model import whatif
from kvplanner.model.model import Model
from kvplanner.units import GIB
from tests.truth.names import resolve

# Why a report was not used: the whole list.
MODEL, VERSION, TOTAL = "model unknown", "version unknown and it matters", "GPU total unknown"
OTHER, FORK, FIELD = "other process", "engine fork", "field not stated"
REASONS: Final = (MODEL, VERSION, TOTAL, OTHER, FORK, FIELD)

_VERSION: Final = re.compile(r"0\.(\d+)(?:\.(\d+))?")
_FORK_WORDS: Final = (
    "fork", "aphrodite", "lvllm", "1cat", "patched", "backport", "exl3", "qwen38 image", "flash-next image",
    "windows port", "windows build", "ported patch", "rocm", "turbomind", "radeon", "gfx1", "mi325x", "mi100",
    "rx 7900", "special gpt-oss image",
)  # fmt: skip
_OTHER_WORDS: Final = (
    "another process", "other process", "another stage", "two stages", "already used by", "several stages", "zombie",
    "driver shim", "uneven ranks", "taken by other", "came out negative", "negative estimate",
)  # fmt: skip
_CONSUMED_WORDS: Final = ("all memory consumed", "all consumed memory", "everything consumed")
_COLD_WORDS: Final = ("compiled afresh", "first start", "cold compile", "not cached")
_WARM_WORDS: Final = ("compile cache warm", "warm compile cache", "compile cache hit", "cache hit")
_FLAGS: Final = {
    "max_model_len", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "dtype",
    "enable_prefix_caching", "enable_chunked_prefill", "disable_custom_all_reduce", "attention_backend",
    "mm_encoder_tp_mode", "language_model_only", "skip_mm_profiling", "performance_mode", "enable_sleep_mode",
    "v2_model_runner", "kv_cache_memory_bytes", "enable_expert_parallel", "cudagraph_mode",
    "max_cudagraph_capture_size", "moe_backend", "block_size",
}  # fmt: skip
_RENAMED: Final = {
    "kv_cache_memory": "kv_cache_memory_bytes", "dcp": "decode_context_parallel_size",
    "decode_context_parallel": "decode_context_parallel_size", "cudagraph_estimate": "estimate_cuda_graphs",
}  # fmt: skip


class Skip(Exception):
    """A report that is not used for something; the reason is one of REASONS."""


@dataclass(frozen=True)
class Row:
    """One report. facts: its fields as stated."""

    facts: dict[str, Any]

    @property
    def id(self) -> str:
        """The report's name."""
        return str(self.facts["id"])

    @property
    def reported(self) -> dict[str, float]:
        """What the engine printed, GiB unless the name says otherwise."""
        return dict(self.facts["reported"])

    @property
    def text(self) -> str:
        """Everything that is said about the report, in lower case."""
        parts = (self.facts.get("notes"), self.facts.get("vllm_version"), self.facts["model"], self.facts.get("gpu"))
        return " ".join(str(part) for part in parts if part).lower()

    @property
    def cold(self) -> bool:
        """Whether the engine compiled at this start."""
        return self.facts["flags"].get("compile_cache") == "cold" or any(word in self.text for word in _COLD_WORDS)

    @property
    def fp8_on_loading(self) -> bool:
        """Whether the engine quantises: plain fp8 is said of a name that tells no format, as a 16-bit repository's."""
        return self.facts.get("quantization") == "fp8" and "fp8" not in str(self.facts["model"]).lower()

    @property
    def warm(self) -> bool:
        """Whether the engine found its kernels compiled."""
        return self.facts["flags"].get("compile_cache") == "warm" or any(word in self.text for word in _WARM_WORDS)

    @property
    def fork(self) -> bool:
        """Whether another engine with vLLM's accounting made the report."""
        return any(word in self.text for word in _FORK_WORDS)

    @property
    def shared(self) -> bool:
        """Whether something else on the GPU decided the numbers."""
        return any(word in self.text for word in _OTHER_WORDS)

    @property
    def consumed_as_weights(self) -> bool:
        """Whether what is reported as the load is said to be everything that the engine found in use."""
        return any(word in self.text for word in _CONSUMED_WORDS)

    @property
    def before_split_limit(self) -> bool:
        """Whether a report without a version is surely older than 0.20.1, which rounds weights otherwise."""
        year = str(self.facts.get("date") or "")[:7]
        return bool(year and year < "2026-04") or " v0 " in f" {self.text} " or self.text.startswith("v0")

    @property
    def version(self) -> str | None:
        """Release as 0.MINOR.PATCH, None when it was not stated."""
        match = _VERSION.match(str(self.facts.get("vllm_version") or ""))
        return match[0] if match and int(match[1]) > 1 else None


def read(path: Path) -> list[Row]:
    """All reports of a file."""
    return [Row(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def model_of(row: Row) -> Model:
    """The catalogue's model, in the weight format that the report names. Raises Skip."""
    try:
        model_id, weight_format = resolve(str(row.facts["model"]), str(row.facts.get("quantization") or ""))
        model = models.load(model_id)
    except PlannerError as error:
        raise Skip(MODEL) from error
    if model.inventory is None:
        raise Skip(MODEL)
    if weight_format is None:
        # Quantised by its publisher or on loading: in which format is not known, unless a flag says so.
        told = (
            model.spec.quantization or "online" in str(row.facts["flags"].get("quantization", "")) or row.fp8_on_loading
        )
        if row.facts.get("quantization") and not told:
            raise Skip(MODEL)
        return model
    inventory = whatif.reformat(model.inventory, model.spec, weight_format)
    spec = whatif.respec(model.spec, weight_format)
    stored = whatif.stored(model.inventory, model.spec, weight_format)
    return model._replace(inventory=inventory, spec=spec, weight_format=weight_format, stored=stored)


def _named_gpu(text: str) -> GpuSpec | None:
    """The catalogue's GPU for a report's words, None when they name none (such as "24 GB class")."""
    if text.startswith("H20 (141"):
        text = "H20-3e"
    name = re.sub(r"\(.*?\)|,.*|/.*|class.*|by the.*|blackwell (?=\d)", "", text, flags=re.IGNORECASE).strip()
    name = re.sub(r"^(H100|A100|H800) 80GB$", r"\1", name)
    name = re.sub(r"^(L40|A40|L40S) 48GB$", r"\1", name)
    name = {"A100": "A100-SXM4-80GB", "RTX PRO 6000 Blackwell": "RTX PRO 6000 Blackwell Workstation Edition",
            "RTX PRO 6000 96GB": "RTX PRO 6000 Blackwell Workstation Edition"}.get(name, name)  # fmt: skip
    if not name or re.fullmatch(r"[\d.]+ ?(GB|MiB).*", name) or "MIG" in name:
        return None
    try:
        return gpus.machine(name).devices[0].gpu
    except PlannerError:
        return None


def gpu_of(row: Row) -> GpuSpec:
    """The GPU, with the total that the engine printed where it did. Raises Skip."""
    printed = row.reported.get("total_gpu_gib") or row.reported.get("oom_total_gib") or row.facts.get("gpu_memory_gib")
    text = str(row.facts.get("gpu") or "")
    ratio = re.search(r"([\d.]+)(?: GiB)?, from the estimate ratio", text)
    printed = printed or (float(ratio[1]) if ratio else None)
    gpu = _named_gpu(text)
    if printed is not None:
        total = exact(round(float(printed) * GIB), "{printed}", Input("printed", printed, "GiB", "start-up report"))
        if gpu is None:
            return custom_gpu(total.value)
        bigger = gpu.total if gpu.total is not None and gpu.total.value >= total.value else total
        return gpu._replace(total=bigger, cuda_total=total)
    if gpu is None or gpu.cuda_total is None:
        raise Skip(TOTAL)
    return gpu


def options_of(row: Row, model: Model | None = None) -> dict[str, OptionValue]:
    """The flags that a report states, by canonical name; "default (...)" states none."""
    options: dict[str, OptionValue] = {}
    for name, value in row.facts["flags"].items():
        if not str(value).startswith(("default", "auto")):
            options |= _flag(name, value)
    for name, key in (("tp", "tensor_parallel_size"), ("pp", "pipeline_parallel_size"), ("dp", "data_parallel_size")):
        if row.facts.get(name):
            options[key] = int(row.facts[name])
    if row.facts.get("ep"):
        options["enable_expert_parallel"] = True
    if row.cold or row.warm:
        options["compile_cache"] = "cold" if row.cold else "warm"
    if "cutlass experts" in row.text:
        options.setdefault("moe_backend", "cutlass")
    about = re.search(r"max_num_seqs about (\d+)", row.text)
    if about:
        options.setdefault("max_num_seqs", int(about[1]))
    if model is not None and row.fp8_on_loading and not model.spec.quantization:
        options.setdefault("quantization", "fp8")
    runner = re.search(r"\b(v[012]) runner", row.text)
    if runner and runner[1] != "v0":
        options.setdefault("v2_model_runner", runner[1] == "v2")
    if row.facts.get("dtype") in ("float16", "bfloat16", "float32"):
        options.setdefault("dtype", row.facts["dtype"])
    return options


def states(row: Row, name: str) -> bool:
    """Whether a report says what an option was, if only that it was the default."""
    return name in row.facts["flags"]


def _flag(name: str, value: Any) -> dict[str, OptionValue]:
    """A report's flag in the planner's spelling; nothing for one that moves no memory."""
    key = _RENAMED.get(name, name)
    if name == "speculative":
        return _speculation(str(value))
    if name == "quantization" and "online" in str(value):
        return {"quantization": str(value).split()[0]}
    if name == "cudagraph_capture_sizes":
        return {name: ",".join(str(size) for size in value)}
    if name.startswith("limit_mm"):
        return {"language_model_only": True} if "text only" in str(value) else {}
    if name == "kv_cache_dtype":
        return {name: str(value).split(" ")[0]}
    return {key: value} if key in _FLAGS or name in _RENAMED else {}


def _speculation(value: str) -> dict[str, OptionValue]:
    method = re.match(r"[a-z0-9]+", value.lower())
    tokens = re.search(r"[ :=](\d+)", value)
    found: dict[str, OptionValue] = {"speculative_method": method[0] if method else value}
    if found["speculative_method"] not in ("mtp", "eagle", "eagle3", "ngram"):
        raise Skip(MODEL)  # a draft model whose sizes are not known
    found["num_speculative_tokens"] = int(tokens[1]) if tokens else 1
    return found


def request_of(row: Row, version: str | None, *, model: Model | None = None, gpu: GpuSpec | None = None) -> PlanRequest:
    """The request that plans a report; a model or GPU given here stands in for what it does not name. Raises Skip."""
    model, gpu = model or model_of(row), gpu or gpu_of(row)
    options = options_of(row, model)
    count = 1
    for key in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        count *= int(options.get(key, 1))
    free = row.reported.get("free_gib") if row.facts["outcome"] == "free_check" else None
    free_bytes = None if free is None else round(free * GIB)
    devices = tuple(Device(i, gpu, free_bytes, "start-up report" if free else "") for i in range(count))
    return PlanRequest(model, Machine(devices), "vllm", version, options)
