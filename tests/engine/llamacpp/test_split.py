"""-sm tensor and -sm row: what each GPU holds, and what llama.cpp refuses. The oracle pins the sizes of the former."""

from __future__ import annotations

import pytest

from kvplanner.engine.llamacpp.builds import build_of
from kvplanner.engine.llamacpp.settings import ContextSettings, PlaceSettings, Settings
from kvplanner.engine.llamacpp.sizes import Cards, Sizer
from kvplanner.engine.llamacpp.split import Segment, slices
from kvplanner.errors import BadInput
from kvplanner.units import GIB
from tests.engine.llamacpp.kit import LLAMA, plan, size
from tests.oracle.llamacpp.cases import model_of

_HOST = 1  # devices of a plan after its GPUs


def test_cuts_are_rounded_down_and_the_last_gpu_takes_the_rest() -> None:
    assert slices([Segment(2880, 1, 128)], (), 2, 0) == (1408, 1472)
    assert slices([Segment(2880, 1, 128)], (), 2, 1) == (1472, 1408)
    assert slices([Segment(1024, 3, 256)], (3.0, 1.0), 2, 0) == (2304, 768)
    # Two groups of heads for four GPUs: two of them have none.
    assert slices([Segment(2048, 1, 1024)], (), 4, 0) == (0, 1024, 0, 1024)


def test_every_gpu_has_a_part_of_every_layer_and_the_whole_compute_buffer() -> None:
    one = plan(LLAMA, "1x24GiB", ctx_size=8192, fit="off")
    two = plan(LLAMA, "2x24GiB", ctx_size=8192, split_mode="tensor", tensor_split="3,1")
    first, second = two.devices[:-_HOST]
    assert first.role == second.role == "part of layers 0-31 and output"
    assert size(first, "kv_cache") == 3 * size(second, "kv_cache") == size(one.devices[0], "kv_cache") * 3 // 4
    assert size(first, "compute") == size(second, "compute") == size(one.devices[0], "compute")
    assert two.kv_cache is not None
    assert two.kv_cache.tokens == 8192
    assert any("not implemented for SPLIT_MODE_TENSOR" in note for note in two.warnings)


def test_rows_of_matrices_go_by_memory_and_the_rest_with_its_layer() -> None:
    """ggml_cuda_mul_mat's split buffers, as they were until pull request 24216: rows at multiples of 128 (64 before
    Volta), by the GPUs' whole memory."""
    model, tensors = model_of(LLAMA)
    settings = Settings(build_of("b9300"), ContextSettings(8192, 1, unified=False), PlaceSettings(split_mode="row"))
    cards = Cards((24 * GIB, 8 * GIB), (24 * GIB, 8 * GIB), (128, 64))
    sizes = Sizer(model, tensors, cards).sizes(settings)
    whole = Sizer(model, tensors, Cards((24 * GIB,))).sizes(settings)
    held = sum(sizes.placed.device_bytes)
    # Of 128,256 rows of the output the first GPU has 96,128, a multiple of 128 below three quarters.
    output = next(t for t in tensors.outputs if t.name == "output.weight")
    assert 128256 * 3 // 4 // 128 * 128 == 96128
    assert abs(held - whole.placed.device_bytes[0]) <= 256 * 1024
    assert abs(sizes.placed.device_bytes[0] / held - 0.75) < 0.001
    assert output.bytes * 96128 // 128256 < sizes.placed.device_bytes[0]
    assert not sizes.compute.pipelined
    assert 7 * sizes.kv[0] == 25 * sizes.kv[1]  # whole layers, of which the output is one


@pytest.mark.parametrize(
    ("model", "mode", "flash", "device", "version", "message"),
    [
        ("deepseek-v3-q4km", "tensor", "auto", "all", None, "not implemented for architecture 'deepseek2'"),
        ("mamba2-7b-q8", "tensor", "auto", "all", None, "not implemented for architecture 'mamba2'"),
        (LLAMA, "tensor", "off", "all", None, "requires flash_attn"),
        (LLAMA, "tensor", "auto", "none", None, "needs >= 1 devices"),
        (LLAMA, "tensor", "auto", "all", "b8200", "no split mode tensor"),
        (LLAMA, "row", "auto", "all", None, "does not support split buffers"),
    ],
)
def test_what_llama_cpp_refuses(
    model: str, mode: str, flash: str, device: str, version: str | None, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        plan(model, "2x24GiB", version=version, split_mode=mode, flash_attn=flash, device=device)
