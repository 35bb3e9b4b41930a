"""Settings survive broken files, strange values and full disks."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
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


def test_two_processes_keep_what_both_changed(qtbot: QtBot) -> None:
    first, second = s.Settings(), s.Settings()
    first.set(s.THEME, "dark")
    first.remember(s.RECENT_FILES, "/a")
    first.star(s.STARRED_MODELS, "x")
    second.set(s.UNIT, "GB")
    second.remember(s.RECENT_FILES, "/b")
    second.star(s.STARRED_MODELS, "y")
    first.forget(s.RECENT_FILES, "/a")
    first.remember(s.RECENT_FILES, "/c")
    second.save()
    again = s.Settings()
    assert (again.get(s.THEME), again.get(s.UNIT)) == ("dark", "GB")
    assert again.get(s.RECENT_FILES) == ["/c", "/b"]
    assert again.get(s.STARRED_MODELS) == ["x", "y"]
    assert second.get(s.THEME) == "system", "a window does not change while it is looked at"


def test_a_disk_that_was_full_takes_all_changes_once_there_is_room(
    qtbot: QtBot, own_data_folder: Path, full_disk: Callable[[], AbstractContextManager[None]]
) -> None:
    settings = s.Settings()
    settings.set(s.UNIT, "GB")
    with full_disk():
        settings.set(s.THEME, "dark")
        settings.remember(s.RECENT_FILES, "/a")
        settings.remember(s.RECENT_FILES, "/b")
        assert not settings.save()
        assert settings.get(s.RECENT_FILES) == ["/b", "/a"]
    assert (s.Settings().get(s.UNIT), s.Settings().get(s.THEME)) == ("GB", "system"), "the file is as it was"
    assert [path.name for path in own_data_folder.iterdir()] == ["settings.json"]
    settings.set(s.CALM, True)
    again = s.Settings()
    assert (again.get(s.THEME), again.get(s.RECENT_FILES), again.get(s.CALM)) == ("dark", ["/b", "/a"], True)
