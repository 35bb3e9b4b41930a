"""Every command and every option of the form by name: type a few letters, Enter does it or goes there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from kvplanner.report.options import option_label
from kvplanner.ui.setup.chooser import Chooser
from kvplanner.ui.setup.rows import Row

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.ui.setup.panel import SetupPanel
    from kvplanner.ui.window.actions import Command
    from kvplanner.ui.window.side import Side

HINT: Final = "Type part of a command's or an option's name · ↑↓ walk · Enter does it · Esc closes"
_OPTION: Final = "\0option "


class Finder:
    """Opens over one window. actions: by name; commands: in the menus' order."""

    def __init__(
        self,
        host: QWidget,
        document: Document,
        side: Side,
        commands: tuple[Command, ...],
        actions: Mapping[str, QAction],
    ) -> None:
        self._document = document
        self._side = side
        self._commands = commands
        self._actions = actions
        self.chooser = Chooser(
            host, "Find a command or an option", self._rows, HINT, lambda text: "Nothing is called so."
        )
        self.chooser.chosen.connect(self._chosen)

    @property
    def _panel(self) -> SetupPanel:
        return self._side.panel

    def open(self, anchor: QWidget) -> None:
        """Open below a widget."""
        self.chooser.open(anchor)

    def close(self) -> bool:
        """Close it; False where it was not open."""
        opened = self.chooser.isVisible()
        self.chooser.close_chooser()
        return opened

    def _rows(self, text: str) -> list[Row]:
        words = text.lower().split()
        rows = [row for row in self._command_rows() if _holds(row, words)]
        options = [row for row in self._option_rows() if _holds(row, words)] if words else []
        if options:
            rows += [Row("heading", "Options"), *options]
        return rows

    def _command_rows(self) -> list[Row]:
        rows: list[Row] = []
        for command in self._commands:
            action = self._actions.get(command.name)
            if action is None or not action.isEnabled() or command.name == "find_command":
                continue
            title = action.text().replace("&", "").rstrip("…")
            keys = action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
            on = " · on" if action.isChecked() else ""
            rows.append(Row("item", title, command.menu.replace("/", " ▸ ") + on, keys, "", command.name))
        return rows

    def _option_rows(self) -> list[Row]:
        return [
            Row("item", option_label(option), option.help, "", option.section, _OPTION + option.name)
            for option in self._document.options()
        ]

    def _chosen(self, data: object) -> None:
        name = str(data)
        if name.startswith(_OPTION):
            self._side.show_form(True)
            self._panel.go_to(name.removeprefix(_OPTION))
        else:
            self._actions[name].trigger()


def _holds(row: Row, words: list[str]) -> bool:
    text = f"{row.title} {row.detail} {row.note} {str(row.data).replace('_', ' ')}".lower()
    return all(word in text for word in words)
