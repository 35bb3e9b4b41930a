from __future__ import annotations

import itertools

import pytest

from kvplanner.engine.segment import SEGMENT_KINDS, SegmentKind
from kvplanner.ui.theme.palette import (
    DARK,
    LIGHT,
    THEMES,
    Tokens,
    channels,
    contrast,
    for_ground,
    luminance,
    mix,
    paled,
)

GROUNDS = ("window", "panel", "field", "raised", "danger_soft", "warning_soft")
READABLE = 4.5
# Both themes as they are, and paled for a plan that is not of what is set.
SHOWN: dict[str, Tokens] = {
    **dict(THEMES.items()),
    **{f"{name}, pale": paled(tokens) for name, tokens in THEMES.items()},
}
VISIBLE = 3.0
# As engines draw them: those with a profile run, and those that reserve their buffers.
ORDERS: tuple[tuple[SegmentKind, ...], ...] = (
    ("driver_reserved", "other", "runtime_outside", "runtime", "weights", "workspace", "activations", "cuda_graphs",
     "kv_cache", "fragmentation", "headroom"),
    ("driver_reserved", "other", "runtime_outside", "weights", "kv_cache", "compute", "output", "headroom"),
)  # fmt: skip
# Full-strength colour-vision deficiencies in linear RGB: Machado, Oliveira, Fernandes (2009), severity 1.0.
VISION = {
    "usual": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def _lab(colour: str, vision: str) -> tuple[float, float, float]:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in channels(colour))]
    seen = [min(max(sum(a * b for a, b in zip(row, linear, strict=True)), 0.0), 1.0) for row in VISION[vision]]
    x = (0.4124 * seen[0] + 0.3576 * seen[1] + 0.1805 * seen[2]) / 0.95047
    y = 0.2126 * seen[0] + 0.7152 * seen[1] + 0.0722 * seen[2]
    z = (0.0193 * seen[0] + 0.1192 * seen[1] + 0.9505 * seen[2]) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#123456", "#123456") == 1


@pytest.mark.parametrize("tokens", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("ink", ["text", "muted"])
def test_text_is_readable_on_every_ground(tokens: Tokens, ground: str, ink: str) -> None:
    assert contrast(getattr(tokens, ink), getattr(tokens, ground)) >= READABLE


@pytest.mark.parametrize("tokens", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("ink", ["accent", "success", "warning", "danger"])
def test_signals_are_readable(tokens: Tokens, ink: str) -> None:
    assert contrast(getattr(tokens, ink), tokens.panel) >= READABLE
    assert contrast(getattr(tokens, ink), tokens.window) >= READABLE
    on = tokens.on_accent if ink == "accent" else tokens.on_status
    assert contrast(getattr(tokens, ink), on) >= READABLE


@pytest.mark.parametrize("tokens", SHOWN.values(), ids=SHOWN)
def test_selected_rows_and_outlines(tokens: Tokens) -> None:
    assert contrast(tokens.text, tokens.selection) >= READABLE
    assert contrast(tokens.muted, tokens.selection) >= READABLE
    assert contrast(tokens.accent, tokens.selection) >= READABLE
    assert contrast(tokens.outline, tokens.panel) >= VISIBLE
    assert contrast(tokens.danger, tokens.danger_soft) >= READABLE


@pytest.mark.parametrize("tokens", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("kind", SEGMENT_KINDS)
def test_text_on_a_segment_is_readable(tokens: Tokens, kind: str) -> None:
    ink = tokens.segments[kind]  # type: ignore[index]  # asked for before
    assert contrast(ink.text, ink.fill) >= READABLE


@pytest.mark.parametrize("tokens", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("apart", [1, 2])
def test_neighbours_differ_to_every_eye(tokens: Tokens, vision: str, apart: int) -> None:
    for one, other in (pair for order in ORDERS for pair in zip(order, order[apart:], strict=False)):
        pair = (_lab(tokens.segments[one].fill, vision), _lab(tokens.segments[other].fill, vision))
        distance = sum((a - b) ** 2 for a, b in zip(*pair, strict=True)) ** 0.5
        plain = "solid" in (tokens.segments[one].pattern, tokens.segments[other].pattern)
        assert distance >= (10 if plain and apart == 1 else 18), (one, other)  # a pattern beside none tells them apart


@pytest.mark.parametrize("tokens", THEMES.values(), ids=THEMES)
def test_pale_fills_are_fills_still(tokens: Tokens) -> None:
    pale = paled(tokens)
    for kind in SEGMENT_KINDS:
        own, faded = tokens.segments[kind], pale.segments[kind]
        assert faded.pattern == own.pattern
        assert contrast(faded.fill, tokens.panel) <= contrast(own.fill, tokens.panel)
        if kind != "headroom":
            assert faded.fill not in (own.fill, tokens.panel)


@pytest.mark.parametrize("tokens", THEMES.values(), ids=THEMES)
def test_neighbours_differ_without_colour(tokens: Tokens) -> None:
    for order in ORDERS:
        patterns = [tokens.segments[kind].pattern for kind in order]
        assert all(one != other for one, other in itertools.pairwise(patterns))
        assert len(set(patterns)) >= len(patterns) - 2


def test_the_ground_tells_the_theme() -> None:
    assert for_ground(LIGHT.window) is LIGHT
    assert for_ground(DARK.window) is DARK
    assert for_ground(DARK.panel) is DARK


def test_mix() -> None:
    assert mix("#ff0000", "#0000ff", 1) == "#ff0000"
    assert mix("#ff0000", "#0000ff", 0.5) in ("#800080", "#7f007f", "#80007f", "#7f0080")
    assert luminance(mix("#ffffff", "#000000", 0.5)) < 0.3
