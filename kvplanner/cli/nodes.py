"""kvplanner nodes: how many machines so many users need, or how many users so many machines serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import DOES_NOT_FIT, FITS, emit_json, say
from kvplanner.request.flags import add_plan_words, split_flags

_EXAMPLES: Final = """examples:
  kvplanner nodes Llama-3.3-70B-Instruct --gpu 8xH100 --load 500@1500+500
  kvplanner nodes Llama-3.3-70B-Instruct --gpu 8xH100 --load 1@1500+500 --nodes 4
  kvplanner nodes DeepSeek-V3 --gpu 8xH100 --load 200@4000+1000 -- --kv-cache-dtype fp8

--gpu is one machine. A replica takes some of its GPUs, or several machines where none holds it; plan --nodes N --launch
nodes or ray then writes what each of them runs.

exit status: 0 some way serves them, 1 none does, 2 bad input
"""
_USAGE: Final = "kvplanner nodes MODEL --gpu SPEC --load USERS@PROMPT+OUTPUT [--nodes N] [-- ENGINE FLAGS]"


def parser() -> Parser:
    """The arguments of `nodes`; the engine's own flags follow "--"."""
    made = Parser("nodes", "Machines for a number of users, or users for a number of machines.", _EXAMPLES, _USAGE)
    add_plan_words(made)
    add = made.add_argument
    add("--nodes", type=int, default=None, metavar="N", help="so many machines: how many users do they serve")
    add("--json", action="store_true", help="every way as JSON, schema kvplanner.nodes/1")
    return made


def run(argv: Sequence[str]) -> int:
    """Prints the ways, the best first."""
    from kvplanner.catalog.gpus import machine_words
    from kvplanner.cli.plan import sources
    from kvplanner.report import nodes as report
    from kvplanner.request.words import build, words_of
    from kvplanner.solve.nodes import for_users, on_nodes

    ours, flags = split_flags(argv)
    given = parser().parse_args(ours)
    request = build(words_of(given, flags), sources()).request
    users = request.load.users if request.load is not None else 0
    ways = for_users(request, users) if given.nodes is None else on_nodes(request, given.nodes)
    if given.json:
        emit_json(report.to_json(ways, request, users, given.nodes, machine_words(request.machine)))
    else:
        say("\n".join(report.lines(ways, request, users, given.nodes)).rstrip("\n"))
    return FITS if ways else DOES_NOT_FIT
