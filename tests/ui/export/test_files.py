"""Exports of the window: written in the background, whole or not at all, and told either way."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from kvplanner import files as whole
from kvplanner.engine.plan import Plan
from kvplanner.errors import BadInput
from kvplanner.report import schema
from kvplanner.report import text as report
from kvplanner.report.csv import csv_text
from kvplanner.report.words import Unit
from kvplanner.ui.window.commands import export as main_export
from kvplanner.ui.window.window import MainWindow
from tests import sample_plans
from tests.patience import LONG_S

pytestmark = pytest.mark.slow

KINDS = ("png", "svg", "pdf", "csv", "json", "md")


def said(window: MainWindow) -> str:
    strips = window.centre.messages.strips
    return strips[-1].message.text if strips else ""


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_written_and_told(window: MainWindow, qtbot: QtBot, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"plan.{kind}"
    window.exports.write_to(path)
    qtbot.waitUntil(lambda: said(window) == f"Exported plan.{kind}")
    content = path.read_bytes()
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF-1.", "csv": b"device,", "json": b"{", "md": b"**"}
    assert content.startswith(starts[kind])
    plan = window.document.plan
    assert plan is not None
    if kind == "json":
        assert json.loads(content) == json.loads(json.dumps(schema.to_json(plan)))
    if kind == "csv":
        assert content.decode() == csv_text(plan, window.services.unit())
        assert sum(int(r["bytes"]) for r in csv.DictReader(io.StringIO(content.decode())) if r["state"] == "in use")
    if kind == "md":
        assert content.decode() == report.markdown(plan, unit=window.services.unit())


@pytest.mark.parametrize("kind", KINDS)
def test_the_window_draws_and_writes_nothing_itself(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    seen: list[threading.Thread] = []
    real = main_export.renderer

    def noted(kind: str, plan: Plan, unit: Unit) -> Callable[[], bytes]:
        render = real(kind, plan, unit)

        def work() -> bytes:
            seen.append(threading.current_thread())
            return render()

        return work

    def written(path: Path, content: bytes) -> None:
        seen.append(threading.current_thread())

    monkeypatch.setattr(main_export, "renderer", noted)
    monkeypatch.setattr(main_export, "write", written)
    window.exports.write_to(tmp_path / f"plan.{kind}")
    qtbot.waitUntil(lambda: said(window).startswith("Exported"))
    assert len(seen) == 2
    assert threading.main_thread() not in seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_is_not_there_is_told(window: MainWindow, qtbot: QtBot, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "missing" / f"plan.{kind}"
    window.exports.write_to(path)
    qtbot.waitUntil(lambda: "was not written" in said(window))
    assert str(path) in said(window)
    assert "Choose another folder or name" in said(window)
    assert not path.parent.exists()


def test_a_full_disk_leaves_the_old_file_and_says_so(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.png"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    window.exports.write_to(path)
    qtbot.waitUntil(lambda: "no space left" in said(window))
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["plan.png"]


def test_an_unknown_ending_is_refused(window: MainWindow, tmp_path: Path) -> None:
    window.exports.write_to(tmp_path / "plan.docx")
    assert ".png" in said(window)
    assert not (tmp_path / "plan.docx").exists()


def test_a_window_that_closes_meanwhile_is_not_told(
    open_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay, gone = open_window(), open_window()
    go = threading.Event()
    plan = stay.document.plan
    assert plan is not None

    def slow(kind: str, plan: Plan, unit: Unit) -> Callable[[], bytes]:
        return lambda: b"x" if go.wait(LONG_S) else b""

    monkeypatch.setattr(main_export, "renderer", slow)
    path = tmp_path / "plan.png"
    gone.exports.write_to(path)
    gone.saving._close_answered(gone.document.state)
    qtbot.wait(20)
    go.set()
    qtbot.waitUntil(lambda: path.exists() and not stay.services.jobs.active)
    assert path.read_bytes() == b"x"


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    real, link = tmp_path / "real.svg", tmp_path / "link.svg"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    main_export.write(link, b"new")
    assert real.read_bytes() == b"new"
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert {p.name for p in tmp_path.iterdir() if p.is_file()} == {"real.svg", "link.svg"}


def test_a_move_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("old")

    def denied(self: Path, target: Path) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "replace", denied)
    with pytest.raises(BadInput, match="permission denied") as caught:
        main_export.write(path, b"new")
    assert caught.value.where == str(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["plan.csv"]


def test_long_names_are_written(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 120 + ".csv")
    whole.write_whole(path, b"x")
    assert path.read_bytes() == b"x"


def test_text_that_no_encoding_holds_is_exported() -> None:
    plan = sample_plans.fits()
    model = plan.request.model._replace(id="\udcff/weights")
    plan = plan._replace(request=plan.request._replace(model=model))
    for kind in ("csv", "json", "md"):
        assert b"/weights" in main_export.renderer(kind, plan, "GiB")()
