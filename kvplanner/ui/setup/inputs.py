"""Small inputs that the form is made of: a text field for values, a combo box, a picker button."""

from __future__ import annotations

from typing import Final

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QFont,
    QFontMetrics,
    QKeyEvent,
    QKeySequence,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLineEdit, QSizePolicy, QStyle, QStyleOptionComboBox, QWidget

from kvplanner.ui.theme.figures import shown
from kvplanner.ui.theme.ink import chevron, tokens_of
from kvplanner.ui.theme.palette import Tokens

RADIUS: Final = 4.0
ROW_HEIGHT: Final = 28
LINE_MARKS: Final = "\n\r\u2028\u2029"
POPUP_MARGIN: Final = 34
WIDEST_POPUP: Final = 460
# Beside the text of a combo box: the left one, and both with the chevron.
TEXT_LEFT: Final = 9
TEXT_MARGINS: Final = 31
DOT: Final = " · "
MOST_ROWS: Final = 4  # of facts on a picker's button


def draw_field(painter: QPainter, widget: QWidget, tokens: Tokens, *, focus: bool, hover: bool = False) -> None:
    """The ground and outline of an input."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor(tokens.accent if focus else tokens.border), 1.0))
    painter.setBrush(QColor(tokens.raised if hover and not focus else tokens.field))
    area = widget.rect().toRectF().adjusted(0.5, 0.5, -0.5, -0.5)
    painter.drawRoundedRect(area, RADIUS, RADIUS)


def takes_wheel(widget: QWidget, event: QWheelEvent) -> bool:
    """Whether the wheel changes an input: only with the focus, so that scrolling the form over it changes nothing."""
    if not widget.hasFocus():
        event.ignore()
    return widget.hasFocus()


class ValueEdit(QLineEdit):
    """A field for one value; empty means the default, which stands in it as a hint.

    committed(text) on Enter or when the field is left; stepped(+1 or -1) on Up and Down.
    """

    committed = Signal(str)
    stepped = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown = self._accepted = ""
        self.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.setFixedHeight(ROW_HEIGHT)
        self.setTextMargins(4, 0, 4, 0)
        self.editingFinished.connect(self._commit)

    def show_value(self, text: str, hint: str) -> None:
        """Show what is set, or the hint where nothing is; a field that is being typed in is left alone."""
        text, hint = shown(text), shown(hint)
        self.setPlaceholderText(hint)
        if self.hasFocus() and self.isModified():
            return
        self._shown = self._accepted = text
        if self.text() != text or self.isUndoAvailable():  # what was taken over is the plan's to undo, not the field's
            self.setText(text)
            if not self.hasFocus():
                self.setCursorPosition(0)
        self.setModified(False)

    def set_wrong(self, wrong: bool) -> None:
        """Mark the value as refused."""
        if bool(self.property("wrong")) != wrong:
            self.setProperty("wrong", wrong)
            self.update()

    def _commit(self) -> None:
        if any(mark in self.text() for mark in LINE_MARKS):
            self.setText(" ".join(self.text().split()))  # several lines were pasted
        if self.text() != self._shown:
            self._shown = self.text()
            self.setModified(False)
            self.committed.emit(self.text())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Up and Down step; Escape takes back what was typed, also where it was refused."""
        key = event.key()
        if (event.matches(QKeySequence.StandardKey.Undo) and not self.isUndoAvailable()) or (
            event.matches(QKeySequence.StandardKey.Redo) and not self.isRedoAvailable()
        ):
            event.ignore()  # nothing is being typed: it is meant for the plan
        elif key in (Qt.Key.Key_Up, Qt.Key.Key_Down) and not event.modifiers():
            self._commit()
            self.stepped.emit(1 if key == Qt.Key.Key_Up else -1)
        elif key == Qt.Key.Key_Escape and self.text() != self._accepted:
            self.setText(self._accepted)
            self._commit()  # ends the message where it had been refused
            self.setModified(False)
        else:
            super().keyPressEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """A value that is too long shows its start."""
        super().focusOutEvent(event)
        self.setCursorPosition(0)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Reached by keyboard, the whole value is selected so that typing replaces it."""
        super().focusInEvent(event)
        if event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason):
            self.selectAll()


class ComboBox(QComboBox):
    """A combo box drawn like the other inputs; the wheel scrolls the form unless the box has the focus."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(ROW_HEIGHT)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(6)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Only with the focus."""
        if takes_wheel(self, event):
            super().wheelEvent(event)

    def showPopup(self) -> None:
        """As wide as its entries, which may be longer than the box."""
        view = self.view()
        view.setMinimumWidth(min(view.sizeHintForColumn(0) + POPUP_MARGIN, WIDEST_POPUP))
        super().showPopup()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Ground, text, chevron."""
        tokens = tokens_of(self)
        painter = QPainter(self)
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        hover = bool(option.state & QStyle.StateFlag.State_MouseOver)
        draw_field(painter, self, tokens, focus=self.hasFocus(), hover=hover)
        area = self.rect().adjusted(TEXT_LEFT, 0, TEXT_LEFT - TEXT_MARGINS, 0)
        painter.setPen(QColor(tokens.text if self.isEnabled() else tokens.muted))
        text = QFontMetrics(self.font()).elidedText(self.currentText(), Qt.TextElideMode.ElideRight, area.width())
        painter.drawText(area, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, text)
        chevron(painter, QPointF(self.width() - 13, self.height() / 2), tokens.muted)


class PickerButton(QAbstractButton):
    """What is chosen, in two or three lines; opens a chooser. typed(text): a key that begins a search."""

    typed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._lines: tuple[str, ...] = ()
        self._counted, self._room = 0, 1 << 20  # until it is laid out, lines are as long as they are
        self._busy = False
        self._chip = ""
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)

    def set_content(self, title: str, *lines: str, busy: bool = False, chip: str = "") -> None:
        """A title and up to two lines of facts; chip: a word that marks the whole as out of the ordinary."""
        lines = tuple(map(shown, lines))
        if (title, lines, busy, chip) == (self.text(), self._lines, self._busy, self._chip):
            return  # else every step of a drag would lay out the whole form
        self.setText(title)
        self._lines = lines
        self._busy = busy
        self._chip = chip
        self.setAccessibleDescription("; ".join(part for part in (title, chip, *lines) if part))
        self.setToolTip("\n".join((title, *lines)))
        self.updateGeometry()
        self.update()

    def _small(self) -> QFont:
        font = QFont(self.font())
        font.setPointSizeF(font.pointSizeF() * 0.92)
        return font

    def _rows(self) -> list[str]:
        """The facts in lines of whole facts; a line of several that has no room becomes two."""
        room, metrics = self._room, QFontMetrics(self._small())
        rows: list[str] = []
        for line in self._lines:
            facts = line.split(DOT)
            taken = facts[0]
            for fact in facts[1:]:
                longer = f"{taken}{DOT}{fact}"
                if metrics.horizontalAdvance(longer) > room and len(rows) < MOST_ROWS - 1:
                    rows.append(taken)
                    longer = fact
                taken = longer
            rows.append(taken)
        return rows

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width may need other lines; the layout that sets it now would not hear of another height."""
        super().resizeEvent(event)
        self._room = self.width() - 20
        if len(self._rows()) != self._counted:
            QTimer.singleShot(0, self, self.updateGeometry)

    def sizeHint(self) -> QSize:
        """High enough for the lines."""
        small = QFontMetrics(self._small()).height()
        self._counted = len(self._rows())
        return QSize(200, 20 + self.fontMetrics().height() + self._counted * (small + 2))

    def minimumSizeHint(self) -> QSize:
        """As wide as a short name."""
        return QSize(120, self.sizeHint().height())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter, Down and F4 open; a character begins a search."""
        text = event.text()
        plain = not event.modifiers() & ~(Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.KeypadModifier)
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Down, Qt.Key.Key_F4):
            self.click()
        elif plain and text and text.isprintable() and not text.isspace():
            self.typed.emit(text)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Ground, title, facts, chevron."""
        tokens = tokens_of(self)
        painter = QPainter(self)
        draw_field(painter, self, tokens, focus=self.hasFocus(), hover=self.underMouse())
        area = self.rect().adjusted(10, 9, -10, -9)
        bold = QFont(self.font())
        bold.setWeight(QFont.Weight.DemiBold)
        painter.setFont(bold)
        painter.setPen(QColor(tokens.muted if self._busy else tokens.text))
        metrics = QFontMetrics(bold)
        taken = self._draw_chip(painter, area, tokens) if self._chip else 0
        painter.setFont(bold)
        painter.setPen(QColor(tokens.muted if self._busy else tokens.text))
        title = metrics.elidedText(self.text(), Qt.TextElideMode.ElideMiddle, area.width() - 18 - taken)
        painter.drawText(area, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop, title)
        chevron(painter, QPointF(area.right() - 4, area.top() + metrics.height() / 2), tokens.muted)
        small = self._small()
        painter.setFont(small)
        painter.setPen(QColor(tokens.muted))
        metrics_small = QFontMetrics(small)
        top = area.top() + metrics.height() + 2
        for line in self._rows():
            text = metrics_small.elidedText(line, Qt.TextElideMode.ElideRight, area.width())
            painter.drawText(
                QRect(area.left(), top, area.width(), metrics_small.height()), Qt.AlignmentFlag.AlignLeft, text
            )
            top += metrics_small.height() + 2

    def _draw_chip(self, painter: QPainter, area: QRect, tokens: Tokens) -> int:
        """The chip beside the chevron; the width that it takes."""
        small = self._small()
        metrics = QFontMetrics(small)
        width = metrics.horizontalAdvance(self._chip) + 14
        place = QRectF(area.right() - 16 - width, area.top() - 1.5, width, metrics.height() + 3)
        painter.setPen(QPen(QColor(tokens.warning), 1.0))
        painter.setBrush(QColor(tokens.warning_soft))
        painter.drawRoundedRect(place, place.height() / 2, place.height() / 2)
        painter.setFont(small)
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, self._chip)
        return width + 6
