"""Chooser: a searchable list that opens over the window, below the button it belongs to; made for the keyboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from kvplanner.ui.setup.rows import ROW_ROLE, Row, RowDelegate, RowsModel
from kvplanner.ui.theme.figures import shown

WIDTH: Final = 580
HEIGHT: Final = 460
MARGIN: Final = 8
PAGE: Final = 8
_IS: Final = "is:"


class Chooser(QFrame):
    """Shows the rows that `search(text)` gives. chosen(data); closed(); starred(data): its star comes or goes.

    hint: what the keys do, below the list. empty: what to say when nothing matches a text. filters: names of buttons
    that leave out rows; `search` reads which are on from `filtered`. stars: rows may be starred.
    """

    chosen = Signal(object)
    starred = Signal(object)
    closed = Signal()

    def __init__(
        self,
        window: QWidget,
        title: str,
        search: Callable[[str], Sequence[Row]],
        hint: str,
        empty: Callable[[str], str],
        *,
        filters: Sequence[str] = (),
        stars: bool = False,
    ) -> None:
        super().__init__(window)
        self.setProperty("card", "popup")
        self.setAccessibleName(title)
        self._search = search
        self._empty_of = empty
        self._anchor: QWidget | None = None
        self._edit = QLineEdit(self)
        self._edit.setPlaceholderText(title)
        self._edit.setAccessibleName(title)
        self._edit.setProperty("bare", True)
        self._edit.setTextMargins(8, 8, 8, 8)
        self._model = RowsModel(self)
        self._list = QListView(self)
        self._list.setAccessibleName(f"{title}: results")
        self._list.setModel(self._model)
        self._list.setItemDelegate(RowDelegate(self._list))
        self._list.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self._list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._list.setFrameShape(QFrame.Shape.NoFrame)
        self._list.setMouseTracking(True)
        self._list.clicked.connect(self._choose_index)
        self._empty = QLabel(self)
        self._empty.setProperty("role", "muted")
        self._empty.setWordWrap(True)
        self._empty.setMargin(12)
        self._empty.hide()
        self._filters = tuple(self._filter(name) for name in filters)
        self._stars = stars
        self._hint = QLabel(hint, self)
        self._hint.setProperty("role", "muted")
        self._hint.setWordWrap(True)
        self._hint.setMargin(7)
        self._hint.setIndent(5)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(1, 1, 1, 1)
        layout.setSpacing(0)
        layout.addWidget(self._edit)
        if self._filters:
            line = QHBoxLayout()
            line.setContentsMargins(9, 0, 9, 6)
            for button in self._filters:
                line.addWidget(button)
            line.addStretch(1)
            layout.addLayout(line)
        for widget in (self._empty, self._list, self._hint):
            layout.addWidget(widget, 1 if widget is self._list else 0)
        self._edit.textChanged.connect(self.refresh)
        self._edit.installEventFilter(self)
        self.hide()

    def _filter(self, name: str) -> QToolButton:
        button = QToolButton(self)
        button.setText(name)
        button.setCheckable(True)
        button.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the search keeps the keys; "is:" words do the same there
        button.setAccessibleName(f"Only: {name}")
        button.setToolTip(f"Only those: {name.lower()} (type is:{name.split()[-1].lower()})")
        button.toggled.connect(self.refresh)
        return button

    @property
    def filtered(self) -> frozenset[str]:
        """Names of the filters that are on: by their buttons, or by "is:" and their last word in the search."""
        typed = {word[3:] for word in self._edit.text().lower().split() if word.startswith(_IS)}
        return frozenset(b.text() for b in self._filters if b.isChecked() or b.text().split()[-1].lower() in typed)

    def _words(self) -> str:
        """What is searched for: the text without the words that filter."""
        text = self._edit.text()
        if _IS not in text.lower() or not self._filters:
            return text
        return " ".join(word for word in text.split() if not word.lower().startswith(_IS))

    def set_marks(self, marks: Mapping[object, str]) -> None:
        """Marks of rows by their data; what is listed changes with them only where a filter looks at them."""
        self._model.set_marks(marks)
        if self.filtered and self.isVisible():
            self.refresh()

    @property
    def rows(self) -> tuple[Row, ...]:
        """What is listed."""
        return self._model.rows

    def open(self, anchor: QWidget, text: str = "") -> None:
        """Open below a widget, with a search begun."""
        self._anchor = anchor
        self._place()
        self._edit.blockSignals(True)
        self._edit.setText(text)
        self._edit.blockSignals(False)
        self.refresh()
        self.show()
        self.raise_()
        self._show_chosen()
        self._edit.setFocus(Qt.FocusReason.PopupFocusReason)
        self._edit.end(False)
        app = QApplication.instance()
        if app is not None:
            app.installEventFilter(self)

    def _show_chosen(self) -> None:
        """Before anything is typed, begin at what is chosen now."""
        at = next((i for i, row in enumerate(self.rows) if row.current), -1)
        if at >= 0 and not self._edit.text():
            self._set_current(at)
            self._list.scrollTo(self._model.index(at), QListView.ScrollHint.PositionAtCenter)

    def _place(self) -> None:
        window, anchor = self.window(), self._anchor
        assert anchor is not None
        corner = anchor.mapTo(window, QPoint(0, anchor.height() + 3))
        width = min(WIDTH, window.width() - 2 * MARGIN)
        height = min(HEIGHT, window.height() - 2 * MARGIN)
        top = min(corner.y(), window.height() - height - MARGIN)
        left = min(corner.x(), window.width() - width - MARGIN)
        self.setGeometry(max(left, MARGIN), max(top, MARGIN), width, height)

    def close_chooser(self, *, back: bool = True) -> None:
        """Close; the focus goes back to the button unless the user went elsewhere."""
        if self.isHidden():
            return
        app = QApplication.instance()
        if app is not None:
            app.removeEventFilter(self)
        self.hide()
        if back and self._anchor is not None:
            self._anchor.setFocus(Qt.FocusReason.PopupFocusReason)
        self.closed.emit()

    def refresh(self) -> None:
        """Search again: the text or what there is to search has changed."""
        kept = self._current_data() if self.isVisible() and not self._edit.isModified() else None
        rows = self._search(self._words())
        self._model.set_rows(rows)
        found = any(row.kind == "item" for row in rows)
        self._empty.setText("" if found else self._empty_of(self._edit.text()))
        self._empty.setVisible(not found)
        at = next((i for i, row in enumerate(rows) if kept is not None and row.data == kept), self._model.first())
        self._set_current(at)
        self._edit.setModified(False)

    def _current_data(self) -> object:
        row = self._list.currentIndex().data(ROW_ROLE)
        return row.data if isinstance(row, Row) else None

    def _set_current(self, row: int) -> None:
        if row < 0:
            self._edit.setAccessibleDescription(self._empty.text())
            return
        index = self._model.index(row)
        self._list.setCurrentIndex(index)
        if row == self._model.first():
            self._list.scrollToTop()
        else:
            self._list.scrollTo(index, QListView.ScrollHint.EnsureVisible)
        self._edit.setAccessibleDescription(shown(self._model.rows[row].spoken()))

    def _star(self) -> None:
        """Star what is marked, or take its star."""
        row = self._list.currentIndex().data(ROW_ROLE)
        if isinstance(row, Row) and row.kind == "item":
            self.starred.emit(row.data)
            self.refresh()
            at = next((i for i, other in enumerate(self.rows) if other.data == row.data), self._model.first())
            self._set_current(at)

    def _choose_index(self, index: QModelIndex) -> None:
        row = index.data(ROW_ROLE)
        if isinstance(row, Row) and row.kind != "heading":
            self.close_chooser()
            self.chosen.emit(row.data)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Keys of the search field walk the list; a click elsewhere closes."""
        if watched is self._edit and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            return self._key(event)
        if watched is self._edit and event.type() == QEvent.Type.FocusOut and self.isVisible():
            if QApplication.activeWindow() is self.window():
                self.close_chooser(back=False)
        elif (
            isinstance(event, QMouseEvent)
            and event.type() == QEvent.Type.MouseButtonPress
            and isinstance(watched, QWidget)
            and watched is not self
            and not self.isAncestorOf(watched)
            and watched.window() is self.window()
        ):
            self.close_chooser(back=False)
        return super().eventFilter(watched, event)

    def _key(self, event: QKeyEvent) -> bool:
        steps = {
            Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: PAGE, Qt.Key.Key_PageUp: -PAGE,
        }  # fmt: skip
        key = Qt.Key(event.key())
        if key in steps:
            self._set_current(self._model.step(self._list.currentIndex().row(), steps[key]))
        elif key == Qt.Key.Key_T and event.modifiers() == Qt.KeyboardModifier.ControlModifier and self._stars:
            self._star()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose_index(self._list.currentIndex())
        elif key == Qt.Key.Key_Escape or key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
            self.close_chooser()
        else:
            return False
        return True
