"""Printed tokens, blocks and concurrency of public start-up reports, given the KV memory that they print.

Memory is printed with two decimals, so a report is met when some value that rounds to it gives its figures. A report
without a version may be met by any era. What a report leaves out is named, and the plan with it must then agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kvplanner.catalog import models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.gpu import gpu_of
from kvplanner.engine.vllm.kv import layout as kv_layout
from kvplanner.engine.vllm.kv import sizing as kv_sizing
from kvplanner.engine.vllm.settle import settle as defaults
from kvplanner.engine.vllm.weights.rank import partition
from kvplanner.errors import PlannerError
from kvplanner.estimate import exact
from kvplanner.gpu.spec import Device, GpuSpec, Machine
from kvplanner.model.model import Model
from kvplanner.model.spec import State
from kvplanner.units import GIB
from tests.truth import rows

pytestmark = pytest.mark.slow

TRUTH: Final = Path(__file__).parents[1] / "truth"
ERAS: Final = ("0.6.6", "0.7.3", "0.8.5", "0.9.2", "0.11.2", "0.16.0", "0.19.0", "0.23.0", "0.26.0", "0.28.0", "0.33.0")
# Loose names in reports: what they mean, or the model with the same cache that their arithmetic names.
NAMES: Final[tuple[tuple[str, str], ...]] = (
    (r"qwen3\.?6.27b", "Qwen/Qwen3.6-27B"), (r"qwen3\.8-27b|Qwen3\.5-family hybrid 27B", "Qwen/Qwen3.8-27B"),
    (r"qwen3\.6-35b-a3b", "Qwen/Qwen3.6-35B-A3B"), (r"gemma.4.31b", "google/gemma-4-31B-it"),
    (r"26b-a4b", "google/gemma-4-26B-A4B-it"), (r"gpt-oss-120b", "openai/gpt-oss-120b"),
    (r"Olmo-3-1025-7B", "allenai/Olmo-3-7B-Think"), (r"LFM2\.5-1\.2B", "LiquidAI/LFM2.5-1.2B-Instruct"),
    (r"GLM-5\.2", "zai-org/GLM-5.2"), (r"Kimi-K2-Thinking", "moonshotai/Kimi-K2-Instruct"),
    (r"12 KiB per token", "Qwen/Qwen2.5-0.5B-Instruct"), (r"36 KiB per token", "Qwen/Qwen2.5-3B-Instruct"),
    (r"56 KiB per token|Qwen2\.5-7B|Qwen2\.5-Omni-7B", "Qwen/Qwen2.5-7B-Instruct"),
    (r"144 KiB/token|Qwen3-8B", "Qwen/Qwen3-8B"), (r"DeepSeek-Coder-V2-Lite", "deepseek-ai/DeepSeek-V2-Lite"),
    (r"MiniMax-M2\.7", "MiniMaxAI/MiniMax-M2.7"),
    (r"Mistral-Small-3\.1", "mistralai/Mistral-Small-3.1-24B-Instruct-2503"),
    (r"Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B-FP8"), (r"Llama-3\.2-11B", "meta-llama/Llama-3.2-11B-Vision-Instruct"),
    (r"Qwen2 1\.5B", "Qwen/Qwen2.5-1.5B-Instruct"), (r"Pixtral-12B", "mistral-experimental/pixtral-12b"),
    (r"Qwen2\.5-72B", "Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4"),
)  # fmt: skip
CAPABILITIES: Final = (
    ("5090|PRO 6000|5070", (12, 0)), ("GB10", (12, 1)), ("4090|L40|L4|Ada", (8, 9)), ("H100|H200|sm90", (9, 0)),
    ("A100", (8, 0)), ("B200", (10, 0)), ("B300", (10, 3)),
)  # fmt: skip
COMMON: Final = (8, 6)
FP8: Final[dict[str, OptionValue]] = {"kv_cache_dtype": "fp8"}
MTP3: Final[dict[str, OptionValue]] = {"speculative_method": "mtp", "num_speculative_tokens": 3}
CACHING: Final[dict[str, OptionValue]] = {"enable_prefix_caching": True}
# Reports that leave out a flag that decides: with it the figures agree.
LEFT_OUT: Final[dict[str, dict[str, OptionValue]]] = {
    "qwen36-27b-ar-int4-2x3090-642": FP8 | MTP3 | CACHING,
    "qwen36-27b-ar-int4-2x3090-487": MTP3,
    "qwen36-27b-fp8-2x3090-594": MTP3,
    "qwen36-27b-int4-4x3090-int8kv-446": CACHING,
    "qwen36-27b-awq-2x3090-160k": CACHING,
    "qwen36-27b-awq-2x3090-160k-mtp1": CACHING,
    "qwen36-35ba3b-ar-int4-2x24gb-win-0260": FP8 | CACHING,
    "qwen38-27b-fp8-l40s-0260-090": {"enable_prefix_caching": False},
    "qwen38-27b-fp8-32g-0280-textonly": {"enable_prefix_caching": False},
}
# The memory that is printed is not the memory that the figures come from, or the model is not the catalogue's.
OF_ANOTHER_RANK = "printed by one rank; another with less decides, and its figure is not in the report"
STATE_DTYPE = "the catalogue's config lacks mamba_ssm_dtype; with a float32 state the figures agree"
DIFFUSION = "a diffusion variant of the model, whose windows hold some 150 tokens more"
UNEXPLAINED_SPECULATION = (
    "a draft model that is not named: the figures need 20 pages a block and 30 extra blocks a request"
)
NOT_COMPARABLE: Final[dict[str, str]] = {
    "qwen3-235b-fp8-4xh100-21348": OF_ANOTHER_RANK,
    "dsr1-qwen14b-2x4090-13061": OF_ANOTHER_RANK,
    "minimax-m27-awq-2xgb10-085": OF_ANOTHER_RANK,
    "olmo3-7b-pr29796-6k": "both concurrencies of this source need 71.3 GiB: the 57.18 GiB belong to another run",
    "olmo3-7b-pr29796-34k": "both concurrencies of this source need 71.3 GiB: the 57.18 GiB belong to another run",
    "qwen38-27b-ar-int4-2x5090-1084": UNEXPLAINED_SPECULATION,
    "qwen38-27b-fp8-2x5090-1086": UNEXPLAINED_SPECULATION,
    "gemma4-31b-mtp-41789": "the report says that its flags are not complete: cache dtype and batch are missing",
    "diffusiongemma-26ba4b-fp8-2x3090-06-14": DIFFUSION,
    "diffusiongemma-26ba4b-fp8-2x3090-06-19": DIFFUSION,
    "qwen35-4b-l4-0290": STATE_DTYPE,
    "qwen35-4b-4090d-0230": STATE_DTYPE,
    "qwen35-08b-a100-0280-serve8k": STATE_DTYPE,
}


def _reports() -> list[rows.Row]:
    found = [r for name in ("vllm", "vllm-uncited") for r in rows.read(TRUTH / f"{name}.jsonl")]
    figures = {"kv_tokens", "gpu_blocks", "max_concurrency"}
    return [r for r in found if r.reported.get("available_kv_gib") and figures & set(r.reported)]


@cache
def _model(name: str) -> Model | None:
    name = next((known for words, known in NAMES if re.search(words, name, re.IGNORECASE)), name)
    try:
        return models.load(models.find(name).id)
    except PlannerError:
        return None


def _machine(row: rows.Row, count: int) -> Machine:
    text = str(row.facts.get("gpu") or "")
    capability = next((c for words, c in CAPABILITIES if re.search(words, text)), COMMON)
    try:
        gpu = rows.gpu_of(row)._replace(compute_capability=capability)
    except rows.Skip:
        size = re.match(r"(\d+) ?GB", text)
        total = exact(int(size[1]) * GIB if size else 24 * GIB)
        gpu = GpuSpec(text, text, "nvidia", total, total, capability)
    return Machine(tuple(Device(i, gpu) for i in range(count)))


def _met(row: rows.Row, model: Model, options: Mapping[str, OptionValue], version: str) -> bool:
    """Whether some memory that prints as the report's gives its tokens, its blocks and its concurrency."""
    count = int(options.get("tensor_parallel_size", 1)) * int(options.get("pipeline_parallel_size", 1))
    request = PlanRequest(model, _machine(row, count), version=version, options=options)
    try:
        settings = defaults.resolve(request)[0]
        layout = kv_layout.plan_cache(
            model.spec, settings, gpu_of(request.machine.devices[0].gpu),
            partition(model.spec.num_layers, settings.parallel.pp, ()),
        )  # fmt: skip
    except PlannerError:
        return False
    gib, printed = row.reported["available_kv_gib"], row.reported
    sizes = [kv_sizing.size(layout, (int((gib + d) * GIB),) * settings.parallel.pp) for d in (-0.005, 0.005)]
    tokens, rate, blocks = printed.get("kv_tokens"), printed.get("max_concurrency"), printed.get("gpu_blocks")
    if blocks is not None and not sizes[0].num_blocks <= blocks <= sizes[1].num_blocks:
        return False
    rounded = "tokens rounded" in row.text
    return (tokens is None or rounded or sizes[0].tokens <= tokens <= sizes[1].tokens) and (
        rate is None or round(sizes[0].max_concurrency, 2) <= rate <= round(sizes[1].max_concurrency, 2)
    )


