"""Where figures and names of the start-up picture stand: each at its own step or line, none over another; no Qt."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kvplanner.ui.startup_steps import LEFT, RIGHT, Step, Steps, right_end


class Place(NamedTuple):
    """Where the name of a line stands: the text's upper edge, and its left and right end."""

    y: float
    left: float
    right: float
    side: Literal["left", "right"]


def line_places(steps: Steps, width: float, texts: tuple[float, float], high: float) -> tuple[Place, Place | None]:
    """Places of the capacity's and the budget's names, so that each stands at its own line and nowhere near the other.

    texts: how wide the two are; high: of a line of text. The upper line's name stands above it, the lower one's below;
    the budget's has no place where both lines lie almost on the ground.
    """
    end = right_end(steps)
    beside = width - end > RIGHT * 0.8
    room = steps.later[-1][2].right - steps.later[0][2].x if steps.later else 0.0
    over = steps.budget_y is not None and steps.budget_y < steps.capacity_y  # the budget ends above the capacity

    def place(y: float, wide: float, above: bool) -> Place:
        edge = y - high - 1 if above else y + 1
        if beside:
            near = steps.budget_y is not None and abs(steps.budget_y - steps.capacity_y) < high
            return Place(edge + (1 if above else -1) * (0 if near else high / 2), end + 6, width - 2, "left")
        if room >= wide + 6:  # where a failing start leaves room
            return Place(edge, end - wide - 4, end - 2, "right")
        return Place(edge, LEFT + 4, LEFT + 6 + wide, "left")

    capacity = place(steps.capacity_y, texts[0], not over)
    if steps.budget_y is None or (not over and not beside and steps.budget_y + 1 + high > steps.base_y):
        return capacity, None
    return capacity, place(steps.budget_y, texts[1], over)


def value_tops(step: Step, lines: tuple[float, ...], high: float, *, twice: bool) -> tuple[float, float | None]:
    """Upper edges of the figures at a stage's end and, if `twice`, at its highest: each at its own step.

    lines: heights that no figure may cross; high: of a line of text.
    """

    def below(y: float) -> float:
        for line in sorted(lines):
            y = line + 2 if y - 1 < line < y + high else y
        return y

    def above(y: float) -> float:
        for line in sorted(lines, reverse=True):
            y = line - high - 1 if y - 1 < line < y + high + 1 else y
        return y

    box, peak, lack = step.box, step.peak, step.lack
    inside = below(box.y + 3)
    if inside + high + 1 > box.bottom:  # a low column
        end = above(min(part.y for part in (box, peak) if part) - high - 2)
        return end, above(end - high) if twice else None
    if not twice or peak is None:
        return inside, None
    within = below((max(peak.y, lack.bottom) if lack else peak.y) + 1)
    if within + high + 1 <= box.y:
        return inside, within
    top = min(part.y for part in (peak, lack) if part)
    if any(top - high - 3 < line < top for line in lines):  # above a line that the stage does not reach
        return below(inside + high), inside
    return inside, top - high - 2
