"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table(rows: Sequence[Sequence[str]], align: str) -> Iterator[str]:
    """Lines of columns as wide as their widest cell; align: "<" or ">" for each column."""
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(align))]
    for row in rows:
        yield "  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, align, widths, strict=True)).rstrip()
