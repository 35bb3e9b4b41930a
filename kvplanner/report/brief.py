"""A report as a short Markdown: what a ticket needs, on a screen."""

from __future__ import annotations

from collections.abc import Iterator

from kvplanner.printable import printable
from kvplanner.report.sheet import Group, Sheet


def brief(made: Sheet, *, when: str = "") -> str:
    """Verdict, what it is of, the memory of each kind of GPU in a table, what it holds, the command, ways out."""
    return "\n".join(_lines(made, when)).rstrip() + "\n"


def _lines(made: Sheet, when: str) -> Iterator[str]:
    yield from (f"**{escaped(made.verdict.headline)}**", "", escaped(made.title))
    yield from (f"- {escaped(line)}" for line in made.verdict.details)
    yield from (f"- {escaped(name)}: {escaped(text)}" for name, text in made.figures if name not in ("KV cache",))
    if made.verdict.engine_message:
        yield from ("", *fenced(made.verdict.engine_message))
    for group in made.groups:
        yield from ("", *_group(group, made))
    for _, command in made.commands[:1]:
        yield from ("", *fenced(command, "bash"))
    if made.assumed:
        yield ""
        yield from (f"- Assumed: {escaped(line)}" for line in made.assumed)
    if made.ways and made.verdict.state != "fits":
        yield from ("", f"{made.ways_title}:")
        yield from (f"{at}. {escaped(way.title)}: {escaped(way.outcome)}" for at, way in enumerate(made.ways[:3], 1))
    yield from ("", f"<sub>{escaped(f'{when}. ' if when else '')}{escaped(made.foot)}</sub>")


def _group(group: Group, made: Sheet) -> Iterator[str]:
    yield f"{escaped(group.title)}: {escaped(group.gpu)}, {escaped(group.size)}"
    yield ""
    yield f"| part | {made.unit} | range | basis |"
    yield "|---|---:|---:|---|"
    yield from (f"| {escaped(r.title)} | {r.size} | {r.span} | {r.basis} |" for r in group.rows)


def fenced(text: str, language: str = "") -> tuple[str, str, str]:
    """A block of code whose fence is longer than any run of backticks within."""
    longest = run = 0
    for c in text:
        run = run + 1 if c == "`" else 0
        longest = max(longest, run)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}", "\n".join(map(printable, text.split("\n"))), fence


def escaped(words: str) -> str:
    """Keeps Markdown from reading names and formulas as markup."""
    return "".join("\\" + c if c in "\\`*_|<>[]" else c for c in printable(words))
