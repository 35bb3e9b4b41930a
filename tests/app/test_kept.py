"""Lists that the window keeps are read without it, and a broken one is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplanner import kept


@pytest.mark.parametrize("content", ["{", "[]", '{"recent_models": "x"}', '{"recent_models": [1]}', "{}", None])
def test_a_broken_list_is_none(own_data_folder: Path, content: str | None) -> None:
    if content is not None:
        own_data_folder.mkdir(parents=True, exist_ok=True)
        (own_data_folder / "settings.json").write_text(content)
    assert kept.texts(kept.RECENT_MODELS) == ()


def test_a_list_is_read(own_data_folder: Path) -> None:
    own_data_folder.mkdir(parents=True, exist_ok=True)
    kept.settings_file().write_text('{"starred_models": ["a/b", "c"]}')
    assert kept.texts(kept.STARRED_MODELS) == ("a/b", "c")
