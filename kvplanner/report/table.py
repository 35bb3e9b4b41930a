"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table(rows: Sequence[Sequence[str]], align: str) -> Iterator[str]:
    """Lines of columns as wide as their widest cell; align: "<" or ">" for each column."""
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(align))]
    for row in rows:
        yield "  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, align, widths, strict=True)).rstrip()


def fitted(rows: Sequence[Sequence[str]], align: str, spare: Sequence[int], width: int | None) -> Iterator[str]:
    """A table no wider than `width` where that can be had by leaving out the columns in `spare`, in their order."""
    kept = list(range(len(align)))
    left = list(spare)

    def wide() -> int:
        return sum(max(len(row[i]) for row in rows) + 2 for i in kept) - 2

    while width is not None and left and wide() > width:
        kept.remove(left.pop(0))
    return table([[row[i] for i in kept] for row in rows], "".join(align[i] for i in kept))


class Running:
    """A table whose rows are told as they are made: each column is as wide as is said before, and no narrower than its
    head. Columns in `spare` are left out, in their order, where it would be wider than `width`.
    """

    def __init__(
        self, heads: Sequence[str], align: str, widths: Sequence[int], spare: Sequence[int], width: int | None
    ) -> None:
        self._widths = [max(len(head), least) for head, least in zip(heads, widths, strict=True)]
        self._align = align
        self._kept = list(range(len(heads)))
        for place in spare:
            if width is not None and sum(self._widths[at] + 2 for at in self._kept) - 2 > width:
                self._kept.remove(place)

    def line(self, row: Sequence[str]) -> str:
        """A row."""
        return "  ".join(f"{row[at]:{self._align[at]}{self._widths[at]}}" for at in self._kept).rstrip()
