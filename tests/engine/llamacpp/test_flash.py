"""Where `--flash-attn auto` turns flash attention off: a layer on a GPU whose keys or heads CUDA has no kernel for.

ggml_cuda_get_best_fattn_kernel of llama.cpp's fattn.cu, and resolve_fused_ops of llama-context.cpp, which compares the
device of each layer with that of its attention (October 2026).
"""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus
from kvplanner.engine.llamacpp.builds import build_of
from kvplanner.engine.llamacpp.settle import settle
from kvplanner.engine.llamacpp.trial import Trial
from kvplanner.engine.option import OptionValue
from kvplanner.errors import BadInput
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, LayerSpec
from tests.engine.llamacpp.kit import LLAMA, plan
from tests.oracle.llamacpp.cases import model_of, wide_model


def model(keys: int, values: int, kv_heads: int) -> Model:
    """32 query heads of a size in every layer."""

    def changed(layer: LayerSpec) -> LayerSpec:
        return layer._replace(
            mixers=tuple(
                mixer._replace(head_size=keys, head_size_v=values, kv_heads=kv_heads)
                for mixer in layer.mixers if isinstance(mixer, Attention)
            )
        )  # fmt: skip

    found = model_of(LLAMA)[0]
    return found._replace(spec=found.spec._replace(layers=tuple(map(changed, found.spec.layers))))


def is_on(model: Model, **options: OptionValue) -> bool:
    settled = settle(build_of(None), model.spec, {"fit": "off", **options}, gpus.machine("RTX 4090").devices)
    return Trial(model, None, settled.gpus).sizes(settled.settings).shape.flash


@pytest.mark.parametrize(
    ("keys", "values", "kv_heads", "on"),
    [
        (128, 128, 8, True), (80, 80, 32, True), (48, 48, 8, False), (160, 160, 8, False), (192, 192, 8, False),
        (128, 64, 8, False), (192, 128, 4, True), (192, 128, 8, False), (192, 128, 32, False), (512, 512, 4, True),
        (512, 512, 32, False), (320, 256, 1, True), (320, 256, 2, False), (576, 512, 1, True),
    ],
)  # fmt: skip
def test_heads_without_a_kernel_turn_it_off(keys: int, values: int, kv_heads: int, on: bool) -> None:
    assert is_on(model(keys, values, kv_heads)) is on
    assert is_on(model(keys, values, kv_heads), flash_attn="on")


def test_layers_on_the_host_need_no_kernel_of_a_gpu() -> None:
    odd = model(48, 48, 8)
    assert is_on(odd, n_gpu_layers="0")
    assert not is_on(odd, n_gpu_layers="2")


@pytest.mark.parametrize(
    ("keys", "values", "on"),
    [("q8_0", "f16", False), ("q8_0", "q8_0", True), ("q4_0", "q4_0", True), ("bf16", "bf16", True),
     ("q5_1", "f16", False)],
)  # fmt: skip
def test_builds_before_september_2026_have_kernels_for_one_type_of_keys_and_values(
    keys: str, values: str, on: bool
) -> None:
    """Issues 27109 and 28455 show it of b10791 and b10819; fattn.cu of the builds vendored from b7700 to b9200."""
    found = plan(LLAMA, version="b9500", cache_type_k=keys, cache_type_v=values)
    notes = [note for note in found.warnings if "Flash attention stays off" in note]
    assert bool(notes) is not on
    assert all(f"keys of {keys} with values of {values}" in note for note in notes)
    assert not any("stays off" in note for note in plan(LLAMA, cache_type_k=keys, cache_type_v=values).warnings)
    asked = plan(LLAMA, version="b9500", cache_type_k=keys, cache_type_v=values, flash_attn="on")
    assert any("attention runs on the host" in note for note in asked.warnings) is not on


@pytest.mark.parametrize(("keys", "values"), [("q8_0", "q4_0"), ("f16", "q8_0"), ("q5_1", "q5_1")])
def test_quantised_values_without_a_kernel_are_refused_by_auto(keys: str, values: str) -> None:
    with pytest.raises(BadInput, match="this requires Flash Attention"):
        plan(LLAMA, version="b9500", cache_type_k=keys, cache_type_v=values)
    plan(LLAMA, version="b9500", cache_type_k=keys, cache_type_v=values, n_gpu_layers="0")
    plan(LLAMA, cache_type_k=keys, cache_type_v=values)


def test_builds_since_july_2026_turn_it_on_for_quantised_values() -> None:
    """Pull request 25871: without a kernel it runs on the host then, as issue 28455 shows of b10819."""
    found = plan(LLAMA, version="b10437", cache_type_k="q8_0", cache_type_v="q4_0")
    assert any("attention runs on the host" in note for note in found.warnings)


@pytest.mark.parametrize(("keys", "values"), [("q8_0", "f16"), ("f16", "q8_0"), ("q8_0", "q4_0")])
def test_latent_attention_has_one_type_since_july_2026(keys: str, values: str) -> None:
    """Issue 26382 shows it of b10216; the cases of llama.cpp's own sizes show it of October 2026."""
    latent = model_of("deepseek-v3-q4km")[0]
    with pytest.raises(BadInput, match=rf"different K \({keys}\) and V \({values}\) cache types"):
        plan(latent, "8xH200", cache_type_k=keys, cache_type_v=values)
    plan(latent, "8xH200", cache_type_k="q8_0", cache_type_v="q8_0")
    plan(latent, "8xH200", version="b9200", cache_type_k=keys, cache_type_v=values, flash_attn="on")
    plan(wide_model("minicpm3-4b")[0], cache_type_k="f16", cache_type_v="f32")  # keeps every head


def test_types_whose_blocks_do_not_divide_a_head_are_refused() -> None:
    """80 elements are no multiple of 32 (llama_init_from_model)."""
    odd = model(80, 80, 8)
    with pytest.raises(BadInput, match="K cache type q8_0 with block size 32 does not divide n_embd_head_k=80"):
        plan(odd, cache_type_k="q8_0")
    with pytest.raises(BadInput, match="V cache type q4_0 with block size 32 does not divide n_embd_head_v=80"):
        plan(odd, cache_type_v="q4_0")
    plan(odd, cache_type_k="q8_0", flash_attn="off")


def test_keys_without_a_kernel_turn_it_off() -> None:
    """Of values in that type nothing but flash attention makes sense: it stays on, and runs on the host."""
    usual = model(128, 128, 8)
    assert is_on(usual, cache_type_k="q4_0")
    assert not is_on(usual, cache_type_k="iq4_nl")
    assert is_on(usual, cache_type_k="iq4_nl", cache_type_v="iq4_nl")
    on_host = "attention runs on the host"
    assert not any(on_host in note for note in plan(LLAMA, cache_type_k="iq4_nl").warnings)
    assert any(on_host in note for note in plan(LLAMA, cache_type_k="iq4_nl", flash_attn="on").warnings)
