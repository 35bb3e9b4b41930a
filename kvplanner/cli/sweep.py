"""kvplanner sweep: one setting over its range, or two against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import DOES_NOT_FIT, FITS, emit_json, say
from kvplanner.errors import BadInput
from kvplanner.request.flags import add_plan_words, split_flags

_EXAMPLES: Final = """examples:
  kvplanner sweep Llama-3.1-8B-Instruct --gpu "RTX 4090" --over context=4k..128k
  kvplanner sweep Qwen3-32B --gpu H100 --load 1@1500+500 --over users=1..256 --over context=4k..32k
  kvplanner sweep Qwen3-32B --gpu 8xH100 --over tp             all that the model allows
  kvplanner sweep Llama-3.1-8B-Instruct --gpu H100 --over release=0.20..0.33 --json

--over takes context, users, max-requests, batched-tokens, tp, pp, dp, utilisation, kv-dtype, release, format, gpus or
a flag of the engine's; then =LOW..HIGH, or =A,B,C, or nothing for all that it may be.

exit status: 0 some point fits, 1 none does, 2 bad input
"""
_USAGE: Final = "kvplanner sweep MODEL [--gpu SPEC] --over NAME[=VALUES] [options] [-- ENGINE FLAGS]"
_POINTS: Final = 16
_MAP_POINTS: Final = 8


def parser() -> Parser:
    """The arguments of `sweep`; the engine's own flags follow "--"."""
    made = Parser("sweep", "What a plan says as one setting changes.", _EXAMPLES, _USAGE)
    add_plan_words(made)
    add = made.add_argument
    add("--over", action="append", default=[], metavar="NAME[=VALUES]", help="the setting; twice: a map of two")
    add("--points", type=int, default=0, metavar="N", help=f"of each range ({_POINTS}; of a map {_MAP_POINTS})")
    add("--json", action="store_true", help="every point as JSON, schema kvplanner.sweep/1")
    return made


def run(argv: Sequence[str]) -> int:
    """Prints the points."""
    from kvplanner.catalog.gpus import machine_words
    from kvplanner.cli.plan import sources
    from kvplanner.report import sweep as report
    from kvplanner.request.words import build, words_of
    from kvplanner.solve.axis import axis
    from kvplanner.solve.sweep import sweep

    ours, flags = split_flags(argv)
    given = parser().parse_args(ours)
    if not 1 <= len(given.over) <= 2:
        many = "one or two settings are varied"
        raise BadInput(many, "--over", "Write for example --over context=4k..128k")
    built = build(words_of(given, flags), sources())
    request = built.request
    count = given.points or (_POINTS if len(given.over) == 1 else _MAP_POINTS)
    axes = [axis(request, text, count) for text in given.over]
    points = list(sweep(request, axes))
    if given.json:
        emit_json(report.to_json(axes, points, request, machine_words(request.machine)))
    else:
        say("\n".join([report.heading(request), "", *report.lines(axes, points, request)]))
    return FITS if any(point.fits for point in points) else DOES_NOT_FIT
