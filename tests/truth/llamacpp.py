"""Score the planner on llama.cpp's start-up reports: python -m tests.truth.llamacpp FILE... [--json].

A report prints one line for each buffer; what model, build and flags decide is compared with it: cells and recurrent
state, compute buffers, the logits' buffer, and the failing allocation; and model buffers where the report names one of
llama.cpp's own mixes. Files are held against llama.cpp's own sizes in tests/oracle/llamacpp.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from kvplanner.catalog import models
from kvplanner.engine.llamacpp.architectures import as_gguf
from kvplanner.engine.llamacpp.builds import Build, build_of
from kvplanner.engine.llamacpp.place import HOST
from kvplanner.engine.llamacpp.settings import ContextSettings, PlaceSettings, Settings
from kvplanner.engine.llamacpp.sizes import Sizes, size_up
from kvplanner.engine.llamacpp.tensors import tensors_of
from kvplanner.engine.whatif import as_format
from kvplanner.errors import PlannerError
from kvplanner.model.formats import ggml
from kvplanner.model.model import Model
from kvplanner.model.tensors import TensorGroup
from kvplanner.units import GIB, MIB
from tests.truth.rows import FIELD, FORK, MODEL

ROUNDING: Final = 0.0051  # of a figure with two decimals, in MiB
NEAR: Final = 0.02
# What reports call models, where it names one of the catalogue's: with its layers when they draft for themselves.
READ_AS: Final = {
    "Qwen3-0.6B": "Qwen/Qwen3-0.6B",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "llama3.2:1b": "meta-llama/Llama-3.2-1B-Instruct",
    "Llama-3.2-3B": "meta-llama/Llama-3.2-3B-Instruct",
    "Qwen2.5-3B": "Qwen/Qwen2.5-3B-Instruct",
    "Qwen2.5-0.5B": "Qwen/Qwen2.5-0.5B-Instruct",
    "DeepSeek-Coder-V2-Lite": "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct",
    "Phi-3-mini-4k-instruct": "microsoft/Phi-3-mini-4k-instruct",
    "qwen2.5:7b-instruct": "Qwen/Qwen2.5-7B-Instruct",
    "llama3.2:3b": "meta-llama/Llama-3.2-3B-Instruct",
    "Qwen3-14B": "Qwen/Qwen3-14B",
    "Qwen3-32B": "Qwen/Qwen3-32B",
    "Qwen2.5-7B": "Qwen/Qwen2.5-7B-Instruct",
    "Qwen3.6-27B": "Qwen/Qwen3.6-27B",
    "Qwen3.5-27B": "Qwen/Qwen3.5-27B",
    "Command-R 35B": "CohereLabs/c4ai-command-r-v01",
    "Qwen3 4B": "Qwen/Qwen3-4B",
    "DeepSeek-V2 class, 60 layers": "deepseek-ai/DeepSeek-V2-Chat",
    "Mixtral 8x7B Instruct": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "Apertus-70B-Instruct-2509": "swiss-ai/Apertus-70B-Instruct-2509",
    "Qwen1.5-72B-Chat": "Qwen/Qwen1.5-72B-Chat",
    "gemma-3-270m": "google/gemma-3-270m-it",
    "Qwen3.5-122B-A10B": "Qwen/Qwen3.5-122B-A10B",
    "Qwen3.6-35B-A3B": "Qwen/Qwen3.6-35B-A3B",
    "Qwen3.6-35B-A3B class": "Qwen/Qwen3.6-35B-A3B",
    "35B-A3B class": "Qwen/Qwen3.6-35B-A3B",
    "Qwen3.6-27B class (MTP, 66 layers)": "Qwen/Qwen3.6-27B",
    "Qwen3.6-27B (MTP, vision)": "Qwen/Qwen3.6-27B",
    "Qwen3.6-27B-MTP": "Qwen/Qwen3.6-27B",
    "Qwen3.5-27B class": "Qwen/Qwen3.5-27B",
    "Qwen3.5-4B": "Qwen/Qwen3.5-4B",
    "Qwen3-30B-A3B-Thinking-2507": "Qwen/Qwen3-30B-A3B-Thinking-2507",
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
    "Qwen3-Coder-30B-A3B-Instruct": "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    "Qwen2.5-Coder-32B": "Qwen/Qwen2.5-Coder-32B-Instruct",
    "Qwen3-1.7B": "Qwen/Qwen3-1.7B",
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "Qwen3-Coder-Next (80B-A3B)": "Qwen/Qwen3-Coder-Next",
    "MiniMax-M2.1 (PRISM)": "MiniMaxAI/MiniMax-M2.1",
    "MiniMax-M3": "MiniMaxAI/MiniMax-M3",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "Gemma-4-26B-A4B": "google/gemma-4-26B-A4B-it",
    "Gemma-4-26B-A4B + MTP draft": "google/gemma-4-26B-A4B-it",
    "Gemma-4-12B": "google/gemma-4-12B-it",
    "Gemma-4-E4B": "google/gemma-4-E4B-it",
    "Gemma-2-2B class (26 layers)": "google/gemma-2-2b-it",
    "Gemma 7B": "google/gemma-7b-it",
    "2B Gemma class (18 layers)": "google/gemma-2b-it",
    "LFM2.5-8B-A1B": "LiquidAI/LFM2.5-8B-A1B",
    "DeepSeek-R1 671B": "deepseek-ai/DeepSeek-R1",
    "Phi-4-mini-instruct": "microsoft/Phi-4-mini-instruct",
    "Granite-1B-A400M": "ibm-granite/granite-3.1-1b-a400m-instruct",
    "Qwen3.8-27B": "Qwen/Qwen3.8-27B",
    "Qwen2.5-32B": "Qwen/Qwen2.5-32B-Instruct",
    "qwen2.5-coder:32b": "Qwen/Qwen2.5-Coder-32B-Instruct",
    "Yi 34B merge": "01-ai/Yi-34B",
    "gemma3:1b": "google/gemma-3-1b-it",
}  # fmt: skip
# Tensors that a report's file has in another type than the usual mix: told by its model buffers, of which a layer's
# experts take 1,392 MiB.
_TYPES: Final = {"Qwen3.5-122B-A10B": {"experts.down_proj": "Q5_K"}}
_FORKS: Final = ("ik_llama.cpp", "NPU", "RPC", "runner era", "new engine", "LM Studio", "llama-cpp-python")
# Build numbers of dates, near enough for the eras of the rules.
_MONTHS: Final = (
    ("2026-09-16", 11000), ("2026-08-08", 10300), ("2026-08", 10210), ("2026-06", 9500), ("2026-05-28", 9400),
    ("2026-04", 8829), ("2026-02", 8200), ("2025-12", 7400), ("2025-11", 7000), ("2025-10", 6900), ("2025-09", 6400),
    ("2025-08", 6100), ("2025-07", 5900), ("2025-06", 5450), ("2025-05", 5300), ("2025-01", 4500), ("2024", 3000),
)  # fmt: skip
_FIGURE: Final = re.compile(r"(cuda|vulkan|rocm|metal)(\d)?_(kv|rs|context|compute|model)_mib")
_MIX: Final = re.compile(r"(I?Q\d_(?:K_[SML]|K|0|1|XXS|XS|NL|S|M)|F16|BF16)")
_FLAGS: Final = {
    "n_ctx", "np", "kvu", "ubatch", "batch", "n_batch", "n_ubatch", "fa", "ctk", "ctv", "ngl", "offloaded", "ts", "sm",
    "ot", "ot_cpu_expert_layers", "n_cpu_moe", "cpu_moe", "mmap", "fit", "kv_offload", "fit_target_mib", "mmproj",
    "all_outputs", "full_heads",
}  # fmt: skip


class Compared(NamedTuple):
    """One figure of a report, in MiB."""

    name: str
    reported: float
    planned: float

    @property
    def kind(self) -> str:
        """What the figure is of: model, kv, compute, output or failing."""
        return (
            "model" if "model" in self.name else "output" if "output" in self.name else
            "compute" if "compute" in self.name else
            "failing" if "failed" in self.name else "kv"
        )  # fmt: skip

    @property
    def equal(self) -> bool:
        """Whether the two are one number as it is printed."""
        step = 0.0501 if self.kind == "model" and not (self.reported * 10) % 1 else ROUNDING
        step = step if self.reported % 1 else 0.51
        return abs(self.reported - self.planned) <= step

    @property
    def right(self) -> bool:
        """Equal for cells, states and logits; near for what a graph decides."""
        return self.error <= NEAR if self.kind in ("compute", "failing") else self.equal

    @property
    def error(self) -> float:
        """Relative error."""
        return abs(self.planned - self.reported) / self.reported if self.reported else float(self.planned > 0.5)


class Score(NamedTuple):
    """What one report shows; skipped: why nothing or not all of it is compared."""

    id: str
    build: str
    compared: tuple[Compared, ...]
    skipped: str


def read(path: Path) -> list[dict[str, Any]]:
    """All reports of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def build_named(text: str) -> Build:
    """The rules of a build that a report names by number, else by month."""
    number = re.search(r"\bb(\d{4,5})\b", text)
    if number:
        return build_of(f"b{number[1]}")
    month = re.search(r"20\d\d(?:-\d\d)?", text)
    if month is None:
        return build_of(None)
    known = f"{month[0]}-08" if len(month[0]) == 4 else month[0]
    return build_of(f"b{next((build for first, build in _MONTHS if known >= first), 3000)}")


