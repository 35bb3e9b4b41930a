"""kvplanner report: a plan as a page to hand on: HTML, PDF or a short Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import note, say, write_file
from kvplanner.errors import BadInput
from kvplanner.request.flags import add_plan_words, split_flags

if TYPE_CHECKING:
    from kvplanner.report.sheet import Sheet

# Makes the bytes of a PDF: (sheet, day) -> bytes. It needs Qt, which the terminal does not.
PdfMaker = Callable[["Sheet", str], bytes]
KINDS: Final = (".html", ".pdf", ".md")
_EXAMPLES: Final = """examples:
  kvplanner report my.kvplan.json -o plan.html
  kvplanner report Qwen3-32B --gpu 2xH100 --load 16@4000+500 -o plan.pdf -- --max-model-len 32k
  kvplanner report my.kvplan.json -o -            a short Markdown on standard output, for an issue

Names and paths of this machine are left out unless --private says otherwise.

exit status: 0 fits, 1 does not fit, 2 bad input or cannot be told
"""
_USAGE: Final = "kvplanner report PLAN -o FILE.html|FILE.pdf|FILE.md|- [options] [-- ENGINE FLAGS]"


def parser() -> Parser:
    """The arguments of `report`; the engine's own flags follow "--"."""
    made = Parser("report", "A plan as a page to hand on.", _EXAMPLES, _USAGE)
    add_plan_words(made)
    add = made.add_argument
    add("-o", "--output", default="", metavar="FILE", help="what to write: .html, .pdf or .md; - for Markdown here")
    add("--unit", choices=("GiB", "GB"), default="GiB", help="of every size (GiB)")
    add("--private", action="store_true", help="also names and paths that only this machine has")
    add("--online", action="store_true", help="ask the Hub for models that a plan file names")
    return made


def run(argv: Sequence[str], pdf: PdfMaker | None = None) -> int:
    """Writes the report and returns the plan's status. pdf: what makes a PDF, None where nothing can."""
    from datetime import UTC, datetime

    from kvplanner.cli.plan import make_plan, sources, status_of
    from kvplanner.report.sheet import sheet
    from kvplanner.request.words import build, words_of
    from kvplanner.solve.others import others
    from kvplanner.solve.remedies import remedies
    from kvplanner.source.resolve import local_path

    ours, flags = split_flags(argv)
    given = parser().parse_args(ours)
    kind = _kind(given.output)
    if kind == ".pdf" and pdf is None:
        raise BadInput("a PDF needs the window's packages", given.output, "Write .html or .md, or install PySide6")
    built = build(words_of(given, flags), sources(online=given.online))
    plan = make_plan(built)
    ways = () if plan.fits is None else remedies(built.request, plan, others)
    path = local_path(built.model, built.opened)
    made = sheet(plan, ways, unit=given.unit, path=path, private=given.private)
    day = datetime.now(tz=UTC).date().isoformat()
    if given.output == "-":
        from kvplanner.report.brief import brief

        say(brief(made).rstrip("\n"))
    else:
        write_file(given.output, _content(made, kind, day, pdf))
        note(f"wrote {given.output}")
    return status_of(plan)


def _kind(name: str) -> str:
    """What a name asks for by its ending. Raises BadInput."""
    if not name:
        raise BadInput("nothing says where to write", "-o", "Write -o plan.html, -o plan.pdf, -o plan.md or -o -")
    kind = next((kind for kind in KINDS if name.lower().endswith(kind)), ".md" if name == "-" else "")
    if not kind:
        raise BadInput("is no kind of report", name, f"Give a name that ends in {', '.join(KINDS)}")
    return kind


def _content(made: Sheet, kind: str, day: str, pdf: PdfMaker | None) -> bytes:
    if kind == ".pdf" and pdf is not None:
        return pdf(made, day)
    if kind == ".md":
        from kvplanner.report.brief import brief

        return brief(made, when=day).encode(errors="replace")
    from kvplanner.report.html import html

    return html(made, when=day).encode(errors="replace")
