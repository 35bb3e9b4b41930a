"""GGUF headers: equal to the gguf package's own reading, in all versions and byte orders, refused when wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.ggml import REMOVED, TYPES
from kvplanner.source.gguf.header import GgufHeader, parse_header, read_header, read_metadata, split_parts
from kvplanner.source.gguf.model import kind_of, open_gguf
from kvplanner.source.gguf.window import RUN, Window
from tests.source.kit import Bytes
from tests.source.make_gguf import (
    ARRAY,
    BOOL,
    F32,
    F32_TYPE,
    F64,
    I8,
    I16,
    I64,
    Q4_K,
    Q8_0,
    STRING,
    U8,
    U16,
    U32,
    U64,
    header,
    llama_file,
    llama_pairs,
    llama_tensors,
    write,
    write_split,
)  # fmt: skip
from tests.source.wrong_gguf import WRONG, tensors


def parse(data: bytes, **more: bool) -> GgufHeader:
    return parse_header(Bytes(data), **more)


# ---- against the gguf package ----


def test_every_type_that_the_package_writes_has_its_size_there(tmp_path: Path) -> None:
    import gguf
    import numpy

    path = tmp_path / "types.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    written = []
    for type_ in gguf.GGMLQuantizationType:
        block, size = gguf.GGML_QUANT_SIZES[type_]
        # The package gives Q8_1 a size that no file has; neither it nor Q8_K occurs in files.
        if type_.name in ("Q8_1", "Q8_K"):
            continue
        data = numpy.zeros((3, 2 * size), numpy.uint8)
        writer.add_tensor(f"blk.0.{type_.name}.weight", data, raw_shape=(3, 2 * size), raw_dtype=type_)
        written.append((type_, block, size))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    ours = read_header(path)
    assert len(ours.tensors) == len(theirs) == len(written)
    assert len(written) >= 30
    for tensor in ours.tensors:
        other = theirs[tensor.name]
        assert tensor.bytes == int(other.n_bytes), tensor.name
        assert list(tensor.shape) == [int(size) for size in other.shape]
        assert tensor.type.name == other.tensor_type.name
        assert ours.data_start + tensor.offset == int(other.data_offset)


def test_our_table_of_types_holds_all_of_the_packages() -> None:
    import gguf

    for type_ in gguf.GGMLQuantizationType:
        block, size = gguf.GGML_QUANT_SIZES[type_]
        assert TYPES[type_.value].name == type_.name
        assert TYPES[type_.value].block == block
        assert TYPES[type_.value].bytes == size or type_.name == "Q8_1"


@pytest.mark.slow
def test_metadata_equals_the_packages(tmp_path: Path) -> None:
    import gguf
    import numpy

    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("x.u8", 255)
    writer.add_int8("x.i8", -128)
    writer.add_uint16("x.u16", 65535)
    writer.add_int16("x.i16", -32768)
    writer.add_uint32("x.u32", 2**32 - 1)
    writer.add_int32("x.i32", -(2**31))
    writer.add_float32("x.f32", 1.5)
    writer.add_uint64("x.u64", 2**64 - 1)
    writer.add_int64("x.i64", -(2**63))
    writer.add_float64("x.f64", 1e300)
    writer.add_bool("x.yes", True)
    writer.add_bool("x.no", False)
    writer.add_string("x.text", "größe 模型")
    writer.add_array("x.ints", [1, 2, 3])
    writer.add_array("x.floats", [1.5, 2.5])
    writer.add_array("x.bools", [True, False, True])
    writer.add_array("x.texts", ["a", "bc", "größe"])
    writer.add_token_list([f"t{number}" for number in range(5000)])
    writer.add_token_scores([0.5] * 5000)
    writer.add_tensor("token_embd.weight", numpy.zeros((4, 8), numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours = read_header(path)
    for key, field in gguf.GGUFReader(path).fields.items():
        if key.startswith("GGUF."):
            continue
        value = field.contents()
        if key.startswith("tokenizer."):
            assert ours.lengths[key] == len(value)
            assert key not in ours.metadata
        else:
            assert ours.metadata[key] == (tuple(value) if isinstance(value, list) else value), key


def test_big_endian_files_of_the_package(tmp_path: Path) -> None:
    import gguf
    import numpy

    path = tmp_path / "big.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_block_count(7)
    writer.add_array("x.ints", [1, 2, 3])
    writer.add_token_list(["a", "b"] * 3000)
    writer.add_tensor("token_embd.weight", numpy.zeros((4, 8), numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours = read_header(path)
    assert ours.order == "big"
    assert ours.metadata["llama.block_count"] == 7
    assert ours.metadata["x.ints"] == (1, 2, 3)
    assert ours.lengths["tokenizer.ggml.tokens"] == 6000
    assert ours.tensors[0].shape == (8, 4)


# ---- versions, orders, alignment ----


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("big", [False, True])
def test_all_versions_and_byte_orders(version: int, big: bool) -> None:
    pairs = [
        *llama_pairs(tokens=5000), ("x.many", (ARRAY, I16), list(range(-2, 60))), ("x.yes", BOOL, 1),
        ("x.u8", U8, 9), ("x.i8", I8, -9), ("x.u16", U16, 9), ("x.i64", I64, -(2**40)), ("x.u64", U64, 2**40),
        ("x.f64", F64, 0.25), ("x.f32", F32, 0.25), ("x.long", (ARRAY, U8), [1] * 5000),
    ]  # fmt: skip
    data, size = header(pairs, llama_tensors(tokens=5000), version=version, big=big)
    ours = parse(data + bytes(size))
    assert (ours.version, ours.order) == (version, "big" if big else "little")
    assert ours.metadata["x.many"] == tuple(range(-2, 60))
    assert ours.metadata["x.yes"] is True
    assert ours.metadata["x.i64"] == -(2**40)
    assert ours.metadata["x.f64"] == 0.25
    assert "x.long" not in ours.metadata
    assert ours.lengths["x.long"] == 5000
    assert [tensor.name for tensor in ours.tensors] == [name for name, _, _ in llama_tensors()]
    assert ours.data_start == len(data)
    assert ours.padded_bytes == size


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignment(alignment: int) -> None:
    pairs = [*llama_pairs(), ("general.alignment", U32, alignment)]
    data, size = header(pairs, llama_tensors(), alignment=alignment)
    assert parse(data + bytes(size)).alignment == alignment


@pytest.mark.slow
def test_a_lists_reading_stops_before_the_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(llama_file(tokens=200_000))
    ours = read_metadata(path)
    assert ours.metadata["llama.context_length"] == 8192
    assert "tokenizer.ggml.token_type" not in ours.lengths


def test_a_recipe_that_is_written_last_is_found(tmp_path: Path) -> None:
    first, *rest = [pair for pair in llama_pairs(tokens=50_000) if pair[0] != "general.file_type"]
    path = write(tmp_path / "m.gguf", [first, *rest, ("general.file_type", U32, 15)], llama_tensors())
    assert read_metadata(path).metadata["general.file_type"] == 15


# ---- wrong ones ----


@pytest.mark.parametrize("case", WRONG)
def test_wrong_headers_are_refused_with_a_reason(case: str) -> None:
    data, words = WRONG[case]
    with pytest.raises(BadInput, match=words) as caught:
        parse(data)
    assert caught.value.where == "test.safetensors"
    assert caught.value.remedy


@pytest.mark.parametrize("number", [*sorted(REMOVED), 97, 139, 2**32 - 1])
def test_types_of_forks_and_of_the_past_are_not_guessed(number: int) -> None:
    with pytest.raises(NotModelled, match=f"has the type {number}"):
        parse(tensors(("a", [256], number, 0)))


def test_truncated_at_every_byte() -> None:
    data, size = header(llama_pairs(layers=1, tokens=3), llama_tensors(layers=1, tokens=3))
    parse(data + bytes(size))
    for length in range(len(data)):
        with pytest.raises(BadInput):
            parse(data[:length])


def test_a_truncated_download_says_how_much_is_missing() -> None:
    data, size = header(llama_pairs(), llama_tensors())
    with pytest.raises(BadInput, match="end 100 bytes before"):
        parse(data + bytes(size - 100))
    assert parse(data + bytes(size - 100), allow_truncated=True).missing_bytes == 100


@given(st.binary(max_size=40), st.integers(0, 3000), st.integers(1, 60))
@settings(max_examples=400, deadline=None)
def test_damage_gives_an_error_or_a_header(patch: bytes, at: int, length: int) -> None:
    data = bytearray(llama_file(layers=1, tokens=30))
    data[at : at + length] = patch
    try:
        ours = parse(bytes(data))
    except (BadInput, NotModelled):
        return
    assert ours.data_start + ours.tensor_bytes <= len(data) + 32 * len(ours.tensors)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([F32_TYPE, Q8_0, Q4_K])), max_size=12),
    st.integers(1, 3),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_every_valid_table_is_read(rows: list[tuple[int, int]], version: int, big: bool) -> None:
    tensors = [(f"t{n}.weight", [256 * size, 3, 2, 1][:size], kind) for n, (size, kind) in enumerate(rows)]
    data, size = header([], tensors, version=version, big=big)
    ours = parse(data + bytes(size))
    assert [(t.name, list(t.shape)) for t in ours.tensors] == [(name, shape) for name, shape, _ in tensors]


# ---- split files and other kinds ----


def test_split_files_open_by_any_part(tmp_path: Path) -> None:
    whole = open_gguf(write(tmp_path / "whole.gguf", llama_pairs(4), llama_tensors(4)))
    parts = write_split(tmp_path, "big", llama_pairs(4), llama_tensors(4), 5)
    assert split_parts(parts[3]) == tuple(parts)
    for part in parts:
        model = open_gguf(part)
        assert model.id == "big"
        assert model.inventory == whole.inventory
        assert model.stored == whole.stored


def test_metadata_alone_in_the_first_part(tmp_path: Path) -> None:
    write(tmp_path / "m-00001-of-00002.gguf", [*llama_pairs(), ("split.count", U16, 2), ("split.no", U16, 0)], [])
    write(tmp_path / "m-00002-of-00002.gguf", [("split.count", U16, 2), ("split.no", U16, 1)], llama_tensors())
    assert open_gguf(tmp_path / "m-00001-of-00002.gguf").spec.num_layers == 2


def test_wrong_splits_are_refused(tmp_path: Path) -> None:
    parts = write_split(tmp_path, "big", llama_pairs(4), llama_tensors(4), 3)
    held = parts[1].read_bytes()
    parts[1].unlink()
    with pytest.raises(BadInput, match="is missing; the model has 3 parts"):
        open_gguf(parts[0])
    parts[1].write_bytes(parts[2].read_bytes())
    with pytest.raises(BadInput, match="says that it is part 2"):
        open_gguf(parts[0])
    parts[1].write_bytes(held)
    alone = tmp_path / "alone.gguf"
    alone.write_bytes(parts[0].read_bytes())
    with pytest.raises(BadInput, match="in 3 parts, and 1 are at hand"):
        open_gguf(alone)


@pytest.mark.parametrize(
    ("pairs", "tensors", "kind", "words"),
    [
        ([("general.architecture", STRING, "clip")], [("v.x.weight", [8], F32_TYPE)], "projector", "projector"),
        ([("general.architecture", STRING, "x"), ("general.type", STRING, "mmproj")], [], "projector", "projector"),
        (
            [("general.architecture", STRING, "llama"), ("general.type", STRING, "adapter"),
             ("general.base_model.0.name", STRING, "Base 7B")],
            [("blk.0.attn_q.weight.lora_a", [8], F32_TYPE)], "adapter", "Base 7B",
        ),
        ([("general.type", STRING, "imatrix")], [("blk.0.in_sum2", [8], F32_TYPE)], "imatrix", "importance matrix"),
        (llama_pairs(), [], "vocabulary", "without tensors"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_recognised(tmp_path: Path, pairs: Any, tensors: Any, kind: str, words: str) -> None:
    path = write(tmp_path / "x.gguf", pairs, tensors)
    assert kind_of(read_header(path)) == kind
    with pytest.raises(BadInput, match=words):
        open_gguf(path)


def test_the_recipe_and_the_bytes(tmp_path: Path) -> None:
    model = open_gguf(write(tmp_path / "Small-Q8_0.gguf", llama_pairs(), llama_tensors()))
    assert model.id == "Small-Q8_0"
    assert model.weight_format == "Q8_0"
    assert model.stored is not None
    assert model.inventory is not None
    assert model.stored.value == model.inventory.stored_bytes()
    assert model.parameters == model.inventory.parameters()


# ---- strings that are stepped over ----


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("order", ["little", "big"])
def test_strings_of_any_length_are_stepped_over_to_the_byte(order: Literal["little", "big"], wide: bool) -> None:
    """Runs of short ones at once, and what holds zeros, is long, or lies across the pieces that are read."""
    lengths = [*range(60), *([7] * 200), 0, 0, 255, 256, 257, 70_000, *([5] * RUN), 40, 41, *([3] * (RUN - 1))] * 3
    size, what = 8 if wide else 4, "an array"
    strings = b"".join(
        length.to_bytes(size, order) + bytes((number * 7 + place) % 3 for place in range(length))
        for number, length in enumerate(lengths)
    )
    for count in (0, 1, RUN - 1, RUN, RUN + 1, 3 * RUN, len(lengths)):
        expected = sum(size + length for length in lengths[:count])
        for piece in (1 << 10, 64 << 10):
            window = Window(Bytes(strings + b"rest of the file"), order)
            window._next_read = window._largest_read = piece
            window.skip_strings(count, size, what)
            assert window.position == expected
    with pytest.raises(BadInput, match="bytes earlier"):
        Window(Bytes(strings[:-1]), order).skip_strings(len(lengths), size, what)


def test_a_kind_is_found_without_reading_the_vocabulary(tmp_path: Path) -> None:
    pairs = [pair for pair in llama_pairs(2, 5000) if pair[0] != "general.file_type"]
    path = write(tmp_path / "a.gguf", [*pairs, ("general.file_type", U32, 7)], llama_tensors(2, 5000))
    assert read_metadata(path).metadata["general.file_type"] == 7
    assert "tokenizer.ggml.tokens" not in read_metadata(path, recipe=False).lengths


_OPENED: Final = """
import sys
from pathlib import Path
from kvplanner.app.opening import classify
from kvplanner.catalog import gpus
from kvplanner.deadline import in_time
from kvplanner.engine.llamacpp.planner import ENGINE
from kvplanner.engine.request import PlanRequest
path = Path(sys.argv[1])
assert classify(path).what == "model"
from kvplanner.source.resolve import open_model
model = in_time(lambda: open_model(str(path)), 60, lambda: None)
assert ENGINE.plan(PlanRequest(model, gpus.machine("2xRTX 4090"), "llamacpp")).fits
print(*sys.modules)
"""


def test_the_first_file_that_is_opened_loads_little(tmp_path: Path) -> None:
    """Modules are a third of what opening it takes."""
    path = write(tmp_path / "a.gguf", llama_pairs(), llama_tensors())
    done = subprocess.run([sys.executable, "-c", _OPENED, str(path)], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    heavy = {"numpy", "datetime", "logging", "concurrent.futures", "subprocess", "hashlib", "kvplanner.packfile"}
    assert not heavy & set(loaded)
    source = [name for name in loaded if name.startswith("kvplanner.source")]
    assert len(source) <= 12, "what the first file does not need is loaded later"
