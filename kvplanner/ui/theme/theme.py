"""Theme: the palette of the window, light or dark, following the system or by choice, and when its style begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from PySide6 import QtCore
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QColor, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

from kvplanner.ui.theme.palette import CONTRAST_DARK, CONTRAST_LIGHT, DARK, LIGHT, Tokens, luminance

if TYPE_CHECKING:
    from PySide6.QtWidgets import QStyle

Choice = Literal["system", "light", "dark", "contrast"]
DARK_BELOW: Final = 0.18


def palette_of(tokens: Tokens) -> QPalette:
    """A theme's colours as Qt's palette."""
    role = QPalette.ColorRole
    colours = {
        role.Window: tokens.window, role.WindowText: tokens.text, role.Base: tokens.panel,
        role.AlternateBase: tokens.field, role.Text: tokens.text, role.PlaceholderText: tokens.muted,
        role.Button: tokens.panel, role.ButtonText: tokens.text, role.BrightText: tokens.danger,
        role.Highlight: tokens.selection, role.HighlightedText: tokens.text, role.Link: tokens.accent,
        role.LinkVisited: tokens.warning, role.ToolTipBase: tokens.panel, role.ToolTipText: tokens.text,
        role.Light: tokens.raised, role.Midlight: tokens.border, role.Mid: tokens.outline, role.Dark: tokens.outline,
        role.Shadow: tokens.border, role.Accent: tokens.accent,
    }  # fmt: skip
    palette = QPalette()
    for colour_role, colour in colours.items():
        palette.setColor(colour_role, QColor(colour))
    for colour_role in (role.Text, role.ButtonText, role.WindowText):
        palette.setColor(QPalette.ColorGroup.Disabled, colour_role, QColor(tokens.muted))
    return palette


class Theme(QObject):
    """The application's theme. changed(): the colours are other ones.

    It begins with the grounds alone, for the first frame; `complete` adds the drawing style.
    """

    changed = Signal()

    def __init__(self, app: QApplication, choice: Choice = "system") -> None:
        super().__init__(app)
        self._app = app
        self.choice: Choice = choice
        self._system_dark = luminance(app.palette().color(QPalette.ColorRole.Window).name()) < DARK_BELOW
        self._style: QStyle | None = None
        # What the system asks for beyond its palette is looked up by `complete`: PySide makes every enum of Qt for it.
        dark = choice == "dark" or (choice != "light" and self._system_dark)
        plain, contrast = (DARK, CONTRAST_DARK) if dark else (LIGHT, CONTRAST_LIGHT)
        self.tokens = contrast if choice == "contrast" else plain
        app.setPalette(palette_of(self.tokens))

    def complete(self) -> None:
        """Draw everything in the theme's style from now on, and follow the system."""
        from kvplanner.ui.theme.style import Style

        if self._style is not None:
            return
        self._style = Style()
        self._app.setStyle(self._style)
        self._colour(self._wanted())  # anew: some colours are the style's own
        hints = self._app.styleHints()
        hints.colorSchemeChanged.connect(self._scheme_changed)
        hints.accessibility().contrastPreferenceChanged.connect(self._scheme_changed)

    def set_choice(self, choice: Choice) -> None:
        """Follow the system, or be light, dark, or as light or dark as the system with high contrast."""
        if choice != self.choice:
            self.choice = choice
            self.complete()
            self._apply()

    def _scheme_changed(self) -> None:
        if self.choice in ("system", "contrast"):
            self._apply()

    def _wanted(self) -> Tokens:
        if self.choice == "contrast" or (self.choice == "system" and _more_contrast()):
            return CONTRAST_DARK if self._dark() else CONTRAST_LIGHT
        return DARK if self._dark() else LIGHT

    def _dark(self) -> bool:
        if self.choice in ("light", "dark"):
            return self.choice == "dark"
        scheme = QGuiApplication.styleHints().colorScheme()
        if scheme == QtCore.Qt.ColorScheme.Unknown:
            return self._system_dark
        return scheme == QtCore.Qt.ColorScheme.Dark

    def _apply(self) -> None:
        wanted = self._wanted()
        if wanted != self.tokens:
            self._colour(wanted)
        else:
            self.changed.emit()

    def _colour(self, wanted: Tokens) -> None:
        self.tokens = wanted
        self._app.setPalette(palette_of(wanted))
        self.changed.emit()


def _more_contrast() -> bool:
    """Whether the system asks for it."""
    hints = QGuiApplication.styleHints()  # what it gives out lasts no longer than this reference
    return hints.accessibility().contrastPreference() == QtCore.Qt.ContrastPreference.HighContrast


def choice_of(text: str) -> Choice:
    """A setting's text as a choice."""
    return next((choice for choice in get_args(Choice) if choice == text), "system")
