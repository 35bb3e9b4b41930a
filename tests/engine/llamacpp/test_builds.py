"""What llama-server takes where nothing is given, by build."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.llamacpp.architectures import as_gguf
from kvplanner.engine.llamacpp.builds import build_of
from kvplanner.engine.llamacpp.settings import ContextSettings, PlaceSettings, Settings
from kvplanner.engine.llamacpp.settle import settle
from kvplanner.engine.llamacpp.sizes import Sizes, size_up
from kvplanner.engine.llamacpp.tensors import tensors_of
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import DevicePlan
from kvplanner.engine.whatif import as_format
from kvplanner.estimate import Estimate
from kvplanner.units import GIB, MIB
from tests.engine.llamacpp.kit import LLAMA, plan, size
from tests.oracle.llamacpp.cases import model_of, wide_model

CARD = tuple(gpus.machine("RTX 4090").devices[:1])


def settled(version: str | None, **options: OptionValue) -> Settings:
    return settle(build_of(version), model_of(LLAMA)[0].spec, options, CARD).settings


@pytest.mark.parametrize(
    ("version", "context", "slots", "unified", "layers", "flash"),
    [
        ("b3000", 131072, 1, False, 0, "off"),
        ("b4500", 4096, 1, False, 0, "off"),
        ("b6200", 4096, 1, False, 0, "off"),
        ("b6400", 4096, 1, False, None, "auto"),
        ("b7000", 4096, 4, True, None, "auto"),
        ("b7400", 131072, 4, True, None, "auto"),
        (None, 131072, 4, True, None, "auto"),
    ],
)
def test_defaults_are_those_of_the_build(
    version: str | None, context: int, slots: int, unified: bool, layers: int | None, flash: str
) -> None:
    """Pull requests 10136, 15434, 16736 and 16653, and common.h of builds between them."""
    found = settled(version)
    asked = found.context
    assert (asked.tokens, asked.slots, asked.unified, asked.flash) == (context, slots, unified, flash)
    assert found.place.gpu_layers == layers
    assert found.fit.on == (version in ("b7400", None))


def test_a_context_of_zero_is_the_models_own_in_every_build() -> None:
    assert settled("b6400", ctx_size=0).context.tokens == settled(None, ctx_size=0).context.tokens == 131072


def test_one_slot_stood_for_four_in_november_2025() -> None:
    for version, slots in (("b7000", 4), ("b7400", 1)):
        found = settled(version, parallel=1).context
        assert (found.slots, found.unified) == (slots, slots == 4)


@pytest.mark.parametrize("given", [{"kv_unified": True}, {"spec_type": "draft-mtp"}, {"spec_draft_model": "a.gguf"}])
def test_one_slot_stood_for_itself_with_one_cache_or_a_draft(given: dict[str, OptionValue]) -> None:
    """server.cpp of pull request 16736: four slots only where the cache is not shared and nothing drafts."""
    for options in (given, {**given, "parallel": 1}):
        found = settled("b7000", **options).context
        assert (found.slots, found.unified) == (1, "kv_unified" in given)
    assert settled("b7000", **{**given, "parallel": 3}).context.slots == 3


def test_the_slot_that_stands_for_itself_is_named() -> None:
    made = plan(LLAMA, "H100", version="b7000", kv_unified=True)
    assert (made.options["parallel"].value, made.options["parallel"].origin) == (1, "default")
    assert made.limits.max_requests == 1


def test_a_context_was_not_rounded_up_before_slots_divided_it_until_november_2025() -> None:
    """Pull request 17046 of 7 November: 8,193 tokens in two slots were 4,096 each, then half of 8,448, rounded up."""
    for version, cells in (("b6900", 2 * 4096), ("b6950", 2 * 4096), ("b7000", 2 * 4352)):
        found = plan(LLAMA, "H100", version=version, ctx_size=8193, parallel=2, kv_unified=False)
        assert size(found.devices[0], "kv_cache") == cells * 131072


def test_a_server_of_autumn_2025_keeps_4096_tokens() -> None:
    """512 MiB of an 8B's cells; a year later the whole 131,072."""
    assert size(plan(LLAMA, version="b6400").devices[0], "kv_cache") == 512 * MIB


