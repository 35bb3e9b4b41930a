"""The explanation as rich text: arithmetic, questions that open, and the table of inputs, in one page."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from math import ceil
from typing import Final

from kvplanner.report.explain import Explanation, InputRow
from kvplanner.report.words import rich
from kvplanner.ui.theme.palette import Tokens

EMPTY: Final = "Select a segment in the bars or in the table to see how it was calculated."
HEADS: Final = ("input", "value", "", "from")
PADDING: Final = (8, 8, 8, 0)
COLUMN_GAP: Final = 10  # pixels between the columns of inputs, the cells' padding in it
LEAST_SOURCE: Final = 110  # pixels of where an input comes from
BESIDE, BETWEEN = 0.45, 0.03  # shares of a wide page: the inputs beside the arithmetic, the air between
HEAD_GAP: Final = 6
# A link's address is this and the number of its question.
ASK: Final = "ask:"
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=(?:GiB|GB|MiB|MB|B|bytes|tokens|blocks|layers|%)\b)")


def together(text: str) -> str:
    """Rich text in which no number is parted from its unit."""
    return _BEFORE_UNIT.sub("&nbsp;", rich(text)).replace("≈ ", "≈&nbsp;")


def as_html(
    explanation: Explanation | None,
    tokens: Tokens,
    family: str,
    empty: str = EMPTY,
    *,
    measure: Callable[[str], float],
    width: int,
    opened: Collection[str] | None = None,
    wide: bool = False,
    corner: int = 0,
) -> str:
    """The explanation in a theme's colours, for a page of `width` pixels. measure(text): the pixels that a text takes;
    opened: the questions whose answers show, None for all; wide: inputs beside the arithmetic instead of below it;
    corner: pixels to the right of the title that a button takes."""
    if explanation is None:
        return f'<p style="color:{tokens.muted}">{rich(empty)}</p>'
    head = _head(explanation, tokens, corner)
    notes = "".join(f'<p style="margin:4px 0 0 0">{together(note.rstrip("."))}.</p>' for note in explanation.notes)
    left = "".join((*_arithmetic(explanation, tokens), *_questions(explanation, tokens, opened)))
    rules = f'<p style="margin:7px 0 0 0;color:{tokens.muted}">{rich(explanation.rules)}</p>'
    columns = _columns(explanation.inputs, measure)
    least = _least_source(explanation.inputs, measure)
    if wide and columns:
        side = max(int(width * BESIDE), min(sum(columns) + least, width // 2))
        inputs = _inputs(explanation.inputs, tokens, columns, side, least)
        between = int(width * BETWEEN)
        cells = f'<td width="{width - side - between}">{left}{notes}{rules}</td><td width="{between}"></td>'
        cells += f'<td width="{side}">{inputs}</td>'
        body = f'<table width="{width}" cellspacing="0" cellpadding="0" style="margin-top:{HEAD_GAP}px">'
        body += f"<tr>{cells}</tr></table>"
    else:
        inputs = _inputs(explanation.inputs, tokens, columns, width, least, "margin-top:8px")
        body = f"{left}{notes}{inputs}{rules}"
    return f"<div style=\"font-family:'{family}';color:{tokens.text}\">{head}{body}</div>"


def _head(explanation: Explanation, tokens: Tokens, corner: int) -> str:
    text = f"{rich(explanation.where)} · {rich(explanation.meaning)}"
    where = f'<p style="margin:1px 0 {HEAD_GAP}px 0;color:{tokens.muted}">{text}</p>'
    return f'<p style="margin:0 {corner}px 0 0"><b>{rich(explanation.title)}</b></p>{where}'


def _arithmetic(explanation: Explanation, tokens: Tokens) -> list[str]:
    muted = f"color:{tokens.muted}"
    out = [
        f'<p style="margin:0 0 1px 0;font-weight:600">{together(explanation.value)}</p>',
        f'<p style="margin:0 0 5px 0;{muted}">{together(explanation.band)}</p>',
    ]
    for formula in explanation.formulas:
        head, *numbers = formula.lines()
        out.append(f'<p style="margin:0;{muted}">{together(head)}</p>')
        out += [f'<p style="margin:0 0 4px 0;font-family:monospace">{together(line)}</p>' for line in numbers]
    return out


def _questions(explanation: Explanation, tokens: Tokens, opened: Collection[str] | None) -> list[str]:
    out: list[str] = []
    for number, answer in enumerate(explanation.answers):
        shown = opened is None or answer.question in opened
        style = f"color:{tokens.accent};text-decoration:none"
        sign = "▾" if shown else "▸"
        link = f'<a href="{ASK}{number}" style="{style}"><b>{sign}&nbsp;{rich(answer.question)}</b></a>'
        out.append(f'<p style="margin:{6 if number == 0 else 2}px 0 1px 0">{link}</p>')
        if shown:
            out.append(f'<p style="margin:0 0 5px 14px">{together(answer.text)}</p>')
    return out


def _columns(rows: tuple[InputRow, ...], measure: Callable[[str], float]) -> tuple[int, ...]:
    """The pixels of names, values and other values, whole: Qt breaks a word whose column is too narrow."""
    if not rows:
        return ()
    texts = ((*(row[at] for row in rows), HEADS[at]) for at in range(3))
    return tuple(ceil(max(map(measure, column))) + COLUMN_GAP for column in texts)


def _least_source(rows: tuple[InputRow, ...], measure: Callable[[str], float]) -> int:
    """The pixels that the longest word takes of where inputs come from."""
    words = (word for row in rows for word in row.source.split())
    return max(ceil(max(map(measure, words), default=0)) + 2, LEAST_SOURCE)


def _inputs(
    rows: tuple[InputRow, ...], tokens: Tokens, columns: tuple[int, ...], width: int, least: int, style: str = ""
) -> str:
    if not rows:
        return ""
    muted = f"color:{tokens.muted}"
    if width - sum(columns) < least:  # what a figure is in the other unit gives way to where it comes from
        columns = (columns[0], columns[1], 0)
    widths = (*columns, max(width - sum(columns), least))
    shown = [at for at in range(4) if widths[at]]
    inks = ("", "", muted, muted)

    def line(texts: Sequence[str], *styles: str) -> str:
        cells = (
            f'<td width="{widths[at]}" align="{"right" if at == 1 else "left"}"'
            f' style="padding:1px {PADDING[at]}px 1px 0;{styles[at]}">{texts[at]}</td>'
            for at in shown
        )
        return f"<tr>{''.join(cells)}</tr>"

    lines = [line(HEADS, muted, muted, muted, muted)]
    for row in rows:
        tip = f' title="{rich(row.tip)}"' if row.tip else ""
        source = f"<span{tip}>{rich(row.source)}</span>"
        lines.append(line((*map(_unbroken, (row.name, row.value, row.other)), source), *inks))
    table = f'<table width="{sum(widths)}" cellspacing="0" cellpadding="0" style="{style}">'
    return f"{table}{''.join(lines)}</table>"


def _unbroken(text: str) -> str:
    return rich(text).replace(" ", "&nbsp;")
