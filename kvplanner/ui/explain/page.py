"""The explanation as rich text: arithmetic, questions that open, and the table of inputs, in one page."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from kvplanner.report.explain import Explanation, InputRow
from kvplanner.report.words import rich
from kvplanner.ui.theme.palette import Tokens

EMPTY: Final = "Select a segment in the bars or in the table to see how it was calculated."
# A link's address is this and the number of its question.
ASK: Final = "ask:"
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=(?:GiB|GB|MiB|MB|B|bytes|tokens|blocks|layers|%)\b)")


def together(text: str) -> str:
    """Rich text in which no number is parted from its unit."""
    return _BEFORE_UNIT.sub("&nbsp;", rich(text))


def as_html(
    told: Explanation | None,
    tokens: Tokens,
    family: str,
    empty: str = EMPTY,
    *,
    opened: Collection[str] | None = None,
    wide: bool = False,
    corner: int = 0,
) -> str:
    """The explanation in a theme's colours. opened: the questions whose answers show, None for all; wide: inputs
    beside the arithmetic instead of below it; corner: pixels to the right of the title that a button takes."""
    if told is None:
        return f'<p style="color:{tokens.muted}">{rich(empty)}</p>'
    head = _head(told, tokens, corner)
    notes = "".join(f'<p style="margin:4px 0 0 0">{together(note.rstrip("."))}.</p>' for note in told.notes)
    left = "".join((*_arithmetic(told, tokens), *_questions(told, tokens, opened)))
    rules = f'<p style="margin:7px 0 0 0;color:{tokens.muted}">{rich(told.rules)}</p>'
    inputs = _inputs(told.inputs, tokens, whole=wide)
    body = f"{left}{notes}{inputs}{rules}"
    if wide and inputs:
        cells = f'<td width="52%">{left}{notes}{rules}</td><td width="3%"></td><td width="45%">{inputs}</td>'
        body = f'<table width="100%" cellspacing="0" cellpadding="0"><tr>{cells}</tr></table>'
    return f"<div style=\"font-family:'{family}';color:{tokens.text}\">{head}{body}</div>"


def _head(told: Explanation, tokens: Tokens, corner: int) -> str:
    where = f'<p style="margin:1px 0 5px 0;color:{tokens.muted}">{rich(told.where)} · {rich(told.meaning)}</p>'
    return f'<p style="margin:0 {corner}px 0 0"><b>{rich(told.title)}</b></p>{where}'


def _arithmetic(told: Explanation, tokens: Tokens) -> list[str]:
    muted = f"color:{tokens.muted}"
    out = [
        f'<p style="margin:0 0 1px 0;font-weight:600">{together(told.value)}</p>',
        f'<p style="margin:0 0 5px 0;{muted}">{together(told.band)}</p>',
    ]
    for formula in told.formulas:
        head, *numbers = formula.lines()
        out.append(f'<p style="margin:0;{muted}">{together(head)}</p>')
        out += [f'<p style="margin:0 0 4px 0;font-family:monospace">{together(line)}</p>' for line in numbers]
    return out


def _questions(told: Explanation, tokens: Tokens, opened: Collection[str] | None) -> list[str]:
    out: list[str] = []
    for number, answer in enumerate(told.answers):
        shown = opened is None or answer.question in opened
        style = f"color:{tokens.accent};text-decoration:none"
        sign = "▾" if shown else "▸"
        link = f'<a href="{ASK}{number}" style="{style}"><b>{sign}&nbsp;{rich(answer.question)}</b></a>'
        out.append(f'<p style="margin:{6 if number == 0 else 2}px 0 1px 0">{link}</p>')
        if shown:
            out.append(f'<p style="margin:0 0 5px 14px">{together(answer.text)}</p>')
    return out


def _inputs(rows: tuple[InputRow, ...], tokens: Tokens, *, whole: bool) -> str:
    if not rows:
        return ""
    muted = f"color:{tokens.muted}"
    heads = (("input", "left"), ("value", "right"), ("", "left"), ("from", "left"))
    head = "".join(f'<td align="{side}" style="padding:1px 8px 2px 0;{muted}">{text}</td>' for text, side in heads)
    lines = [f"<tr>{head}</tr>"]
    name, value, other = (max(len(row[i]) for row in rows) for i in range(3))
    part = max(name + value + other, 1) / 0.62  # the rest is for where they come from; Qt sizes no nested table itself
    shares = [f' width="{length / part:.0%}"' if whole else "" for length in (name, value, other)]
    for row in rows:
        tip = f' title="{rich(row.tip)}"' if row.tip else ""
        lines.append(
            f'<tr><td{shares[0]} style="padding:1px 8px 1px 0">{_unbroken(row.name)}</td>'
            f'<td{shares[1]} align="right" style="padding:1px 8px 1px 0">{_unbroken(row.value)}</td>'
            f'<td{shares[2]} style="padding:1px 8px 1px 0;{muted}">{_unbroken(row.other)}</td>'
            f'<td style="padding:1px 0;{muted}"><span{tip}>{rich(row.source)}</span></td></tr>'
        )
    width = ' width="100%"' if whole else ""
    return f'<table{width} cellspacing="0" cellpadding="0" style="margin-top:8px">{"".join(lines)}</table>'


def _unbroken(text: str) -> str:
    return rich(text).replace(" ", "&nbsp;")
