"""Plans side by side in the window: pinned with a key, edited against, gone back to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from kvplanner.app.session import SCHEMA, Restored, _plans
from kvplanner.report.bar import bar_cells
from kvplanner.ui.compare.page import ComparePage
from kvplanner.ui.compare.pins import told_apart
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.arguments import parse
from kvplanner.ui.window.run import begin
from kvplanner.ui.window.window import MainWindow


@pytest.fixture
def page(window: MainWindow) -> ComparePage:
    window.view.show_compare()
    found = window.centre.below.page("compare")
    assert isinstance(found, ComparePage)
    return found


def shown(page: ComparePage) -> dict[str, tuple[str, ...]]:
    return {line.title: line.cells for line in page.model.lines if line.row is not None}


def edit(window: MainWindow, **fields: Any) -> None:
    window.document.edit("edit", **fields)
    window.document.flush()
    window.centre.show_details()


def test_only_what_differs_shows_and_follows_the_edits(page: ComparePage, window: MainWindow, qtbot: QtBot) -> None:
    assert not page.table.isVisible()
    window.actions_of_window.by_name["pin_plan"].trigger()
    assert page.words.isVisible()
    assert "Nothing differs" in page.words.text()
    edit(window, options={"kv_cache_dtype": "fp8"})
    rows = shown(page)
    assert rows["KV cache type"] == ("fp8", "auto")
    now, pinned = rows["KV cache tokens"]
    assert "(+" in now
    assert "(" not in pinned, "the first pinned plan is what the others are compared with"
    assert "Weights" not in rows
    assert "Machine" not in rows
    page.everything.setChecked(True)
    assert "Weights" in shown(page)
    assert shown(page)["Machine"][0] == shown(page)["Machine"][1]


def test_engines_and_releases_may_differ(page: ComparePage, window: MainWindow) -> None:
    window.view.pin_plan()
    edit(window, version="0.20.0")
    assert shown(page)["Release"] == ("0.20.0", window.document.options() and page._pins.kept[0].plan.engine_version)
    edit(window, engine="llamacpp", version=None, weight_format="GGUF Q4_K_M", options={})
    assert shown(page)["Engine"] == ("llamacpp", "vllm")


def test_four_at_most_and_back_in_one_step(page: ComparePage, window: MainWindow, qtbot: QtBot) -> None:
    before = window.document.state
    for length in (4096, 8192, 16384):
        window.view.pin_plan()
        edit(window, options={"max_model_len": length})
    assert len(page._pins.kept) == 3
    assert page.model.columnCount() == 5
    assert not page.pin_button.isEnabled()
    with qtbot.waitSignal(window.messages.posted, check_params_cb=lambda message: "remove one" in message.text):
        window.view.pin_plan()
    assert len(page._pins.kept) == 3
    page.back_wanted.emit(0)
    window.document.flush()
    assert window.document.state == before
    window.document.undo()
    assert window.document.state.ask.options == {"max_model_len": 16384}
    page._pins.remove(0)
    assert page.model.columnCount() == 4
    assert page._chips.count() == 2


def test_the_bars_share_one_axis(page: ComparePage, window: MainWindow, qtbot: QtBot) -> None:
    window.view.pin_plan()
    from kvplanner.catalog import gpus

    machine = gpus.machine("2xH100")
    edit(window, devices=machine.devices, machine_text="2xH100", machine_chosen=True)
    bars = page.bars
    assert bars.isVisible()
    small, large = page._pins.kept[0].plan, window.document.plan
    assert large is not None
    assert bars._width(large) > 3 * bars._width(small)
    assert sum(cell.width for cell in bar_cells(large, large.tightest, bars._width(large))) == bars._width(large)
    assert "Now: " in bars.accessibleDescription()
    assert "KV cache" in bars._hint(bars._width(large) // 2 + 20, 10)


def test_a_page_needs_no_room_of_one_that_was_looked_at_before(page: ComparePage) -> None:
    page.show_together()
    least = page.minimumSizeHint().height()
    page.show_sweep(on=True)
    assert page.minimumSizeHint().height() > least
    page.show_together()
    assert page.minimumSizeHint().height() == least


def test_the_table_can_be_copied(page: ComparePage, window: MainWindow, qtbot: QtBot) -> None:
    from PySide6.QtGui import QGuiApplication

    window.view.pin_plan()
    edit(window, options={"kv_cache_dtype": "fp8"})
    page.table.setFocus()
    qtbot.keyClick(page.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    text = QGuiApplication.clipboard().text()
    assert "\tNow\tA\n" in text
    assert "KV cache type\tfp8\tauto" in text


def test_what_is_pinned_comes_back_with_the_session(
    page: ComparePage, window: MainWindow, application: Application, qtbot: QtBot
) -> None:
    qtbot.mouseClick(page.pin_button, Qt.MouseButton.LeftButton)
    edit(window, options={"max_model_len": 2048})
    qtbot.mouseClick(page.pin_button, Qt.MouseButton.LeftButton)
    edit(window, options={"max_model_len": 4096})
    assert len(window.document.pinned) == 2
    (kept,) = (one for one in application._open_plans() if one.plan["options"] == {"max_model_len": 4096})
    stored = {"plan": dict(kept.plan), "path": "", "modified": False, "pinned": [dict(one) for one in kept.pinned]}
    again = _plans(json.loads(json.dumps({"schema": SCHEMA, "windows": [stored]})))
    assert again is not None
    other = application.new_window()
    other.show()
    begin(application, other, parse([]), Restored(again, crashed=False))
    qtbot.waitUntil(lambda: len(other.document.pinned) == 2, timeout=20_000)
    other.fill()
    other.document.flush()
    other.view.show_compare()
    back = other.centre.below.page("compare")
    assert isinstance(back, ComparePage)
    qtbot.waitUntil(lambda: len(back._pins.kept) == 2, timeout=20_000)
    assert [pin.plan.verdict for pin in back._pins.kept] == [pin.plan.verdict for pin in page._pins.kept]
    back._pins.remove(0)
    assert len(other.document.pinned) == 1


def test_names_of_pinned_plans_begin_with_what_sets_them_apart(page: ComparePage, window: MainWindow) -> None:
    window.view.pin_plan()
    window.document.set_option("kv_cache_dtype", "fp8")
    window.document.flush()
    window.view.pin_plan()
    first, second = told_apart([pin.plan for pin in page._pins.kept])
    assert second.startswith("--kv-cache-dtype fp8, ")
    assert set(second.split(", ")) - set(first.split(", ")) == {"--kv-cache-dtype fp8"}
    assert told_apart([page._pins.kept[1].plan])[0].startswith("Llama-3.1-8B-Instruct, ")
