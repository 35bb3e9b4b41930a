"""Colours of the window and of the pictures, light and dark, as "#rrggbb"; knows no Qt.

Segments are told apart by colour (safe for the common colour-vision deficiencies), by pattern, by order and by
label; text on a segment takes whichever of black and white reads better (WCAG 2.1 relative luminance).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from kvplanner.record import NamedTuple
from kvplanner.report.inks import DARK_FILLS, LIGHT_FILLS

if TYPE_CHECKING:
    from kvplanner.engine.segment import SegmentKind

Pattern = Literal["solid", "empty", "up", "down", "vertical", "horizontal", "grid", "dots", "cross"]
ThemeName = Literal["light", "dark", "contrast-light", "contrast-dark"]

BLACK: Final = "#0b0f14"
WHITE: Final = "#ffffff"
PALE: Final = 0.35  # of a fill's colour


class SegmentInk(NamedTuple):
    """How a segment is drawn: fill, pattern over it in `line`, and text in `text`."""

    fill: str
    text: str
    line: str
    pattern: Pattern


class Tokens(NamedTuple):
    """Every colour of one theme.

    window: behind the panels; panel: cards, tables, the bars' ground; field: inputs; raised: hovered rows and chips;
    border: decoration; outline: borders that carry meaning (3:1 on panel); text, muted: on any of the grounds;
    accent with on_accent: buttons, focus; selection with text: selected rows; success, warning, danger: as text on
    panel and as a ground for on_status; *_soft: quiet grounds for text; strength: how much of their colour the fills of
    pictures have that mix theirs, 1 for all.
    """

    name: ThemeName
    window: str
    panel: str
    field: str
    raised: str
    border: str
    outline: str
    text: str
    muted: str
    accent: str
    on_accent: str
    selection: str
    success: str
    warning: str
    danger: str
    on_status: str
    danger_soft: str
    warning_soft: str
    segments: Mapping[SegmentKind, SegmentInk]
    strength: float = 1.0


@lru_cache(maxsize=256)
def channels(colour: str) -> tuple[int, int, int]:
    """Red, green and blue, 0–255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def luminance(colour: str) -> float:
    """Relative luminance, 0 black to 1 white (WCAG 2.1)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio, 1 to 21 (WCAG 2.1)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@lru_cache(maxsize=256)
def mix(one: str, other: str, share: float) -> str:
    """`share` of the one colour (0–1) over the other."""
    pairs = zip(channels(one), channels(other), strict=True)
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def _ink(fill: str, pattern: Pattern, strength: float = 0.38) -> SegmentInk:
    """The text and pattern colours that a fill asks for."""
    text = max(WHITE, BLACK, key=lambda c: contrast(fill, c))
    return SegmentInk(fill, text, mix(text, fill, strength), pattern)


def _segments(fills: Mapping[SegmentKind, str], panel: str, text: str) -> dict[SegmentKind, SegmentInk]:
    patterns: dict[SegmentKind, Pattern] = {
        "driver_reserved": "cross", "other": "up", "runtime_outside": "vertical", "runtime": "dots",
        "weights": "solid", "workspace": "horizontal", "activations": "down", "cuda_graphs": "grid",
        "kv_cache": "dots", "compute": "down", "output": "horizontal", "fragmentation": "up",
    }  # fmt: skip
    inks = {kind: _ink(fills[kind], pattern) for kind, pattern in patterns.items()}
    inks["headroom"] = SegmentInk(panel, text, mix(text, panel, 0.4), "empty")
    return inks


LIGHT: Final = Tokens(
    name="light",
    window="#f3f5f7",
    panel="#ffffff",
    field="#f6f8fa",
    raised="#e9edf1",
    border="#d5dbe1",
    outline="#7d8792",
    text="#1b2026",
    muted="#555e68",
    accent="#1a5fd0",
    on_accent=WHITE,
    selection="#d6e5fb",
    success="#17753a",
    warning="#8a5a00",
    danger="#c21f2c",
    on_status=WHITE,
    danger_soft="#fdeceb",
    warning_soft="#fdf3dc",
    segments=_segments(LIGHT_FILLS, WHITE, "#1b2026"),
)
DARK: Final = Tokens(
    name="dark",
    window="#191d22",
    panel="#22272d",
    field="#1c2126",
    raised="#2f363e",
    border="#3a424b",
    outline="#7f8a96",
    text="#e8edf2",
    muted="#a7b1bc",
    accent="#6aa9ff",
    on_accent=BLACK,
    selection="#1f3b61",
    success="#4cc38a",
    warning="#e5b552",
    danger="#ff8078",
    on_status=BLACK,
    danger_soft="#46242a",
    warning_soft="#40351c",
    segments=_segments(DARK_FILLS, "#22272d", "#e8edf2"),
)
# For those who ask their system for more contrast: text at 7:1 and more, every border as visible as a letter.
CONTRAST_LIGHT: Final = LIGHT._replace(
    name="contrast-light",
    window="#fdfdfd",
    field="#ffffff",
    raised="#e4e4e4",
    border="#4d4d4d",
    outline="#000000",
    text="#000000",
    muted="#303030",
    accent="#003c9e",
    selection="#cfe0ff",
    success="#0a4f22",
    warning="#5c3b00",
    danger="#93000f",
    danger_soft="#fff1f0",
    warning_soft="#fff7e3",
    segments=_segments(LIGHT_FILLS, WHITE, "#000000"),
)
CONTRAST_DARK: Final = DARK._replace(
    name="contrast-dark",
    window="#040404",
    panel="#000000",
    field="#000000",
    raised="#2b2b2b",
    border="#b5b5b5",
    outline="#ffffff",
    text="#ffffff",
    muted="#dcdcdc",
    accent="#8fc2ff",
    selection="#173d78",
    success="#6fe3a8",
    warning="#ffd36b",
    danger="#ffa39c",
    danger_soft="#3a0d12",
    warning_soft="#332700",
    segments=_segments(DARK_FILLS, "#000000", "#ffffff"),
)
THEMES: Final[dict[ThemeName, Tokens]] = {
    "light": LIGHT,
    "dark": DARK,
    "contrast-light": CONTRAST_LIGHT,
    "contrast-dark": CONTRAST_DARK,
}


@lru_cache(maxsize=8)
@lru_cache(maxsize=64)
def for_ground(window_colour: str) -> Tokens:
    """The theme that belongs to a window's background colour: the one with this very colour, else by its lightness."""
    for tokens in (CONTRAST_LIGHT, CONTRAST_DARK):
        if window_colour.lower() == tokens.window:
            return tokens
    return DARK if luminance(window_colour) < 0.18 else LIGHT


@lru_cache(maxsize=8)
def _paled(name: ThemeName) -> Tokens:
    tokens = THEMES[name]
    accent, success, warning, danger = (
        mix(ink, tokens.muted, 0.3) for ink in (tokens.accent, tokens.success, tokens.warning, tokens.danger)
    )
    segments: dict[SegmentKind, SegmentInk] = {}
    for kind, ink in tokens.segments.items():
        fill = mix(ink.fill, tokens.panel, PALE)
        segments[kind] = SegmentInk(fill, tokens.text, mix(ink.fill, tokens.panel, 2 * PALE), ink.pattern)
    return tokens._replace(
        text=tokens.muted,
        accent=accent,
        success=success,
        warning=warning,
        danger=danger,
        segments=segments,
        strength=0.5,
    )


def paled(tokens: Tokens) -> Tokens:
    """A theme for what is not of now: fills pale, signals greyish, every text as readable as in the theme itself."""
    return _paled(tokens.name)
