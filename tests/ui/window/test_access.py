"""What a screen reader meets: every control has a name, in an order that makes sense; states are said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLineEdit, QSlider, QWidget

from kvplanner.ui.window.window import MainWindow
from tests.ui.window.kit import accessible_tree, opened_options

ROLES = QAccessible.Role
CONTROLS = {
    ROLES.PushButton, ROLES.CheckBox, ROLES.RadioButton, ROLES.EditableText, ROLES.ComboBox, ROLES.Slider,
    ROLES.PageTab, ROLES.List, ROLES.Table, ROLES.MenuItem, ROLES.ButtonMenu, ROLES.ButtonDropDown, ROLES.SpinBox,
}  # fmt: skip


def plain(window: MainWindow) -> None:
    """Nothing is open."""


def all_options(window: MainWindow) -> None:
    window.panel.show_search()


def devices(window: MainWindow) -> None:
    window.panel.gpus.toggle.setChecked(True)


def models(window: MainWindow) -> None:
    window.pickers.open_models("qwen")


def gpus(window: MainWindow) -> None:
    window.pickers.open_gpus()


def message(window: MainWindow) -> None:
    window.messages.error(OSError("no"), "Saving")


@pytest.mark.parametrize("act", [plain, all_options, devices, models, gpus, message])
def test_every_control_has_a_name(window: MainWindow, act: Callable[[MainWindow], None]) -> None:
    act(window)
    unnamed: list[str] = []
    controls = 0
    for item in accessible_tree(window):
        if item.role() in CONTROLS and not item.state().invisible:
            controls += 1
            if not item.text(QAccessible.Text.Name).strip():
                widget = item.object()
                unnamed.append(f"{item.role()} {type(widget).__name__} in {type(widget.parent()).__name__}")
    assert controls > 30
    assert unnamed == []


def test_every_focusable_widget_can_be_named(window: MainWindow) -> None:
    for widget in window.findChildren(QWidget):
        if not widget.isVisible() or not isinstance(widget, QAbstractButton | QLineEdit | QComboBox | QSlider):
            continue
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
            interface = QAccessible.queryAccessibleInterface(widget)
            assert interface is not None
            assert interface.text(QAccessible.Text.Name), widget


def test_names_within_the_form_are_told_apart(window: MainWindow) -> None:
    seen: dict[str, int] = {}
    for entry in opened_options(window).entries.values():
        name = entry.field.inputs[0].accessibleName()
        seen[name] = seen.get(name, 0) + 1
    assert seen
    assert {name: count for name, count in seen.items() if count > 1} == {}


def test_the_chooser_says_which_row_it_stands_on(window: MainWindow) -> None:
    window.pickers.open_gpus("4090")
    edit = window.pickers.gpu_chooser.findChild(QLineEdit)
    assert edit is not None
    assert "4090" in edit.accessibleDescription()


def test_menus_have_no_two_commands_of_one_key(window: MainWindow) -> None:
    seen: dict[str, str] = {}
    for name, action in window.actions_of_window.by_name.items():
        for sequence in action.shortcuts():
            text = sequence.toString()
            assert text not in seen, f"{text}: {seen.get(text)} and {name}"
            seen[text] = name
    assert seen["Ctrl+S"] == "save"


def test_every_menu_entry_has_an_access_key_of_its_own(window: MainWindow) -> None:
    for path, menu in window.actions_of_window.menus.items():
        keys = [a.text()[a.text().index("&") + 1].lower() for a in menu.actions() if "&" in a.text()]
        entries = [a for a in menu.actions() if not a.isSeparator()]
        assert len(keys) == len(entries), path
        assert len(set(keys)) == len(keys), (path, [a.text() for a in entries])
