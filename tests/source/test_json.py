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
from tests.source.wrong_json import WRONG


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


def test_only_a_config_may_hold_what_python_writes_beside_json() -> None:
    """transformers saves `time_step_limit: [0.0, Infinity]`, and reads it."""
    for data, words in ((b'{"a":\n NaN}', "NaN is not JSON on line 2"), (b'{"a": -Infinity}', "Infinity is not JSON")):
        with pytest.raises(BadInput, match=words):
            jsonfile.parse_object(data, "x")
    assert jsonfile.parse_config(b'{"a": [0.0, Infinity]}', "x") == {"a": [0.0, float("inf")]}
    with pytest.raises(BadInput, match="JSON list"):
        jsonfile.parse_config(b"[NaN]", "x")


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