def model_of(row: Mapping[str, Any]) -> Model | None:
    """The catalogue's model, in a GGUF mix where the report names one."""
    try:
        model = models.load(models.find(READ_AS[str(row["model"])]).id)
        mix = re.search(rf"\b{_MIX.pattern}\b", str(row.get("quant") or ""))
    except (KeyError, PlannerError):
        return None
    try:
        mixed = as_gguf(as_format(model, f"GGUF {mix[1]}") if mix else model)[0]
        return _with_types(mixed, _TYPES.get(str(row["model"]), {}))
    except PlannerError:
        return as_gguf(model)[0] if model.inventory is not None else None


def _with_types(model: Model, types: Mapping[str, str]) -> Model:
    """The model with other types of some tensors, by the end of their name."""
    if not types or model.inventory is None:
        return model

    def change(group: TensorGroup) -> TensorGroup:
        named = next((t for end, t in types.items() if group.path.endswith(end)), None)
        return group if named is None else group._replace(format=ggml(named))

    blocks = tuple(tuple(change(group) for group in block) for block in model.inventory.blocks)
    return model._replace(inventory=model.inventory._replace(blocks=blocks))


def settings_of(row: Mapping[str, Any], model: Model) -> Settings:
    """The settings that a report states; what it does not state is the build's default."""
    flags, build = row["flags"], build_named(str(row["engine_version"]))
    given = flags.get("np")
    batch = int(flags.get("batch") or flags.get("n_batch") or 2048)
    flash = str(flags.get("fa", "auto")).lower()
    on = {"true": "on", "on": "on", "auto->on": "on", "false": "off", "off": "off"}
    flash = on.get(flash, "auto" if build.flash_auto else "off")
    value = str(flags.get("ctv", "f16"))
    context = ContextSettings(
        tokens=int(flags["n_ctx"]) or model.spec.context_length or 4096,
        slots=int(given or build.slots),
        unified=bool(flags.get("kvu", build.unified and given is None)),
        batch=batch,
        ubatch=min(batch, int(flags.get("ubatch") or flags.get("n_ubatch") or 512)),
        key_type=str(flags.get("ctk", "f16")),
        value_type=value,
        flash="on" if flash == "auto" and value not in ("f16", "bf16", "f32") else flash,
        draft_rows=int((re.search(r"\((\d+) draft rows", str(flags.get("spec", ""))) or [0, 0])[1]),
    )  # fmt: skip
    if "fit-params" in str(row["engine_version"]) or flags.get("all_outputs"):  # it reserves logits of every token
        context = context._replace(outputs=context.ubatch)
    if re.search("Vulkan|Metal|RADV", " ".join([str(row["engine_version"]), *map(str, row["gpu"])])):
        build = build._replace(copies_reserved=False)
    if flags.get("full_heads"):  # a file of before llama.cpp split the key-value matrix
        build = build._replace(latent=False)
    return Settings(build, context, _place(flags, model))


