"""Headers of safetensors files: equal to the reference reader's, and refused with a reason where they are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.errors import BadInput
from kvplanner.source.checkpoint.safetensors import DTYPE_BITS, Header, parse_header, read_header
from tests.source.kit import Bytes
from tests.source.wrong_safetensors import GOOD, WRONG, encode, entry


def parse(data: bytes, **more: bool) -> Header:
    return parse_header(Bytes(data), **more)


def test_equal_to_the_reference_for_every_dtype() -> None:
    table: dict[str, Any] = {"__metadata__": {"format": "pt", "é": 'ü\n"quoted"'}}
    offset = 0
    for dtype, bits in DTYPE_BITS.items():
        for shape in ([], [8], [3, 16], [2, 1, 8], [0, 5]):
            elements = 1
            for size in shape:
                elements *= size
            if elements * bits % 8:
                continue
            table[f"{dtype}.{len(shape)}.{elements}"] = entry(offset, offset + elements * bits // 8, dtype, shape)
            offset += elements * bits // 8
    data = encode(table, offset)
    theirs = dict(reference.deserialize(data))
    ours = parse(data)
    assert {tensor.name for tensor in ours.tensors} == set(theirs)
    for tensor in ours.tensors:
        assert list(tensor.shape) == theirs[tensor.name]["shape"]
        assert tensor.dtype == theirs[tensor.name]["dtype"]
        assert tensor.bytes == len(theirs[tensor.name]["data"])
    assert ours.metadata == table["__metadata__"]
    assert ours.data_bytes == offset


def test_equal_to_the_reference_on_what_its_writer_makes(tmp_path: Path) -> None:
    import numpy
    from safetensors.numpy import save_file

    dtypes = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8", "int64": "I64", "bool": "BOOL"}
    tensors = {f"layers.{name}.weight": numpy.zeros((4, len(name)), name) for name in dtypes}
    path = tmp_path / "m.safetensors"
    save_file(tensors, path, metadata={"format": "np"})
    ours = read_header(path)
    assert {(t.name, t.dtype, t.shape, t.bytes) for t in ours.tensors} == {
        (f"layers.{name}.weight", dtype, (4, len(name)), tensors[f"layers.{name}.weight"].nbytes)
        for name, dtype in dtypes.items()
    }
    assert ours.metadata == {"format": "np"}
    assert ours.header_bytes + ours.data_bytes == path.stat().st_size


def test_any_valid_spelling_is_read() -> None:
    text = b'{ "b" :\n{"data_offsets" : [4, 8], "shape":[ 1 ] ,"dtype":"F32"},"a":{"shape":[4],"dtype":"U8",' \
           b'"data_offsets":[0,4]} , "\\u00e9\\"": {"dtype":"U8","shape":[0],"data_offsets":[8,8]} }   '  # fmt: skip
    header = parse(encode(text, 8))
    assert [(t.name, t.shape, t.bytes) for t in header.tensors] == [("b", (1,), 4), ("a", (4,), 4), ('é"', (0,), 0)]


def test_an_empty_file_of_tensors() -> None:
    assert parse(encode({})).tensors == ()
    assert parse(encode({"__metadata__": {}})).metadata == {}


def test_only_the_header_is_read() -> None:
    source = Bytes(encode({"a": entry(0, 1 << 20)}, 1 << 20))
    parse_header(source)
    assert source.read_upto < 200


@pytest.mark.parametrize("case", WRONG)
def test_wrong_headers_are_refused_with_a_reason(case: str) -> None:
    data, words = WRONG[case]
    with pytest.raises(BadInput, match=words) as caught:
        parse(data)
    assert caught.value.where == "test.safetensors"
    assert caught.value.remedy


def test_truncated_at_every_byte() -> None:
    data = encode({"__metadata__": {"format": "pt"}, **GOOD}, 12)
    parse(data)
    for length in range(len(data)):
        with pytest.raises(BadInput):
            parse(data[:length])


def test_a_truncated_download_can_be_looked_at() -> None:
    header = parse(encode(GOOD, 5), allow_truncated=True)
    assert header.missing_bytes == 7
    assert header.data_bytes == 12


@pytest.mark.slow
def test_too_many_tensors_are_refused() -> None:
    one = b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    text = b"{" + b",".join(one % number for number in range(200_001)) + b"}"
    with pytest.raises(BadInput, match="more than 200,000"):
        parse(encode(text))


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20).filter(
    lambda n: n != "__metadata__"
)
tables = st.dictionaries(
    names,
    st.tuples(
        st.sampled_from(sorted(set(DTYPE_BITS) - {"F4", "F6_E2M3", "F6_E3M2"})), st.lists(st.integers(0, 5), max_size=4)
    ),
)  # fmt: skip


@given(tables, st.booleans(), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_every_valid_header_is_read_as_the_reference_reads_it(
    table: dict[str, tuple[str, list[int]]], spaced: bool, padding: int
) -> None:
    offset = 0
    full: dict[str, Any] = {}
    for name, (dtype, shape) in table.items():
        bytes_ = DTYPE_BITS[dtype] // 8
        for size in shape:
            bytes_ *= size
        full[name] = entry(offset, offset + bytes_, dtype, shape)
        offset += bytes_
    text = json.dumps(full, indent=1 if spaced else None, separators=None if spaced else (",", ":")).encode()
    data = encode(text + b" " * padding, offset)
    ours = parse(data)
    theirs = {name: (value["dtype"], value["shape"]) for name, value in reference.deserialize(data)}
    assert {t.name: (t.dtype, list(t.shape)) for t in ours.tensors} == theirs


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(1, 40))
@settings(max_examples=400, deadline=None)
def test_damage_gives_an_error_or_a_header_that_the_reference_accepts(patch: bytes, at: int, length: int) -> None:
    data = bytearray(encode({"__metadata__": {"format": "pt"}, **GOOD, "c": entry(12, 12, "BF16", [0, 3])}, 12))
    data[at : at + length] = patch
    try:
        ours = parse(bytes(data))
    except BadInput:
        return
    theirs = {name: (value["dtype"], value["shape"]) for name, value in reference.deserialize(bytes(data))}
    assert {t.name: (t.dtype, list(t.shape)) for t in ours.tensors} == theirs
