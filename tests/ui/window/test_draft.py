"""A draft model named in the window: opened in the background, shown, kept in plan files, told when it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from kvplanner.app import library
from kvplanner.app.planstore import read
from kvplanner.errors import BadInput
from kvplanner.model.model import Model
from kvplanner.ui.setup.option_field import TextField
from kvplanner.ui.window.window import MainWindow

pytestmark = pytest.mark.slow


def name_draft(window: MainWindow, name: str) -> TextField:
    """Type a draft model into the form, as the user does."""
    advanced = window.panel.advanced
    assert advanced is not None
    advanced.toggle.setChecked(True)
    field = advanced.field("speculative_model")
    assert isinstance(field, TextField)
    field.edit.setText(name)
    field.edit.committed.emit(name)
    return field


def drafts(window: MainWindow) -> str:
    """The id of the draft model in the plan, "" for none."""
    plan = window.document.plan
    return plan.request.draft.id if plan is not None and plan.request.draft is not None else ""


def test_a_typed_draft_model_is_opened_and_shown(
    open_window: Callable[..., MainWindow], qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window("Qwen3-8B", gpu="H100")
    before = window.document.plan
    shown, show = list[str](), window.panel.model.show_draft

    def seen(text: str) -> None:
        shown.append(text)
        show(text)

    monkeypatch.setattr(window.panel.model, "show_draft", seen)  # it may be read before anyone looks
    name_draft(window, "Qwen3-0.6B")
    assert window.panel.model.draft.text() == ""
    qtbot.waitUntil(lambda: drafts(window) == "Qwen/Qwen3-0.6B")
    assert any("Reading the draft model" in text for text in shown)
    assert window.panel.model.draft.text().startswith("Draft model: Qwen/Qwen3-0.6B · ")
    assert "GiB stored" in window.panel.model.draft.text()
    plan = window.document.plan
    assert plan is not None
    assert before is not None
    weights, alone = plan.devices[0].segment("weights"), before.devices[0].segment("weights")
    assert weights is not None
    assert alone is not None
    assert weights.bytes > alone.bytes + 10**9
    window.view.toggle_unit()
    assert "GB stored" in window.panel.model.draft.text()
    window.copying.copy_command()
    assert '{"model": "Qwen/Qwen3-0.6B"}' in QGuiApplication.clipboard().text()
    window.document.undo()
    qtbot.waitUntil(lambda: drafts(window) == "")
    assert window.panel.model.draft.isHidden()


def test_a_draft_model_stays_with_the_plan_file(
    open_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path
) -> None:
    window, path = open_window("Qwen3-8B", gpu="H100"), tmp_path / "a.kvplan.json"
    name_draft(window, "Qwen3-0.6B")
    qtbot.waitUntil(lambda: drafts(window) != "")
    plan = window.document.plan
    window.saving.save_to(path)
    qtbot.waitUntil(path.exists)
    window.document.reset(read(path))
    qtbot.waitUntil(lambda: window.document.plan is not plan and drafts(window) == "Qwen/Qwen3-0.6B")


def test_a_draft_model_that_cannot_be_opened_is_told_at_its_field(
    open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = open_window("Qwen3-8B", gpu="H100")
    plan = window.document.plan
    field = name_draft(window, "no-such-model-anywhere")
    qtbot.waitUntil(lambda: field.error.text() != "")
    assert "the draft model cannot be opened" in field.error.text().lower()
    assert window.document.plan is plan
    assert window.panel.model.draft.isHidden()
    # Another edit does not take the message away, and does not read again.
    window.document.set_option("max_model_len", 8192)
    window.document.flush()
    assert "cannot be opened" in field.error.text()
    name_draft(window, "")
    qtbot.waitUntil(lambda: window.document.error is None and window.document.plan is not plan)
    assert field.error.text() == ""


def test_only_a_typed_name_may_go_online(
    open_window: Callable[..., MainWindow], qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []

    def opened(text: str, *, allow_network: bool = False, control: object = None) -> Model:
        asked.append((text, allow_network))
        raise BadInput("not here")

    window = open_window("Qwen3-8B", gpu="H100")
    monkeypatch.setattr(library, "open_model", opened)
    options = {"speculative_model": "hub:org/from-a-file"}
    window.document.reset(window.document.state.changed(options=options))
    qtbot.waitUntil(lambda: window.document.error is not None)
    name_draft(window, "hub:org/typed")
    qtbot.waitUntil(lambda: len(asked) == 2)
    assert asked == [("hub:org/from-a-file", False), ("hub:org/typed", True)]


def test_a_missing_draft_model_is_told_at_the_method(open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window("Qwen3-8B", gpu="H100")
    window.document.set_option("speculative_method", "draft_model")
    window.document.flush()
    advanced = window.panel.advanced
    assert advanced is not None
    field = advanced.field("speculative_method")
    assert field is not None
    assert "needs a draft model" in field.error.text()