def test_latent_attention_kept_its_values_once_more_until_january_2026() -> None:
    """60 layers of 576 and 512 elements (DeepSeek-V2), then of 576 alone: pull request 19067."""
    model = wide_model("deepseek-v2")[0]
    layers = model.spec.num_layers
    for version, width in (("b7400", 576 + 512), (None, 576)):
        found = plan(model, "8xH100", version=version, ctx_size=8192, parallel=1)
        assert sum(size(one, "kv_cache") for one in found.devices) == 8192 * layers * width * 2


def m3(build: str, tokens: int, types: str, shares: tuple[float, ...], gpus: int, *, pipeline: bool) -> Sizes:
    model = as_gguf(as_format(models.load("MiniMaxAI/MiniMax-M3"), "GGUF IQ4_XS"))[0]
    context = ContextSettings(tokens=tokens, slots=1, unified=False, ubatch=2048, key_type=types, value_type=types)
    settings = Settings(build_of(build), context, PlaceSettings(shares=shares))
    return size_up(model, tensors_of(model), settings, (96 * GIB,) * gpus, can_pipeline=pipeline)


def test_blocks_of_cells_were_chosen_on_the_host_and_then_on_the_gpu() -> None:
    """MiniMax-M3, in public logs of pull request 26297: of 1 August 2026 with its change, and of b10188 without it.

    The first failed to reserve 54,262,464,512 bytes on the second of three GPUs.
    """
    failed = m3("b10210", 50000, "q8_0", (11, 11, 10), 3, pipeline=True)
    assert failed.compute.gpus[1] == 54_262_464_512
    earlier = m3("b10188", 96000, "f16", (), 5, pipeline=False)
    assert earlier.compute.gpus[0] // MIB == 4349
    # The report has 15 layers there, 12 are here: keys and values in 16 bits, keys of the index in 32 and no values.
    assert earlier.kv[2] * 15 // 12 // MIB == 3515


def test_cells_are_padded_to_32_without_flash_attention_before_october_2025() -> None:
    """A log of July 2025 has 70016 cells for 70000 tokens; with flash attention they were 256's multiples."""
    for version, flash, cells in (("b6000", "off", 70016), ("b6000", "on", 70144), (None, "off", 70144)):
        found = plan(LLAMA, "H100", version=version, ctx_size=70000, parallel=1, flash_attn=flash, n_gpu_layers="99")
        assert size(found.devices[0], "kv_cache") == cells * 131072


def band_of(device: DevicePlan) -> Estimate:
    """The compute buffer of a GPU."""
    segment = device.segment("compute")
    assert segment is not None
    return segment.estimate


def test_other_backends_put_a_graph_in_their_own_order() -> None:
    """Vulkan logs: Qwen2.5-3B takes 104.51 MiB and not 108.51 as the graph stands, Qwen3.8-27B 568.53 and not 520."""
    on = {gpu: plan(LLAMA, gpu, ctx_size=8192).devices[0] for gpu in ("RTX 4090", "RX 7900 XTX")}
    bands = {gpu: band_of(found) for gpu, found in on.items()}
    ours, other = bands["RTX 4090"], bands["RX 7900 XTX"]
    assert ours.value == other.value
    assert other.low <= 0.9 * other.value < 1.25 * other.value <= other.high
    assert ours.high <= 1.04 * ours.value
    assert any("order of their own" in note for note in other.notes)


def test_fused_experts_may_keep_what_they_add() -> None:
    """Eight results of 2,048 elements for 512 tokens: 32 MiB (ggml_backend_cuda_graph_optimize of October 2026)."""
    model = wide_model("qwen3vl-30b-a3b")[0]
    for version, extra in ((None, 32 * MIB), ("b9000", 0)):
        found = plan(model, "H100", version=version, ctx_size=8192)
        band = band_of(found.devices[0])
        assert 0 <= band.high - band.value - extra <= 0.11 * band.value