def _place(flags: Mapping[str, Any], model: Model) -> PlaceSettings:
    offloaded = re.match(r"(\d+)/(\d+)", str(flags.get("offloaded", "")))
    wanted = int(flags["ngl"]) if str(flags.get("ngl", "")).isdecimal() else None
    if offloaded:
        wanted = None if offloaded[1] == offloaded[2] else int(offloaded[1])
    if wanted is not None and wanted > model.spec.num_layers:
        wanted = None
    shares = tuple(float(part) for part in str(flags.get("ts", "")).split(",") if part)
    experts = 0 if flags.get("cpu_moe") else int(flags.get("n_cpu_moe") or 0) or None
    return PlaceSettings(
        gpu_layers=wanted, split_mode=str(flags.get("sm", "layer")), shares=shares, overrides=_overrides(flags),
        cpu_experts=experts, kv_offload=bool(flags.get("kv_offload", True)),
    )  # fmt: skip


def _overrides(flags: Mapping[str, Any]) -> str:
    """Overrides by the words that stand for them: which layers is told by the model buffers of the same report."""
    count, text = flags.get("ot_cpu_expert_layers"), str(flags.get("ot", ""))
    layers: list[int] = []
    if count in (36, 40):  # of 48 on four GPUs: 13, 12, 12 and 11 and the output
        layers = [*range(19), *range(25, 31), *range(37, 48)] if count == 36 else [*range(31), *range(37, 48)]
    elif count == 18:
        layers = [*range(4), *range(13, 18), *range(25, 31), *range(37, 40)]
    elif match := re.match(r"experts of layers (\d+)-(\d+) on CPU", text):
        layers = list(range(int(match[1]), int(match[2]) + 1))
    names = "|".join(str(layer) for layer in layers)
    return rf"blk\.({names})\.ffn_.*_exps=CPU" if layers else ""