def _depends_on_length(model: Model) -> bool:
    mixers = [m for layer in model.spec.layers for m in layer.mixers]
    return any(isinstance(m, State) or getattr(m, "window", None) for m in mixers)


def _verdict(row: rows.Row) -> str:
    """ "met", "era" (by some era, none stated), "skipped", "left out", "not comparable" or "wrong"."""
    model = _model(str(row.facts["model"]))
    try:
        options = rows.options_of(row)
    except rows.Skip:
        return "skipped"
    length = options.get("max_model_len") or row.reported.get("max_concurrency_len")
    if model is None or model.spec.not_modelled:
        return "skipped"
    options.pop("attention_backend", None)
    if not isinstance(length, int) and _depends_on_length(model):
        return "skipped"
    if isinstance(length, int):
        options["max_model_len"] = length
        longer = max(model.spec.context_length or 0, length)
        model = model._replace(spec=model.spec._replace(context_length=longer))
    if options.get("kv_cache_dtype") == "bf16":
        options["kv_cache_dtype"] = "auto"
    versions = (row.version,) if row.version else ERAS
    if any(_met(row, model, options, v) for v in versions):
        return "met" if row.version else "era"
    if row.id in LEFT_OUT and any(_met(row, model, options | LEFT_OUT[row.id], v) for v in versions):
        return "left out"
    return "not comparable" if row.id in NOT_COMPARABLE else "wrong"


REPORTS: Final = _reports()


@cache
def _verdicts() -> dict[str, str]:
    return {row.id: _verdict(row) for row in REPORTS}


@pytest.mark.parametrize("row", REPORTS, ids=lambda r: r.id)
def test_report(row: rows.Row) -> None:
    assert _verdicts()[row.id] != "wrong"


def test_almost_all_comparable_reports_agree() -> None:
    found = list(_verdicts().values())
    enough = [v for v in found if v in ("met", "era", "wrong")]
    assert len(enough) >= 45
    assert sum(v != "wrong" for v in enough) >= 0.95 * len(enough)


def test_lists_hold_no_report_that_agrees_as_it_is() -> None:
    listed = set(LEFT_OUT) | set(NOT_COMPARABLE)
    assert not [name for name in listed if _verdicts().get(name) in ("met", "era", None)]


def test_llama_4_keeps_its_layers_in_four_groups() -> None:
    """Its report of 0.19 has 91,495 blocks of 12 layers in 16.75 GiB; all 48 in one group would be 22,867."""
    assert _verdicts()["llama4-scout-4xh100-llmd"] == "met"
