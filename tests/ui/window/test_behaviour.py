"""How the window behaves: inline errors, drags, units, themes, several windows, messages, end."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QCheckBox, QDialog, QLabel, QMenu, QMessageBox
from pytestqt.qtbot import QtBot

import kvplanner.ui
from kvplanner.app import settings as s
from kvplanner.catalog import gpus
from kvplanner.engine.registry import engine, names
from kvplanner.engine.request import Load
from kvplanner.gpu.spec import Machine
from kvplanner.ui.dialogs.help import page_text, pages
from kvplanner.ui.setup.context_field import ContextField
from kvplanner.ui.theme.palette import DARK, LIGHT, Tokens, contrast
from kvplanner.ui.theme.theme import palette_of
from kvplanner.ui.widgets.message_strip import SHOWN_MS
from kvplanner.ui.window.actions import shortcut_table
from kvplanner.ui.window.application import Application
from kvplanner.ui.window.window import MainWindow
from tests.patience import LONG_S
from tests.ui.window.kit import Keyboard, text_field


def test_a_refused_value_is_told_at_its_field_and_the_plan_stays(window: MainWindow) -> None:
    before = window.document.plan
    field = text_field(window, "tensor_parallel_size")
    field.edit.setText("3")
    field.edit.editingFinished.emit()
    window.document.flush()
    assert not field.error.isHidden()
    assert "divisible" in field.error.text()
    assert window.document.plan is before
    assert window.centre.messages.strips == []
    window.document.undo()
    window.document.flush()
    assert field.error.isHidden()


@pytest.mark.parametrize("name", names())
def test_a_version_that_is_none_leaves_a_form_to_mend_it(window: MainWindow, name: str) -> None:
    before = window.document.plan
    window.document.edit("Change engine", engine=name, version="2x4090")
    window.document.flush()
    assert window.document.error is not None
    assert window.document.error.where == "--engine-version"
    assert window.document.options() == engine(name).options()
    assert window.document.plan is before
    window.document.edit("Change engine version", version=None)
    window.document.flush()
    assert window.document.error is None


def test_nonsense_never_reaches_the_document(window: MainWindow) -> None:
    field = text_field(window, "max_num_seqs")
    count = window.document.undo_count
    for text in ("many", "-5", "1e400", "٣x"):
        field.edit.setText(text)
        field.edit.editingFinished.emit()
        assert field.error.text(), text
    assert window.document.undo_count == count


def test_an_error_of_a_hidden_option_opens_it(window: MainWindow) -> None:
    from kvplanner.errors import BadInput

    window.panel.show_error(BadInput("no such back end", "--attention-backend", "Choose another"))
    advanced = window.panel.advanced
    assert advanced is not None
    assert advanced.toggle.isChecked()
    assert "No such back end" in advanced.entries["attention_backend"].field.error.text()


def test_a_drag_of_the_slider_is_one_edit(window: MainWindow, qtbot: QtBot) -> None:
    field = window.panel.fields["max_model_len"]
    assert isinstance(field, ContextField)
    slider = field.slider
    count = window.document.undo_count
    middle = slider.rect().center()
    QTest.mousePress(slider, Qt.MouseButton.LeftButton, pos=middle)
    for step in range(30):
        QTest.mouseMove(slider, middle - slider.rect().topLeft() * 0 + type(middle)(-step, 0))
        QCoreApplication.processEvents()
    QTest.mouseRelease(slider, Qt.MouseButton.LeftButton, pos=middle)
    assert window.document.undo_count == count + 1
    QTest.keyClick(slider, Qt.Key.Key_Left)
    assert window.document.undo_count == count + 2


def test_the_marks_of_the_context_set_it(window: MainWindow) -> None:
    field = window.panel.fields["max_model_len"]
    assert isinstance(field, ContextField)
    window.document.set_option("max_model_len", 4096)
    window.document.flush()
    field.trained_button.click()
    assert window.document.state.ask.options["max_model_len"] == 131_072


def test_changing_the_gpu_never_keeps_a_stale_default(window: MainWindow) -> None:
    field = text_field(window, "max_num_seqs")
    assert field.edit.placeholderText() == "256"
    window.machines.choose("1xh100-sxm5-80gb")
    window.document.flush()
    assert field.edit.placeholderText() == "1,024"
    assert window.document.state.ask.options == {}


def test_the_load_takes_usual_values_for_what_is_left_out(window: MainWindow) -> None:
    load = window.panel.load
    assert load is not None
    load.users.setText("32")
    load.users.editingFinished.emit()
    assert window.document.state.ask.load == Load(32, 1500, 500)
    window.document.flush()
    assert load.prompt.text() == "1,500"


def test_units_change_everywhere_and_change_no_number_of_the_plan(window: MainWindow) -> None:
    plan = window.document.plan
    window.view.toggle_unit()
    assert "GB" in window.unit_button.text()
    assert " GB" in window.panel.gpus.button.accessibleDescription()
    assert window.document.plan is plan
    assert window.services.settings.get(s.UNIT) == "GB"


@pytest.mark.parametrize("theme", ["light", "dark", "system"])
def test_themes_are_set_and_remembered(window: MainWindow, application: Application, theme: str) -> None:
    window.actions_of_window.by_name[f"theme_{theme}"].trigger()
    assert application.settings.get(s.THEME) == theme
    ground = QGuiApplication.palette().window().color().lightness()
    assert (ground < 128) == (theme == "dark")


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])
def test_every_pair_of_colours_that_carries_text_can_be_read(tokens: Tokens) -> None:
    grounds = (tokens.window, tokens.panel, tokens.field, tokens.raised)
    pairs = [(tokens.text, g) for g in (*grounds, tokens.selection, tokens.danger_soft, tokens.warning_soft)]
    pairs += [(tokens.muted, g) for g in (tokens.window, tokens.panel, tokens.field, tokens.selection)]
    pairs += [(tokens.danger, tokens.panel), (tokens.warning, tokens.panel), (tokens.accent, tokens.panel)]
    pairs += [(tokens.on_accent, tokens.accent)]
    for text, ground in pairs:
        assert contrast(text, ground) >= 4.5, (text, ground)
    assert palette_of(tokens).color(palette_of(tokens).ColorRole.Text).name() == tokens.text


@pytest.mark.slow
def test_machines_are_counted_mixed_and_taken_apart(window: MainWindow, qtbot: QtBot) -> None:
    window.machines.set_count(4)
    assert [d.index for d in window.document.state.devices] == [0, 1, 2, 3]
    window.machines.add("1xrtx-3090")
    assert len(window.document.state.devices) == 5
    window.machines.remove(0)
    names = [d.gpu.name for d in window.document.state.devices]
    assert names == ["NVIDIA GeForce RTX 4090"] * 3 + ["NVIDIA GeForce RTX 3090"]
    assert [d.index for d in window.document.state.devices] == [0, 1, 2, 3]
    for _ in range(3):
        window.document.undo()
    assert len(window.document.state.devices) == 2


def test_this_machines_gpus_come_first_and_follow_the_driver(
    window: MainWindow, application: Application, qtbot: QtBot
) -> None:
    held = 3 * 2**30
    seen = gpus.machine("2xRTX 3090")
    total = seen.devices[0].gpu.cuda_total
    assert total is not None
    devices = tuple(
        d._replace(free_bytes=total.value - held, free_source="NVML, 12:00:00", uuid=f"GPU-1234567{d.index}",
                marks=("display attached",)) for d in seen.devices
    )  # fmt: skip
    application.library.show_machine(Machine(devices, "this machine"))
    assert "RTX 3090" in window.status.machine.text()
    window.pickers.open_gpus()
    rows = window.pickers.gpu_chooser.rows
    assert (rows[0].title, rows[1].title) == ("This machine", "2 × RTX 3090")
    assert "used by others: 6.00 GiB" in rows[1].note
    keyboard = Keyboard()
    keyboard.press(Qt.Key.Key_Return)
    assert window.document.state.machine_source == "this machine"
    window.document.flush()
    assert "Used by others" in window.panel.gpus.button.accessibleDescription()
    boxes = [box for box in window.panel.gpus.findChildren(QCheckBox) if box.isVisible()]
    assert [box.text() for box in boxes] == ["GPU 0 · RTX 3090", "GPU 1 · RTX 3090"]
    labels = " ".join(label.text() for label in window.panel.gpus.findChildren(QLabel))
    assert "display attached" in labels
    assert "345670" in labels
    boxes[0].click()
    window.document.flush()
    plan = window.document.plan
    assert plan is not None
    assert [d.device.index for d in plan.devices] == [1]


def test_this_machine_is_assumed_until_the_user_chooses(
    open_window: Callable[..., MainWindow], application: Application
) -> None:
    window = open_window(gpu="")
    assert not window.document.state.machine_chosen
    seen = Machine(gpus.machine("2xRTX 3090").devices, "this machine")
    application.library.show_machine(seen)
    window.document.flush()
    assert window.document.state.machine_source == "this machine"
    assert window.document.undo_count == 0
    window.machines.choose("1xl4")
    application.library.show_machine(seen)
    assert window.document.state.machine_text == "1xl4"


def test_the_last_gpu_cannot_be_switched_off(window: MainWindow) -> None:
    window.panel.gpus.ticked.emit(0, False)
    window.panel.gpus.ticked.emit(1, False)
    assert window.document.state.unticked == frozenset({0})
    assert "at least one" in window.panel.gpus.error.text()


def test_a_second_window_has_a_plan_of_its_own(window: MainWindow, application: Application, qtbot: QtBot) -> None:
    window.opening.new_window()
    other = application.windows[-1]
    assert other is not window
    other.document.set_option("max_num_seqs", 5)
    assert window.document.state.ask.options == {}
    other.close()
    asked = other.findChildren(QMessageBox)
    assert asked, "no session brings back a window that is closed before the others"
    asked[0].done(QMessageBox.StandardButton.Discard.value)
    assert application.windows == [window]


@pytest.mark.slow
def test_quitting_keeps_every_window_in_the_session(window: MainWindow, application: Application, qtbot: QtBot) -> None:
    window.opening.new_window()
    assert application.windows[-1].centre.built
    application.windows[-1].document.set_option("max_num_seqs", 5)
    application.windows[-1].document.flush()
    application.app.blockSignals(True)
    window.services.windows.quit()
    application.app.blockSignals(False)
    plans = application.session.restore().plans
    assert [plan.plan.get("options", {}) for plan in plans] == [{}, {"max_num_seqs": 5}]


@pytest.mark.slow
def test_quitting_asks_once_for_each_file_that_lacks_edits(
    window: MainWindow, application: Application, qtbot: QtBot, tmp_path: Path
) -> None:
    window.opening.new_window()
    other = application.windows[-1]
    assert other.centre.built
    path = tmp_path / "a.kvplan.json"
    other.saving.save_to(path)
    qtbot.waitUntil(lambda: other.document.path == path)
    other.document.set_option("max_num_seqs", 5)
    other.document.flush()
    window.services.windows.quit()
    asked = other.findChildren(QMessageBox)
    assert len(asked) == 1
    asked[0].done(QMessageBox.StandardButton.Cancel.value)
    assert len(application.windows) == 2
    window.services.windows.quit()
    application.app.blockSignals(True)
    other.findChildren(QMessageBox)[-1].done(QMessageBox.StandardButton.Discard.value)
    application.app.blockSignals(False)
    plans = application.session.restore().plans
    assert [plan.path for plan in plans] == ["", str(path)]


def test_a_plan_with_a_file_asks_before_it_is_closed(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "a.kvplan.json"
    window.saving.save_to(path)
    qtbot.waitUntil(lambda: window.document.path == path)
    window.document.set_option("max_num_seqs", 5)
    assert not window.close()
    boxes = window.findChildren(QDialog)
    assert any("Save the changes" in (label.text()) for box in boxes for label in box.findChildren(QLabel))
    for box in boxes:
        box.close()
    assert window.isVisible()


def test_messages_replace_each_other_and_go(window: MainWindow, qtbot: QtBot) -> None:
    window.messages.error(OSError("one"), key="save")
    window.messages.error(OSError("two"), key="save")
    bar = window.centre.messages
    assert ["two" in strip.message.text for strip in bar.strips] == [True]
    for number in range(6):
        window.messages.warning(f"number {number}")
    assert len(bar.strips) == 3
    for strip in bar.strips:
        strip.dismiss()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert bar.isHidden()
    assert SHOWN_MS >= 5000


def test_copies_are_of_what_is_set_now(window: MainWindow) -> None:
    window.document.set_option("max_num_seqs", 48)
    window.copying.copy_command()
    command = QGuiApplication.clipboard().text()
    assert command.startswith("vllm serve meta-llama/Llama-3.1-8B-Instruct")
    assert "--max-num-seqs 48" in command
    window.copying.copy_json()
    assert '"kvplanner.plan/1"' in QGuiApplication.clipboard().text()
    window.document.set_option("tensor_parallel_size", 3)
    window.copying.copy_text()
    assert "mend" in window.centre.messages.strips[-1].message.text


@pytest.mark.parametrize("page", pages())
def test_help_is_there_offline(window: MainWindow, page: str) -> None:
    assert len(page_text(page, shortcut_table())) > 300
    window.help.show_page(page)
    assert window.help.viewer is not None
    assert window.help.viewer.text.toPlainText().strip()
    window.help.viewer.close()


def test_about_and_crash_dialogs_show_and_save(window: MainWindow, tmp_path: Path, qtbot: QtBot) -> None:
    from kvplanner.ui.dialogs.crash import CrashDialog

    window.help.about()
    assert window.help.dialog is not None
    texts = " ".join(label.text() for label in window.help.dialog.findChildren(QLabel))
    assert "PySide6" in texts
    assert "vLLM rules" in texts
    window.help.dialog.close()
    window.help.show_crash_report("ValueError: broken")
    dialog = window.help.dialog
    assert isinstance(dialog, CrashDialog)
    dialog.save_to(str(tmp_path / "report.txt"))
    assert "ValueError" in (tmp_path / "report.txt").read_text()
    dialog.save_to(str(tmp_path / "report.txt" / "x"))
    assert "Could not" in dialog.result_text.text()
    dialog.close()


def test_a_broken_settings_file_does_not_keep_the_window_away(
    own_data_folder: Path, open_window: Callable[..., MainWindow]
) -> None:
    own_data_folder.mkdir(parents=True, exist_ok=True)
    (own_data_folder / "settings.json").write_text("{")
    assert open_window().document.plan is not None


START = """
import sys
from kvplanner.ui.window.run import make_app, open_first
from kvplanner.ui.window.arguments import parse
from PySide6.QtCore import QTimer
app = make_app()
application, window = open_first(app, parse([]))
def done():
    other_engines = ("kvplanner.engine.sglang.planner", "kvplanner.engine.llamacpp.planner")
    heavy = ("numpy", "pyqtgraph", "huggingface_hub", "pynvml", "psutil", "httpx", *other_engines)
    print([name for name in heavy if name in sys.modules])
    window.close()
