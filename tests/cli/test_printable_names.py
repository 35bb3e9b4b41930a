"""Names that files bring along reach no terminal and no window as they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.printable import printable
from kvplanner.source.resolve import open_model
from kvplanner.source.stores.local import Places, scan
from tests.cli.kit import Terminal
from tests.source.checkpoints_dense import llama
from tests.source.kit import CONFIG
from tests.source.make_models import write_folder

HOSTILE = "e\x1b[31m\nx\u202e\x07"
SHOWN = "e␛[31m␊x�␇"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = tmp_path / HOSTILE
    folder.mkdir()
    write_folder(folder, CONFIG, llama(CONFIG))
    return folder


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Llama-3.1 8B", "Llama-3.1 8B"),
        ("Überspaß ≈ 模型", "Überspaß ≈ 模型"),
        ("12\u00a0GiB", "12\u00a0GiB"),
        (HOSTILE, SHOWN),
        (os.fsdecode(b"b\xffc"), "b�c"),
        ("a\u2028b\tc", "a�b␉c"),
    ],
)
def test_what_has_no_shape_is_given_one(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_printable_text_is_one_line_that_can_be_written(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(c) < 32 or ord(c) == 127 for c in shown)
    assert shown.encode().decode() == shown
    assert printable(shown) == shown


def test_a_models_names_are_printable(hostile: Path) -> None:
    model = open_model(str(hostile))
    assert model.id == SHOWN
    assert SHOWN in model.source_detail
    (found,) = scan(Places(folders=(hostile.parent,)))
    assert found.name.endswith(SHOWN)
    assert open_model(found.key) == model


@pytest.mark.parametrize("command", [["plan"], ["plan", "--markdown"], ["plan", "--explain"], ["inspect"]])
def test_no_report_brings_a_name_to_the_terminal_as_it_is(
    terminal: Terminal, hostile: Path, command: list[str]
) -> None:
    gpu = ["--gpu", "H100"] if command[0] == "plan" else []
    ran = terminal(*command, str(hostile), *gpu)
    assert not ran.err
    assert not any(c in ran.out for c in "\x1b\x07\u202e")
    (hostile / "config.json").write_text("{")
    broken = terminal(*command, str(hostile), *gpu)
    assert broken.status == 2
    assert len(broken.err.splitlines()) == 1
    assert not any(c in broken.err for c in "\x1b\x07\u202e")
