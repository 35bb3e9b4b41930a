"""Where figures and names of the start-up picture stand: each at its own step or line, none over another; no Qt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvplanner.ui.startup.steps import LEFT, RIGHT, Step, Steps, right_end
from kvplanner.ui.theme.geometry import Rect


def is_free(rect: Rect, taken: Iterable[Rect]) -> bool:
    """Whether a text may stand here beside those that stand already."""
    return not any(
        rect.x < t.right and t.x < rect.right and rect.y < t.bottom - 1 and t.y < rect.bottom - 1 for t in taken
    )


def line_places(
    steps: Steps, width: float, texts: tuple[float, float], high: float, taken: Sequence[Rect] = ()
) -> tuple[Rect, Rect | None]:
    """Places of the capacity's and the budget's names: each at its own line, on no other line and on no text.

    texts: how wide the two are; high: of a line of text; taken: where texts stand. The upper line's name stands above
    it and the lower one's below where there is room; the budget's has no place where there is none.
    """
    over = steps.budget_y is not None and steps.budget_y < steps.capacity_y  # the budget ends above the capacity
    lines = [y for y in (steps.capacity_y, steps.budget_y) if y is not None]
    inside = right_end(steps) + RIGHT * 0.8 >= width

    def stands(rect: Rect) -> bool:
        crossed = inside and any(rect.y < line < rect.bottom for line in lines)
        return not crossed and rect.y >= 0 and rect.bottom <= steps.base_y and is_free(rect, taken)

    tried = list(_places(steps, steps.capacity_y, steps.budget_y, texts[0], high, inside, not over))
    capacity = next((rect for rect in tried if stands(rect)), tried[0])
    if steps.budget_y is None:
        return capacity, None
    taken = [*taken, capacity]
    others = _places(steps, steps.budget_y, steps.capacity_y, texts[1], high, inside, over)
    return capacity, next((rect for rect in others if stands(rect)), None)


def _places(
    steps: Steps, line: float, other: float | None, wide: float, high: float, inside: bool, above: bool
) -> Iterator[Rect]:
    """Where a line's name may stand, the best first: `above` it or below, at whichever end has room."""
    end = right_end(steps)
    if not inside:
        near = other is not None and abs(line - other) < high
        away = (high + 1 if above else -1) if near else high / 2
        yield Rect(end + 6, line - away, wide, high)
        return
    room = steps.later[-1][2].right - steps.later[0][2].x if steps.later else 0.0
    sides = (LEFT + 4, end - wide - 2)
    for up in (above, not above):
        for left in reversed(sides) if room >= wide + 6 else sides:
            yield Rect(left, line - high - 1 if up else line + 1, wide, high)


def free_row(rects: Sequence[Rect], shares: Sequence[float], high: float, taken: Sequence[Rect]) -> float | None:
    """The height at which a line of text can stand in every one of these boxes; None for none.

    shares: of the boxes' height, the best first.
    """
    for share in shares:
        y = rects[0].y + (rects[0].h - high) * share
        if rects[0].h >= high + 4 and all(is_free(Rect(r.x, y, r.w, high), taken) for r in rects):
            return y
    return None


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
        under = below(inside + high)
        return (under, inside) if under + high < box.bottom else (inside, None)
    return inside, top - high - 2
