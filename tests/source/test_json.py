"""JSON of untrusted files."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner import jsonfile
from kvplanner.errors import BadInput
from kvplanner.source.resolve import open_model

WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "broken JSON on line 1"),
    "list": (b"[1]", "JSON list where an object"),
    "text": (b'"x"', "JSON string where an object"),
    "null": (b"null", "JSON constant where an object"),
    "cut off": (b'{\n "hidden_size": 1,\n "layers": [1,', "line 3, column .*after the field 'layers'"),
    "bad value": (b'{\n "a": 1,\n "hidden_size": nope\n}', "line 3, column .*after the field 'hidden_size'"),
    "key twice": (b'{"a": {"x": 1,\n "x": 2}}', "field 'x' stands twice .*line 2"),
    "NaN": (b'{"a":\n NaN}', "NaN is not JSON on line 2"),
    "Infinity": (b'{"a": -Infinity}', "Infinity is not JSON"),
    "deep lists": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "deep objects": (b'{"a":' * 90_000 + b"1" + b"}" * 90_000, "nested too deeply"),
    "invalid UTF-8": (b'{\n"a": "\xff"}', "invalid UTF-8 on line 2"),
    "huge number": (b'{"a": ' + b"9" * 5000 + b"}", "more digits"),
    "many lists": (b'{"a":[' + b"[]," * 300_000 + b"[]]}", "more than 200,000"),
    "many numbers": (b'{"a":[' + b"1," * 1_200_000 + b"1]}", "values"),
    "trailing": (b"{} {}", "extra data"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_json_names_place_and_remedy(case: str, tmp_path: Path) -> None:
    data, words = WRONG[case]
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=words) as caught:
        open_model(str(path))
    assert str(path) in caught.value.where
    assert caught.value.remedy


def test_too_large_a_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadInput, match="at most 8,000,000"):
        open_model(str(path))


def test_a_byte_order_mark_does_no_harm() -> None:
    assert jsonfile.parse_object(b'\xef\xbb\xbf{"a": 1}', "x") == {"a": 1}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=5))
def test_valid_json_is_read_as_python_reads_it(value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    assert jsonfile.parse_object(data, "x") == value


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_any_bytes_give_an_object_or_an_error(data: bytes) -> None:
    with suppress(BadInput):
        assert isinstance(jsonfile.parse_object(data, "x"), dict)
