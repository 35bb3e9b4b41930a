"""What is dragged over the window: a sentence says what dropping it would do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PySide6 import QtCore, QtGui, QtWidgets

from kvplanner.ui.widgets.labels import breakable

if TYPE_CHECKING:
    from kvplanner.app.opening import Opening

DROP_MARGIN: Final = 20


class Drops:
    """Over one window. open_path(path), open_text(text): open what was dropped."""

    def __init__(
        self, host: QtWidgets.QWidget, open_path: Callable[[Path], None], open_text: Callable[[str], None]
    ) -> None:
        self._host = host
        self._open_path, self._open_text = open_path, open_text
        self._drop: Opening | None = None
        self.sheet: QtWidgets.QLabel | None = None

    def entered(self, event: QtGui.QDragEnterEvent) -> None:
        """Look at what hangs on the mouse, and say what would happen."""
        from kvplanner.app.opening import classify, classify_text

        paths = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
        text = event.mimeData().text() if event.mimeData().hasText() and not event.mimeData().urls() else ""
        if not paths and not text.strip():
            event.ignore()
            return
        self._drop = classify(paths[0]) if paths else classify_text(text)
        if len(paths) > 1 and self._drop.what != "refused":
            more = f" (the first of {len(paths)})"
            self._drop = self._drop._replace(sentence=self._drop.sentence + more)
        self.show(self._drop)
        event.acceptProposedAction()

    def moved(self, event: QtGui.QDragMoveEvent) -> None:
        """Refused things stay refused all over the window."""
        if self._drop is None or self._drop.what == "refused":
            event.ignore()
        else:
            event.acceptProposedAction()

    def left(self) -> None:
        """Take the sentence away."""
        self._drop = None
        if self.sheet is not None:
            self.sheet.hide()

    def dropped(self, event: QtGui.QDropEvent) -> None:
        """Open the first path."""
        paths = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
        text = event.mimeData().text() if event.mimeData().hasText() and not event.mimeData().urls() else ""
        self.left()
        if paths or text.strip():
            event.acceptProposedAction()
        if paths:
            self._open_path(paths[0])
        elif text.strip():
            self._open_text(text)

    def show(self, opening: Opening) -> None:
        """Say it."""
        if self.sheet is None:
            self.sheet = QtWidgets.QLabel(self._host)
            self.sheet.setProperty("card", "drop")
            self.sheet.setFrameShape(QtWidgets.QLabel.Shape.StyledPanel)
            self.sheet.setAlignment(QtCore.Qt.AlignmentFlag.AlignCenter)
            self.sheet.setWordWrap(True)
            self.sheet.setMargin(DROP_MARGIN)
            self.sheet.setAttribute(QtCore.Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            font = self.sheet.font()
            font.setPointSizeF(font.pointSizeF() * 1.3)
            self.sheet.setFont(font)
        sheet = self.sheet
        said = opening.sentence if opening.what != "refused" else f"Cannot open this: {opening.sentence}"
        sheet.setText(breakable(said))
        width = min(620, self._host.width() - 80)
        height = max(150, sheet.heightForWidth(width))
        sheet.setGeometry((self._host.width() - width) // 2, (self._host.height() - height) // 2, width, height)
        sheet.show()
        sheet.raise_()
