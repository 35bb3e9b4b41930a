"""kvplanner diagnose: what a start-up log says, why it failed, and the plan that it implies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import DOES_NOT_FIT, FITS, emit_json, say, width, write_file
from kvplanner.errors import PlannerError

if TYPE_CHECKING:
    from argparse import Namespace

    from kvplanner.diagnose.diagnosis import Diagnosis
    from kvplanner.diagnose.implied import Implied

_EXAMPLES: Final = """examples:
  kvplanner diagnose server.log
  docker logs server 2>&1 | kvplanner diagnose - --gpu 2xL40S -- --max-model-len 32k

exit status: 0 the start that it shows succeeded, 1 it failed, 2 bad input
"""


def parser() -> Parser:
    """The arguments of `diagnose`."""
    made = Parser(
        "diagnose",
        "What a start-up log says: how far it came, why it failed, what the engine measured.\n"
        "Engine flags that it does not state may follow after --.",
        _EXAMPLES,
    )
    made.add_argument("log", metavar="LOG", help="a file, or - for standard input")
    made.add_argument(
        "--gpu", metavar="SPEC", default="", help="the GPUs that it ran on, where the log does not name them"
    )
    made.add_argument("--model", metavar="MODEL", default="", help="the model, where the log names it by a path")
    made.add_argument("--unit", choices=("GiB", "GB"), default="GiB", help="of sizes in text")
    made.add_argument(
        "--report",
        metavar="FILE",
        default="",
        help="also write it without paths and keys, to hand on",
    )
    made.add_argument("--json", action="store_true", help="as JSON, schema kvplanner.diagnosis/1")
    return made


def run(argv: Sequence[str]) -> int:
    """Prints the diagnosis: 0 for a start that succeeded, 1 for one that did not. Raises PlannerError."""
    from kvplanner.request.flags import split_flags

    words, flags = split_flags(argv)
    given = parser().parse_args(words)
    return show(_with_flags(read(given.log), flags), given)


def _with_flags(found: Diagnosis, flags: tuple[str, ...]) -> Diagnosis:
    """The diagnosis with engine flags that the log does not state, and as many ranks as its processes name.

    Raises BadInput for flags that it states.
    """
    from kvplanner.diagnose.diagnosis import places_seen, unstated, with_options

    open_ = {option.name for option in unstated(found)}
    seen = {name: count for name, count in places_seen(found).items() if name in open_}
    if not flags:
        return with_options(found, seen) if seen else found
    from kvplanner.engine.command import parse_flags
    from kvplanner.engine.registry import engine
    from kvplanner.errors import BadInput

    chosen = engine(found.engine)
    given = parse_flags(chosen.options(), flags, chosen.ignored_flags())
    stated = [name for name in given.values if name in found.options or (found.reading.commanded and name not in open_)]
    if stated or given.positional:
        what = f"the log states {stated[0]} itself" if stated else f"{given.positional[0]!r} is no flag"
        raise BadInput(what, "after --", "Leave it out: what follows -- is for what the log does not state")
    return with_options(found, {**seen, **given.values})


def show(found: Diagnosis, given: Namespace) -> int:
    """Prints a diagnosis with the plan that it implies. given: model, gpu, unit and json of the command."""
    from kvplanner.report import diagnosis as report

    beside, remark = _implied(found, given)
    if given.report:
        save_report(given.report, found, beside)
    if given.json:
        emit_json(report.to_json(found, beside, _plan_file(found, given, beside), remark))
    else:
        text = report.text(found, beside, unit=given.unit, width=width(), remark=remark)
        say(text.rstrip())
    return FITS if found.reading.started and found.reading.ended is None else DOES_NOT_FIT


def read(name: str) -> Diagnosis:
    """The diagnosis of a file, or of standard input. Raises BadInput."""
    from kvplanner.diagnose.diagnosis import diagnose, diagnose_file

    return diagnose(sys.stdin.buffer.read, "standard input") if name == "-" else diagnose_file(Path(name))


def _implied(found: Diagnosis, given: Namespace) -> tuple[Implied | None, str]:
    """The plan that the log implies, with a remark on its GPUs, or why there is none."""
    from kvplanner.catalog import gpus
    from kvplanner.cli.inspect import open_model
    from kvplanner.diagnose.implied import gpus_named, gpus_of_its_size, implied

    name, words = given.model or found.model, given.gpu or gpus_named(found)
    sized = "" if words else gpus_of_its_size(found)
    if not (words or sized) or not name:
        return None, f"not planned: name {'the GPUs with --gpu' if name else 'the model with --model'}"
    try:
        made = implied(found, open_model(name), gpus.machine(words or sized))
    except PlannerError as error:
        return None, f"not planned: {error}"
    return (
        made,
        "planned on a GPU of the memory that the log states: name it with --gpu for closer figures" if sized else "",
    )


def save_report(file: str, found: Diagnosis, beside: Implied | None) -> None:
    """Writes the report that can be handed on. Raises BadInput."""
    from kvplanner.report.findings import markdown

    write_file(file, markdown(found, beside).encode())


def _plan_file(found: Diagnosis, given: Namespace, beside: Implied | None) -> dict[str, object] | None:
    """The document that the window and `plan` open: the request that the remedies change."""
    if beside is None:
        return None
    from kvplanner.catalog.gpus import machine_words
    from kvplanner.diagnose.privacy import public_name
    from kvplanner.request import planfile

    name = given.model or public_name(found.model or "") or beside.request.model.id
    return planfile.to_json(planfile.from_request(beside.request, name, machine_words(beside.request.machine)))
