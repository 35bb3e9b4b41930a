"""What opening a path would do is said before it is done, and refusals have reasons."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplanner.app.opening import classify


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a.kvplan.json", "plan"),
        ("config.json", "model"),
        ("model-00001-of-00002.safetensors", "model"),
        ("Q4.gguf", "model"),
        ("model.GGUF", "model"),
        ("pytorch_model.bin", "refused"),
        ("weights.pt", "refused"),
        ("server.log", "log"),
        ("server.txt", "log"),
        ("server.log.1", "log"),
        ("server.log-20261124.gz", "log"),
        ("picture.png", "refused"),
        ("noending", "refused"),
    ],
)
def test_files_are_told_by_their_names(tmp_path: Path, name: str, what: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"{}")
    opening = classify(path)
    assert opening.what == what
    assert name in opening.sentence


def test_folders_are_told_by_what_lies_in_them(tmp_path: Path) -> None:
    assert classify(tmp_path).what == "refused"
    (tmp_path / "config.json").write_text("{}")
    assert classify(tmp_path).what == "model"
    hub = tmp_path / "models--a--b"
    (hub / "snapshots").mkdir(parents=True)
    assert classify(hub).what == "model"


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert classify(tmp_path / "missing").what == "refused"