def score(row: Mapping[str, Any]) -> Score:
    """What a report lets compare."""
    flags, version = row["flags"], str(row["engine_version"])
    build = build_named(version).name
    told = " ".join([str(row["engine"]), version, *map(str, row.get("gpu") or ())])
    if any(word in told for word in _FORKS):
        return Score(row["id"], build, (), FORK)
    model = model_of(row)
    if model is None or model.inventory is None:
        return Score(row["id"], build, (), MODEL)
    if "fit_trial" in flags or flags.get("sm") == "tensor":
        return Score(row["id"], build, (), FIELD)
    if "n_ctx" not in flags:  # weights do not depend on it
        row = {**row, "flags": {**flags, "n_ctx": 4096}, "reported": _of_weights(row["reported"])}
    settings = settings_of(row, model)
    gpus = _gpus(row)
    if gpus > 1 and not settings.place.shares and not _alike(row):
        return Score(row["id"], build, (), FIELD)
    try:
        sizes = size_up(model, tensors_of(model), settings, (24 * GIB,) * gpus)
    except (PlannerError, ValueError) as error:
        return Score(row["id"], build, (), f"not planned: {error}")
    found = tuple(_compare(row, sizes, gpus))
    return Score(row["id"], build, found, "" if found else FIELD)


def _of_weights(reported: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in reported.items() if re.search(r"\d?_model_mib", name)}


def _gpus(row: Mapping[str, Any]) -> int:
    """GPUs of a report: 0 for a server on the processor."""
    names = [str(name) for name in row.get("gpu") or ()]
    if any("none" in name or "KV on CPU" in name for name in names):
        return 0
    counted = re.match(r"(\d+) (?:\w+ )?GPUs", names[0]) if names else None
    return int(counted[1]) if counted else max(int(row.get("n_gpu") or 1), len(names))


def _alike(row: Mapping[str, Any]) -> bool:
    """Whether all GPUs are of one kind, so that layers are shared out evenly."""
    names = [str(name) for name in row.get("gpu") or ()]
    return len(set(names)) == 1 and (len(names) > 1 or re.match(r"\d+ CUDA GPUs", names[0]) is not None)


def _unplaced(row: Mapping[str, Any]) -> bool:
    """Whether it is not stated which layers are on a GPU."""
    flags, reported = row["flags"], row["reported"]
    told = any(name in flags for name in ("ngl", "offloaded", "n_cpu_moe", "cpu_moe", "ot_cpu_expert_layers"))
    moved = "fit_result" in flags or "host_kv_mib" in reported or "cpu_rs_mib" in reported or flags.get("fit") is True
    return "partial" in str(row.get("gpu")) or "fit_result" in flags or (moved and not told)


