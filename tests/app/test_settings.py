"""Settings survive broken files, strange values and full disks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from kvplanner.app import settings as s
from kvplanner.app import storage
from kvplanner.app.storage import read_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda c: st.lists(c) | st.dictionaries(st.text(), c),
)


def test_values_are_read_back(qtbot: QtBot, own_data_folder: Path) -> None:
    first = s.Settings()
    first.set(s.THEME, "dark")
    first.remember(s.RECENT_MODELS, "a")
    first.remember(s.RECENT_MODELS, "b")
    first.remember(s.RECENT_MODELS, "a")
    again = s.Settings()
    assert again.get(s.THEME) == "dark"
    assert again.get(s.RECENT_MODELS) == ["a", "b"]


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00\xff", "nul", '{"theme": "d'])
def test_a_broken_file_is_put_aside_and_defaults_hold(qtbot: QtBot, own_data_folder: Path, content: str) -> None:
    path = own_data_folder / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    settings = s.Settings()
    assert settings.broken == path.with_suffix(".broken.json")
    assert settings.get(s.THEME) == "system"
    settings.set(s.THEME, "light")
    assert s.Settings().get(s.THEME) == "light"
    assert path.with_suffix(".broken.json").read_text(encoding="utf-8") == content


def test_values_of_a_wrong_type_count_as_absent_and_unknown_fields_are_kept(
    qtbot: QtBot, own_data_folder: Path
) -> None:
    path = own_data_folder / "settings.json"
    storage.write(
        path, json.dumps({"theme": "pink", "unit": 3, "advanced_open": 1, "recent_models": [1], "later": [2]})
    )
    settings = s.Settings()
    assert settings.get(s.THEME) == "system"
    assert settings.get(s.UNIT) == "GiB"
    assert settings.get(s.ADVANCED_OPEN) is False
    assert settings.get(s.RECENT_MODELS) == []
    settings.set(s.UNIT, "GB")
    assert (read_object(path) or {})["later"] == [2]


@given(JSON)
def test_any_json_value_is_survived(value: object) -> None:
    for setting in (s.THEME, s.UNIT, s.ADVANCED_OPEN, s.RECENT_FILES):
        if setting.accepts(value):
            assert type(value) is type(setting.default)


def test_a_folder_that_cannot_be_written_is_no_crash(qtbot: QtBot, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("x")
    settings = s.Settings(blocker / "settings.json")
    settings.set(s.THEME, "dark")
    assert settings.get(s.THEME) == "dark"
    assert not settings.save()


def test_atomic_write_leaves_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    storage.write(path, "1")
    storage.write(path, "2")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "2"
