"""kvplanner compare: plans side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import DOES_NOT_FIT, FITS, emit_json, say
from kvplanner.errors import BadInput
from kvplanner.request.flags import add_plan_flags, add_plan_words, split_flags

if TYPE_CHECKING:
    from argparse import Namespace

    from kvplanner.request.words import PlanWords
    from kvplanner.solve.compare import Side

_EXAMPLES: Final = """examples:
  kvplanner compare today.kvplan.json tomorrow.kvplan.json
  kvplanner compare my.kvplan.json -- --kv-cache-dtype fp8        a plan, and the same with these flags
  kvplanner compare "Qwen3-32B --gpu H100" "Qwen3-32B --gpu 2xL40S -- -tp 2" --load 8@1500+500
  kvplanner compare "Qwen3-32B --engine-version 0.20" "Qwen3-32B --engine-version 0.33" --gpu H100 --explain

A PLAN is a plan file, a model, or in quotes what plan takes. What stands outside the quotes goes for each that does not
say it itself.

exit status: 0 some plan fits, 1 none does, 2 bad input
"""
_USAGE: Final = "kvplanner compare PLAN PLAN .. [--gpu SPEC] [options] [-- ENGINE FLAGS]"


def parser() -> Parser:
    """The arguments of `compare`; an engine's own flags follow "--"."""
    made = Parser("compare", "What differs between plans, and by how much.", _EXAMPLES, _USAGE)
    add = made.add_argument
    add("plans", nargs="*", metavar="PLAN", help='a plan file, a model, or "what plan takes" in quotes; 2 to 4 of them')
    add_plan_flags(made)
    add("--all", action="store_true", help="also what does not differ")
    add("--explain", action="store_true", help="what differs in the arithmetic of each part")
    add("--unit", choices=("GiB", "GB"), default="GiB", help="of every size (GiB)")
    add("--online", action="store_true", help="ask the Hub for models that a plan file names")
    add("--json", action="store_true", help="every row as JSON, schema kvplanner.compare/1")
    return made


def run(argv: Sequence[str]) -> int:
    """Prints the rows that differ."""
    from kvplanner.report import compare as report
    from kvplanner.solve.compare import compare

    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    given, flags = parser().parse_intermixed_args(words[:end]), tuple(words[end + 1 :])
    sides = _sides(given, flags)
    rows = compare(sides)
    if given.json:
        emit_json(report.to_json(sides, rows))
    else:
        say("\n".join(report.lines(sides, rows, unit=given.unit, everything=given.all, why=given.explain)))
    return FITS if any(side.plan is not None and side.plan.fits for side in sides) else DOES_NOT_FIT


def _sides(given: Namespace, flags: tuple[str, ...]) -> list[Side]:
    """The plans: with flags and one PLAN, that one as it is and with them; with several, each with them."""
    from kvplanner.solve.compare import MOST

    named = list(given.plans)
    alone = len(named) == 1 and bool(flags)
    if not 2 <= len(named) + alone <= MOST:
        raise BadInput(f"{len(named)} plans are named", "compare", f"Name 2 to {MOST}, or one and flags after --")
    shared = shared_words(given)
    asked = [(text, one_words(text, shared, () if alone else flags)) for text in named]
    if alone:
        asked.append((f"{named[0]} -- {' '.join(flags)}", one_words(named[0], shared, flags)))
    return [_side(text, words, online=given.online) for text, words in asked]


def shared_words(given: Namespace) -> PlanWords:
    """What is said for every PLAN."""
    from kvplanner.request.words import words_of

    given.model = ""
    return words_of(given, ())


def one_words(text: str, shared: PlanWords, flags: tuple[str, ...]) -> PlanWords:
    """One PLAN's words over what is said for all. Raises BadInput."""
    import shlex

    from kvplanner.reading import expanded, is_there
    from kvplanner.request.words import PlanWords, words_of

    if is_there(expanded(text)) or not any(c.isspace() for c in text):
        return shared._replace(model=text, flags=flags)
    try:
        ours, own = split_flags(shlex.split(text))
    except ValueError as error:
        raise BadInput(f"{text[:60]!r} cannot be read: {error}", "compare", "Check its quotes") from error
    one = Parser("compare", "One plan.")
    add_plan_words(one)
    found = words_of(one.parse_args(ours), (*own, *flags))
    return PlanWords._make(mine or said for mine, said in zip(found, shared, strict=True))


def _side(name: str, words: PlanWords, *, online: bool) -> Side:
    """The plan of the words. Raises BadInput for words that make no request; what an engine refuses is told beside."""
    from kvplanner.cli.plan import make_plan, sources
    from kvplanner.errors import PlannerError
    from kvplanner.request.words import build
    from kvplanner.solve.compare import Side

    built = build(words, sources(online=online))
    try:
        return Side(name, make_plan(built))
    except PlannerError as error:
        return Side(name, None, error.what)
