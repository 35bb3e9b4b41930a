"""What shows in the first frame: where the menus, the form and the plan will be."""

from __future__ import annotations

from typing import Final

from PySide6 import QtGui, QtWidgets

MENU_PADDING: Final = 10


def menu_strip(window: QtWidgets.QMainWindow) -> QtWidgets.QWidget:
    """As high as a line of menus."""
    strip = _plain(window)
    strip.setFixedHeight(window.fontMetrics().height() + MENU_PADDING)
    return strip


class Ground(QtWidgets.QWidget):
    """The place of the form, then that of the plan."""

    def __init__(self, parent: QtWidgets.QWidget) -> None:
        super().__init__(parent)
        self._line = QtWidgets.QHBoxLayout(self)
        self._line.setContentsMargins(0, 0, 0, 0)
        self._line.setSpacing(0)
        self._form = _plain(self)
        self._line.addWidget(self._form)
        self._line.addStretch(1)

    def keep_for_form(self, width: int) -> None:
        """Keep so much for the form."""
        self._form.setFixedWidth(width)

    def put_plan(self, plan: QtWidgets.QWidget) -> None:
        """Put the plan into its place."""
        self._line.addWidget(plan, 1)
        self._line.setStretch(1, 0)

    def put_form(self, form: QtWidgets.QWidget) -> None:
        """Put the form into its place."""
        self._line.removeWidget(self._form)
        self._form.hide()
        self._form.deleteLater()
        self._line.insertWidget(0, form)


def _plain(parent: QtWidgets.QWidget) -> QtWidgets.QWidget:
    made = QtWidgets.QWidget(parent)
    made.setAutoFillBackground(True)
    made.setBackgroundRole(QtGui.QPalette.ColorRole.Base)
    return made