window.filled.connect(lambda: QTimer.singleShot(0, done))
app.exec()
application.shut_down()
print("ended")
"""


@pytest.mark.slow
def test_start_loads_nothing_heavy_and_ends_cleanly() -> None:
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, timeout=LONG_S, check=False)
    assert done.stdout.splitlines() == ["[]", "ended"], done.stdout + done.stderr
    assert done.returncode == 0
    assert done.stderr.strip() in ("", "This plugin does not support propagateSizeHints()")


def test_no_layout_is_asked_for_its_items() -> None:
    """The wrapper of a QLayoutItem outlives its item; the next layout at that address then crashes when it goes."""
    asking = re.compile(r"\.(itemAt|takeAt|itemAtPosition)\(")
    found = [
        f"{path.name}:{number}"
        for path in Path(kvplanner.ui.__file__).parent.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if asking.search(line)
    ]
    assert found == []


def test_void_calls_keep_their_references() -> None:
    """PySide6 6.12.0 drops one reference to None per void call, which ends Python 3.11 after some 5,200 of them."""
    label = QLabel()
    before = sys.getrefcount(None)
    for number in range(400):
        label.setNum(number)
    assert sys.getrefcount(None) > before - 100


@pytest.mark.qt_log_ignore("This plugin does not support")
def test_a_menu_of_its_own_where_the_segment_is(window: MainWindow, qtbot: QtBot) -> None:
    canvas = window.centre.bars.canvas
    layout = canvas.arranged()
    assert layout is not None
    cell = next(c for c in canvas.cells() if c.kind == "weights")
    point = QPoint(round(cell.rect.x + cell.rect.w / 2), round(cell.rect.y + cell.rect.h / 2))
    canvas.customContextMenuRequested.emit(point)
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    assert [a.text().replace("&", "") for a in menu.actions() if a.text()][:2] == ["Explain", "Copy as Text"]
    assert window.centre.kind == "weights"
    menu.close()


def test_a_warning_about_other_settings_goes_with_them(window: MainWindow, qtbot: QtBot) -> None:
    window.messages.warning("Copied; but this plan does not fit", key="copy")
    assert window.centre.messages.strips
    window.document.set_option("max_num_seqs", 7)
    assert not window.centre.messages.strips
