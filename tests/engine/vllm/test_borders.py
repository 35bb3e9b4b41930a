"""Every rule of a release, seen in what is planned on both sides of each of its borders.

A case says what to look at, and what it is before the first border, between two, and after the last: written down here,
not read from the rule, whose row names its source. A rule without a case fails, and so does a new border.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import gpu_of
from kvplanner.engine.vllm.kv import groups, sizing
from kvplanner.engine.vllm.memory import activations, fragmentation, workspace
from kvplanner.engine.vllm.releases import ByRelease, release_of, spelled
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.settle import settle
from kvplanner.engine.vllm.startup import rank as startup
from kvplanner.engine.vllm.weights import format as weight_format
from kvplanner.engine.vllm.weights import loaded, rank
from kvplanner.errors import BadInput
from kvplanner.estimate import exact
from kvplanner.model.model import Model
from kvplanner.model.spec import Indexer, Mlp, ModelSpec, Moe, State
from kvplanner.units import GIB, MIB
from tests.engine.vllm.kv.models import (
    A100,
    B200,
    H100,
    RTX4090,
    T4,
    Gpu,
    dense,
    full,
    gated,
    kimi_linear,
    laid_out,
    latent,
    machine,
    resolved,
    spec,
    windowed,
)

Options = dict[str, Any]
RULES: Final = {name: rule for name, rule in vars(rules).items() if isinstance(rule, ByRelease)}
# The releases that people run, the oldest first (PyPI).
RELEASES: Final = tuple(
    release_of(text).version
    for text in (
        "0.6.3", "0.6.4", "0.6.6", "0.7.0", "0.7.3", "0.8.0", "0.8.1", "0.8.2", "0.8.3", "0.8.4", "0.8.5", "0.9.0",
        "0.9.1", "0.9.2", "0.10.0", "0.10.1", "0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0", "0.14.0",
        "0.14.1", "0.15.0", "0.15.1", "0.16.0", "0.17.0", "0.17.1", "0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0",
        "0.20.1", "0.20.2", "0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0",
        "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0",
    )
)  # fmt: skip


class Case(NamedTuple):
    """see: what a release shows. values: before the first border, and from each border on."""

    see: Callable[[str], object]
    values: tuple[object, ...]


def _settings(model: ModelSpec, options: Options | None = None, gpu: Gpu = H100) -> Callable[[str], Settings]:
    return lambda version: resolved(model, options, gpu, version)[0]


def _part(
    read: Callable[[Settings], object], model: ModelSpec, options: Options | None = None, gpu: Gpu = H100
) -> Callable[[str], object]:
    made = _settings(model, options, gpu)
    return lambda version: read(made(version))


def _runner(model: ModelSpec, options: Options | None = None, gpu: Gpu = H100) -> Callable[[str], str]:
    """The runner, "refused" where the release does not know the model."""

    def see(version: str) -> str:
        try:
            return resolved(model, options, gpu, version)[0].era.runner
        except BadInput:
            return "refused"

    return see


def _runners(*of: Callable[[str], str]) -> Callable[[str], str]:
    return lambda version: " ".join(see(version) for see in of)


def _feeding(architecture: str, experts: bool = False, **more: Any) -> ModelSpec:
    made = dense(architecture=architecture, **more)
    mlp = Moe(8, 2, 14336) if experts else Mlp(14336)
    return made._replace(layers=tuple(layer._replace(mlps=(mlp,)) for layer in made.layers))


def _sizes(model: ModelSpec, options: Options | None = None, gpu: Gpu = H100) -> Callable[[str], object]:
    """How many batch sizes are captured, and the largest."""
    made = _settings(model, options, gpu)
    return lambda version: (len(sizes := made(version).graphs.sizes), sizes[-1])


def _class_of(version: str) -> tuple[tuple[int, int], ...]:
    """Tokens of a step and sequences that a server on each of five GPUs takes by default."""
    steps = (resolved(dense(), gpu=gpu, version=version)[0].scheduler for gpu in (H100, A100, B200, RTX4090))
    return tuple((step.max_num_batched_tokens, step.max_num_seqs) for step in steps)


def _block(version: str) -> object:
    options = {"tensor_parallel_size": 2, "enable_prefix_caching": False}
    try:
        return laid_out(kimi_linear(), options, version=version).block_size
    except BadInput:
        return "refused"


def _backend(model: ModelSpec, gpu: Gpu = H100) -> Callable[[str], object]:
    return lambda version: resolved(model, gpu=gpu, version=version)[0].attention_backend


def _message(version: str) -> str:
    return sizing.size(laid_out(dense(), version=version), (GIB,)).error or ""


def _has(words: str) -> Callable[[str], object]:
    return lambda version: words in _message(version)


def _whole_need(version: str) -> bool:
    options = {"pipeline_parallel_size": 2, "max_model_len": 131072}
    layout = laid_out(dense(), options, version=version)._replace(bytes_per_block=(1 << 20, 1 << 20))
    return sizing.size(layout, (9_000_000_000,) * 2).error is not None


def _just_enough(version: str) -> bool:
    """Whether blocks for exactly one request are too few."""
    layout = laid_out(dense(), {"max_model_len": 1600}, version=version)
    return sizing.size(layout, (100 * layout.bytes_per_block[0],)).error is not None


def _too_many(version: str) -> bool:
    layout = laid_out(gated(), {"max_model_len": 2048}, version=version)
    return sizing.size(layout, (500 * layout.bytes_per_block[0],)).capture_error is not None


def _concurrency(version: str) -> float:
    return sizing.size(laid_out(dense(context_length=1000), version=version), (GIB,)).max_concurrency


def _window_tokens(version: str) -> int:
    """Tokens that a window of 1,024 keeps at a long request, 8,192 in a step."""
    options = {"async_scheduling": True, "max_num_batched_tokens": 8192}
    layout = laid_out(windowed(20, 4), options, version=version)
    bounded = next(table.spec for table in layout.tables if table.spec.kind == "sliding")
    return groups.kept_tokens(bounded, layout.settings, 131072)


def _gathered(version: str) -> int:
    """Scratch of sparse attention at a context of 1 Mi tokens."""
    model = latent(index=Indexer(64, 128, 2048), context_length=1 << 20)
    here = resolved(model, {"max_model_len": 1 << 20, "tensor_parallel_size": 8}, version=version)[0]
    gpu = gpu_of(machine().devices[0].gpu)
    return workspace.shared_workspace(Model("test", model, None, "config"), here, gpu).bytes


def _of(name: str, gpu: str, version: str, **options: Any) -> tuple[Model, Settings, Any]:
    request = PlanRequest(models.load(name), gpus.machine(gpu), "vllm", version, options)
    return request.model, settle.resolve(request)[0], gpu_of(request.machine.devices[0].gpu)


def _weights(name: str, gpu: str, **options: Any) -> Callable[[str], object]:
    def see(version: str) -> int:
        model, here, device = _of(name, gpu, version, **options)
        return rank.rank_weights(model, here, device, 0).value

    return see


def _moment(name: str, gpu: str, part: str, **options: Any) -> Callable[[str], str]:
    """How a moment of the profile run comes about, up to the first product."""

    def see(version: str) -> str:
        model, here, device = _of(name, gpu, version, **options)
        return str(getattr(activations.moments(model, here, device, 0), part).how)

    return see


def _tried(version: str) -> bool:
    model, here, device = _of("Qwen/Qwen3-8B", "H100", version, max_num_seqs=16, max_num_batched_tokens=2048)
    return activations.profiled(model, here, device, 0).cold_extra_bytes > 0


def _rounding(version: str) -> bool:
    """Whether pieces of the output projection (24.5 MiB) stand whole in 26 MiB."""
    model, here, device = _of("Qwen/Qwen2.5-7B-Instruct", "H100", version)
    return loaded.rounding(model, here, device, 0).value > 60 * MIB


def _gaps(version: str) -> bool:
    """Whether repacking gpt-oss-120b leaves more than 8 GiB between the weights."""
    model, here, device = _of("openai/gpt-oss-120b", "2xH100", version, tensor_parallel_size=2)
    found = fragmentation.gaps(model, here, device, 0, exact(0))
    return found.value > 8 * GIB


def _states(version: str) -> int:
    """Blocks of a recurrent state that a request keeps."""
    return laid_out(_STATE, {"enable_prefix_caching": True}, version=version).tables[0].spec.state_blocks


def _positions(version: str) -> object:
    model, here, device = _of("Qwen/Qwen3.5-4B", "H100", version)
    return loaded.tables(model, here, device, 0).inputs[0].value


def _layout_of(gpu: str, field: str) -> Callable[[str], object]:
    def see(version: str) -> object:
        _, here, device = _of("openai/gpt-oss-20b", gpu, version)
        return getattr(weight_format.mxfp4_layout(here, device), field)

    return see


def _charged(version: str) -> str:
    """Which runners count what other programs hold as their own."""
    made = _settings(dense(), {})(version)
    return made.era.runner if startup.others_charged(made) else "none"


_STATE = spec(
    [(State("mamba2", 4, 64, 64, 1, 128, groups=8),)] * 4 + [(full(),)] * 4, architecture="NemotronHForCausalLM"
)
_CHUNKED = spec([(full(chunk=8192),)] * 3 + [(full(),)])
_SINKS, _PRO6000 = spec([(full(sinks=True),)]), ("RTX PRO 6000", 95, (12, 0))
_DRAFTS = {"speculative_method": "ngram", "num_speculative_tokens": 3, "max_num_seqs": 32}
_SPARSE = latent(index=Indexer(64, 128, 2048))
_V2 = _runners(
    _runner(_feeding("Qwen3ForCausalLM")), _runner(_feeding("LlamaForCausalLM")),
    _runner(_feeding("Qwen3ForCausalLM", quantization="awq")), _runner(_feeding("DeepseekV2ForCausalLM", True)),
    _runner(_feeding("Gemma2ForCausalLM")), _runner(_feeding("InklingForCausalLM", True)),
    _runner(_feeding("KimiK3ForConditionalGeneration", True)), _runner(_feeding("DeepseekV4ForCausalLM", True)),
    _runner(gated()),
)  # fmt: skip

CASES: Final[dict[str, Case]] = {
    "V1_ENGINE": Case(_runner(dense()), ("V0", "V1")),
    "V0_FALLBACK": Case(
        _runners(_runner(dense(dtype="float16"), gpu=T4), _runner(dense())), ("V0 V0", "V0 V1", "V1 V1")
    ),
    "V0_FALLBACK_CACHE": Case(
        _runners(_runner(dense(), {"kv_cache_dtype": "fp8"}, RTX4090), _runner(dense(), gpu=RTX4090)),
        ("V0 V0", "V0 V1", "V1 V1"),
    ),
    "V1_DRAFTS": Case(
        _runners(
            _runner(dense(), {"speculative_method": "eagle"}),
            _runner(latent(4, architecture="DeepseekV3ForCausalLM", mtp_layers=1), {"speculative_method": "mtp"}),
        ),
        ("V0 V0", "V1 V0", "V1 V1"),
    ),
    "POOLING_ON_V1": Case(_runner(dense(task="embed")), ("V0", "V1")),
    "PIPELINE_ON_V1": Case(_runner(dense(), {"pipeline_parallel_size": 2}), ("V0", "V1")),
    "V2_MODELS": Case(
        _V2,
        (
            "V1 V1 V1 V1 V1 refused refused V1 V1",
            "V2 V1 V1 V1 V1 refused refused V1 V1",
            "V2 V2 V1 V1 V1 refused refused V1 V1",
            "V2 V2 V2 V2 V1 refused refused V1 V1",
            "V2 V2 V2 V2 V2 refused refused V1 V1",
            "V2 V2 V2 V2 V2 V2 refused V1 V1",
            "V2 V2 V2 V2 V2 V2 V2 V1 V1",
            "V2 V2 V2 V2 V2 V2 V2 V2 V1",
            "V2 V2 V2 V2 V2 V2 V2 V2 V2",
        ),
    ),
    "V2_WITHOUT": Case(_runner(dense(), {"speculative_method": "ngram"}), ("V1", "V2")),
    "UTILIZATION": Case(_part(lambda s: s.cache.utilization, dense()), (0.9, 0.92)),
    "FREE_CHECK": Case(_part(lambda s: s.era.free_memory_check, dense()), (False, True)),
    "OTHERS_CHARGED": Case(_charged, ("V0", "none", "V1", "none")),
    "GRAPHS_ESTIMATED": Case(
        _part(lambda s: s.era.graphs_in_budget, _feeding("MixtralForCausalLM", True)), (False, True)
    ),
    "V2_ESTIMATES_GRAPHS": Case(_part(lambda s: s.era.graphs_in_budget, _feeding("Qwen3ForCausalLM")), (False, True)),
    "CONSUMED": Case(_part(lambda s: s.era.consumed_rule, dense()), (False, True)),
    "SNAPSHOT_AFTER_NCCL": Case(
        lambda version: rules.accounting(release_of(version).version), ("0.9.1–0.10", "0.11–0.19")
    ),
    "GPU_CLASSES": Case(
        _class_of,
        (
            ((2048, 256), (2048, 256), (2048, 256), (2048, 256)),
            ((8192, 1024), (2048, 1024), (2048, 1024), (2048, 1024)),
            ((8192, 1024), (2048, 256), (2048, 256), (2048, 256)),
            ((8192, 1024), (8192, 1024), (8192, 1024), (2048, 256)),
            ((8192, 1024), (2048, 256), (8192, 1024), (2048, 256)),
            ((8192, 1024), (2048, 256), (16384, 1024), (2048, 256)),
        ),
    ),
    "ASYNC_SCHEDULING": Case(_part(lambda s: s.scheduler.async_scheduling, dense()), (False, True)),
    "WHOLE_ITEMS": Case(
        _part(
            lambda s: s.scheduler.max_num_batched_tokens,
            dense(architecture="Gemma4ForConditionalGeneration", multimodal=True),
            gpu=RTX4090,
        ),
        (2048, 2496),
    ),
    "IN_FLIGHT": Case(_window_tokens, (9215, 17407)),
    "LARGEST_GRAPH": Case(_sizes(dense(), {"max_num_seqs": 16}), ((67, 512), (7, 32))),
    "GRAPH_STEP": Case(_sizes(dense()), ((67, 512), (51, 512))),
    "GRAPHS_FOR_DRAFTS": Case(_sizes(dense(), _DRAFTS), ((11, 64), (33, 256))),
    "TOKENS_CAPTURED": Case(
        _sizes(dense(), {"max_num_batched_tokens": 100, "max_num_seqs": 64}), ((15, 96), (16, 100))
    ),
    "SEQUENCES_CAPTURED": Case(_sizes(dense(), {"max_num_seqs": 20}), ((8, 40), (9, 40))),
    "BLACKWELL_GRAPHS": Case(_sizes(dense(), gpu=B200), ((51, 512), (83, 1024))),
    "FULL_GRAPHS": Case(_part(lambda s: s.graphs.mode, dense()), ("PIECEWISE", "FULL_AND_PIECEWISE")),
    "WIDE_GRAPHS": Case(
        _sizes(dense(architecture="GptOssForCausalLM")), ((67, 512), (83, 1024), (81, 992), (83, 1024))
    ),
    "COMBO_KERNELS": Case(_tried, (False, True)),
    "CHUNKED_IN_PIECES": Case(
        _part(
            lambda s: s.graphs.mode,
            _CHUNKED,
            {"disable_hybrid_kv_cache_manager": False, "cudagraph_mode": "FULL"},
        ),
        ("FULL", "PIECEWISE"),
    ),
    "HYBRID_PREFIXES": Case(_part(lambda s: s.cache.prefix_caching, gated()), (False, True)),
    "HYBRID_MANAGER": Case(_part(lambda s: s.cache.hybrid_manager, windowed(2, 2)), (False, True)),
    "CHUNKED_GROUPS": Case(_part(lambda s: s.cache.hybrid_manager, _CHUNKED), (False, True)),
    "PRINTED": Case(_part(lambda s: s.era.printed_tokens, dense()), ("pool", "concurrency")),
    "BLOCKS_PER_REQUEST": Case(_concurrency, (512 * 16 / 1000, 512 / 63)),
    "WHOLE_MODEL_NEED": Case(_whole_need, (False, True, False)),
    "NULL_BLOCK": Case(_just_enough, (False, True)),
    "STATE_CHECK": Case(_too_many, (False, True)),
    "LATENT_ALIGNMENT": Case(_block, (960, 944, 1024)),
    "CHECKPOINTS": Case(_states, (2, 3)),
    "LATENT_CACHE": Case(
        lambda version: laid_out(latent(architecture="DeepseekV2ForCausalLM"), version=version).block_size,
        (16, 64),
    ),
    "FA_MLA_SPARSE": Case(_backend(_SPARSE), ("FLASHMLA_SPARSE", "FLASH_ATTN_MLA_SPARSE")),
    "KNOWS_IMAGE_PREFIX": Case(
        _backend(dense(architecture="Gemma3ForConditionalGeneration", multimodal=True)), ("FLASH_ATTN", "TRITON_ATTN")
    ),
    "FLASHINFER_SINKS": Case(_backend(_SINKS, _PRO6000), ("TRITON_ATTN", "FLASHINFER")),
    "INDEXER_ROWS": Case(lambda version: _gathered(version) // (132 << 20), (2, 40, 16)),
    "INDEXER_SCRATCH": Case(_gathered, (40 * 132 << 20, (40 * 132 << 20) + MIB)),
    "GATHER_BY_LENGTH": Case(_gathered, ((40 * 132 << 20) + MIB, (16 * 132 << 20) + MIB)),
    "INDEXER_LOGITS": Case(
        lambda version: _moment("deepseek-ai/DeepSeek-V3.2", "8xH200", "forward", tensor_parallel_size=8)(
            version
        ).endswith(" + 536,870,912"),
        (False, True),
    ),
    "ROUND_UP_ITEMS": Case(
        _moment("google/gemma-3-27b-it", "H100", "encoder", max_num_batched_tokens=2100),
        (
            "36,864 patches × 1,152 wide × 22 + 2,100 tokens × 5,376 hidden × 2",
            "32,768 patches × 1,152 wide × 22 + 2,100 tokens × 5,376 hidden × 2",
        ),
    ),
    "MXFP4_TRTLLM_WIDTH": Case(_layout_of("B200", "width"), (256, 128)),
    "MXFP4_TRITON_SUMMED": Case(_layout_of("H100", "summed"), (1, 128, 1)),
    "MXFP4_SCALES_ONCE": Case(_layout_of("H100", "twice"), (True, False)),
    "NVFP4_TRTLLM_WIDTH": Case(
        _weights("nvidia/Gemma-4-26B-A4B-NVFP4", "4xB200", tensor_parallel_size=4), (5_712_691_808, 5_972_214_368)
    ),
    "GPTQ_ORDER_KEPT": Case(_weights("Qwen/Qwen2.5-14B-Instruct-GPTQ-Int4", "H100"), (9_985_632_256, 9_980_028_928)),
    "GPTQ_EXPERT_ZEROS": Case(
        _weights("Qwen/Qwen3-30B-A3B-GPTQ-Int4", "NVIDIA A100-SXM4-80GB"), (16_742_510_592, 16_799_133_696)
    ),
    "LOAD_SPLIT": Case(_rounding, (False, True)),
    "REPACKING_GAPS": Case(_gaps, (False, True)),
    "LONG_AXES": Case(_positions, (4 * 262144 * 64 * 2, 262144 * 64 * 2)),
    "ADA_BLOCKS_BY_MARLIN": Case(_weights("Qwen/Qwen3-8B-FP8", "RTX 4090"), (9_437_399_040, 9_544_230_912)),
    "MACHETE_AWQ": Case(_weights("Qwen/Qwen2.5-7B-Instruct-AWQ", "H100"), (5_570_747_392, 5_647_215_616)),
    "MXFP4_NAME": Case(_part(lambda s: s.model.quantization, dense(quantization="mxfp4")), ("mxfp4", "gpt_oss_mxfp4")),
    "GPTQ_NAME": Case(_part(lambda s: s.model.quantization, dense(quantization="gptq")), ("gptq_marlin", "auto_gptq")),
    "AWQ_NAME": Case(_part(lambda s: s.model.quantization, dense(quantization="awq")), ("awq_marlin", "auto_awq")),
    "POSSESSIVE": Case(_has("models's"), (True, False)),
    "SEE_PAGE": Case(_has("conserving_memory"), (False, True)),
    "CPU_REMARK": Case(_has("CPU backend"), (False, True)),
}


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_has_a_case_for_each_of_its_values(name: str) -> None:
    assert len(CASES[name].values) == len(RULES[name].rows)
    assert all(row.source for row in RULES[name].rows[1:])


def _borders() -> list[tuple[str, int]]:
    return [(name, index) for name, rule in sorted(RULES.items()) for index in range(1, len(rule.rows))]


@pytest.mark.parametrize(("name", "index"), _borders())
def test_a_border_shows_in_the_plan(name: str, index: int) -> None:
    since = RULES[name].rows[index].since
    before = max(release for release in RELEASES if release < since)
    case = CASES[name]
    assert case.values[index - 1] != case.values[index], "a border between equal values"
    assert case.see(spelled(before)) == case.values[index - 1]
    assert case.see(spelled(since)) == case.values[index]
