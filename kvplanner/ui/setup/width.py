"""How wide the form is: known before the form is made, since its ground shows first."""

from typing import Final

from kvplanner.ui.theme.geometry import USUAL_LINE

PANEL_WIDTH: Final = 330
NARROWEST: Final = 300
WIDEST: Final = 620
FOLD_BELOW: Final = 780  # pixels of window: less leaves the plan no room beside the form
RAIL_WIDTH: Final = 24  # what stays of a folded form
GRIP_WIDTH: Final = 6  # the form's edge, to be dragged


def folds(window_width: int) -> bool:
    """Whether a window of this width begins without its form."""
    return window_width < FOLD_BELOW


def panel_width(kept: int, line_height: int) -> int:
    """The width for letters of this height: the one that the user chose, 0 for none chosen."""
    if kept:
        return min(max(kept, NARROWEST), WIDEST)
    growth = max(line_height / USUAL_LINE - 1, 0.0)
    return min(round(PANEL_WIDTH * (1 + growth / 2)), WIDEST)