def _compare(row: Mapping[str, Any], sizes: Sizes, gpus: int) -> Iterator[Compared]:
    """Every figure of a report that the plan has too."""
    unplaced, reported = _unplaced(row), row["reported"]
    own_mix = _MIX.fullmatch(str(row.get("quant") or "")) is not None and "ot" not in row["flags"]
    unknown = unplaced or ("ot" in row["flags"] and not _overrides(row["flags"]))  # of experts, which compute needs
    # Layers on the host are staged on a GPU, in a size that only the file's types tell.
    unknown = unknown or (not row.get("quant") and HOST in sizes.placed.placement.layers and gpus > 0)
    device = reported.get("failed_device")
    if device is not None and device < gpus and "failed_alloc_mib" in reported and not unknown:
        # The report does not say of what: of the device's buffers, the one that is nearest.
        wanted = float(reported["failed_alloc_mib"])
        held = (sizes.kv[device] / MIB, sizes.compute.gpus[device] / MIB, sizes.placed.device_bytes[device] / MIB)
        yield Compared("failed_alloc_mib", wanted, min(held, key=lambda one: abs(one - wanted)))
    for name, value in _flat(reported):
        match = _FIGURE.fullmatch(name)
        if match:
            device, figure = int(match[2] or 0), match[3]
            if device >= gpus or unplaced or (figure == "compute" and unknown) or (figure == "model" and not own_mix):
                continue
            planned: int | None = {
                "kv": sizes.kv[device], "rs": sizes.state[device], "context": sizes.context(device),
                "compute": sizes.compute.gpus[device],
                "model": sizes.placed.device_bytes[device],
            }[figure]  # fmt: skip
        elif name in ("host_compute_mib", "cpu_compute_mib"):
            planned = None if unknown else sizes.compute.host
        elif name in ("host_output_mib", "cpu_output_mib"):
            planned = sizes.output
        elif name in ("kv_total_mib", "kv_mib"):
            planned = sum(sizes.kv)
        elif name == "rs_total_mib":
            planned = sum(sizes.state)
        else:
            continue
        if planned is not None:
            yield Compared(name, float(value), planned / MIB)


def _flat(reported: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Figures by name; lists by device."""
    joined: dict[str, float] = {}
    for name, value in reported.items():
        if isinstance(value, list):
            for index, one in enumerate(value):
                joined[re.sub(r"^(cuda|rocm|vulkan)_", rf"\g<1>{index}_", name)] = one
        elif re.fullmatch(r".*_kv_(base|swa)_mib|kv_(base|swa)_mib", name):
            whole = re.sub(r"_(base|swa)_mib$", "_mib", name)
            joined[whole] = joined.get(whole, 0) + value
        elif isinstance(value, int | float):
            joined[name] = value
    yield from joined.items()


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Counts of what was compared and what agrees."""
    figures = [figure for score in scores for figure in score.compared]
    cells = [figure for figure in figures if figure.kind in ("kv", "output")]
    weights = [figure for figure in figures if figure.kind == "model"]
    compute = [figure for figure in figures if figure.kind == "compute"]
    failing = [figure for figure in figures if figure.kind == "failing"]
    return {
        "reports": len(scores),
        "used": sum(bool(score.compared) for score in scores),
        "cache_and_output": {"figures": len(cells), "equal": sum(figure.equal for figure in cells)},
        "model": {"figures": len(weights), "equal": sum(figure.equal for figure in weights)},
        "compute": {"figures": len(compute), "within_2_percent": sum(figure.right for figure in compute)},
        "failing": {"figures": len(failing), "within_2_percent": sum(figure.right for figure in failing)},
        "skipped": {score.id: score.skipped for score in scores if score.skipped},
    }  # fmt: skip


def as_json(scores: list[Score]) -> dict[str, Any]:
    """The counts, and every figure of every report."""
    reports = [
        {"id": one.id, "build": one.build, "skipped": one.skipped, "figures": [f._asdict() for f in one.compared]}
        for one in scores
    ]
    return {"all": summary(scores), "reports": reports}


def text(scores: list[Score]) -> str:
    """Every figure that differs, for people, then the counts."""
    lines = [
        f"{one.id} ({one.build}) {figure.name}: {figure.reported:,} printed, {figure.planned:,.2f} planned"
        for one in scores
        for figure in one.compared
        if not figure.right
    ]
    return "\n".join([*lines, json.dumps(summary(scores), indent=1)])


def main(arguments: list[str]) -> int:
    """Print the score of files."""
    scores = [score(row) for name in arguments if not name.startswith("-") for row in read(Path(name))]
    sys.stdout.write((json.dumps(summary(scores)) if "--json" in arguments else text(scores)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
