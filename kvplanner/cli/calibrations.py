"""kvplanner calibrations: the runs whose figures replace estimates in plans of their neighbourhood."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import BAD_INPUT, FITS, columns, emit_json, note, say, unwritable
from kvplanner.errors import BadInput

if TYPE_CHECKING:
    from argparse import Namespace

    from kvplanner.diagnose.runs import Run

_EXAMPLES: Final = """examples:
  kvplanner calibrations add server.log --gpu H100      what this start measured, for plans like it
  kvplanner calibrations                                lists them, with the plans that each speaks for
  kvplanner calibrations off 3f2a91c0                   plans without it
  kvplanner calibrations export runs.json               to hand on: no path, host or key is in it

A run speaks for plans of the same engine, rules, GPU, number of ranks and model family, of the same driver branch where
both are known; runs of a plan's own release go first. Figures that are counted exactly never change.
"""
_USAGE: Final = "kvplanner calibrations [list | add LOG | on ID.. | off ID.. | delete ID.. | export FILE | import FILE]"
_ACTIONS: Final = ("list", "add", "on", "off", "delete", "export", "import")


def parser() -> Parser:
    """The arguments of `calibrations`."""
    made = Parser("calibrations", "Runs whose figures replace estimates in plans like them.", _EXAMPLES, _USAGE)
    add = made.add_argument
    add("action", nargs="?", default="list", choices=_ACTIONS, metavar="ACTION", help=", ".join(_ACTIONS))
    add("names", nargs="*", metavar="FILE|ID", help='a log or a file of runs; ids, or the beginnings of them, or "all"')
    add("--gpu", metavar="SPEC", default="", help="of a log that does not name its GPUs")
    add("--model", metavar="MODEL", default="", help="of a log that names it by a path")
    add("--json", action="store_true", help="the runs as JSON, schema kvplanner.runs/1")
    return made


def run(argv: Sequence[str]) -> int:
    """Lists the runs, or changes which there are. Raises PlannerError."""
    from kvplanner.diagnose import runs

    given = parser().parse_args(list(argv))
    there = runs.kept()
    if given.action == "list":
        return _list(there, as_json=given.json)
    if not given.names:
        what = "a log" if given.action == "add" else "a file" if given.action in ("export", "import") else "a run"
        raise BadInput(f"{what} is missing", f"calibrations {given.action}", "kvplanner calibrations --help tells more")
    if given.action == "export":
        return _export(there, given.names[0], given.names[1:])
    if given.action == "add":
        more = [_learned(name, given) for name in given.names]
    elif given.action == "import":
        more = [run for name in given.names for run in runs.kept_in(Path(name))]
    else:
        chosen = set(there if given.names == ["all"] else [runs.named(there, name) for name in given.names])
        changed = [run._replace(on=given.action == "on") if run in chosen else run for run in there]
        _keep(run for run in changed if given.action != "delete" or run.id not in {c.id for c in chosen})
        note(f"{given.action}: {', '.join(run.id for run in there if run in chosen)}")
        return FITS
    _keep(runs.added(there, more))
    for one in more:
        note(f"{one.id} calibrates plans like it: {one.words}")
    return FITS


def _list(there: Sequence[Run], *, as_json: bool) -> int:
    from kvplanner.diagnose import runs
    from kvplanner.report.calibrations import rows
    from kvplanner.report.table import fitted

    if as_json:
        emit_json(runs.to_json(there))
    elif there:
        say("\n".join(fitted(list(rows(there)), "<<<<<<", (2, 4), columns())))
    else:
        note("no run calibrates plans yet: kvplanner calibrations add LOG reads one")
    return FITS


def _keep(chosen: Iterable[Run], path: Path | None = None) -> None:
    """Writes the runs to a file, or in place of all that are kept. Raises BadInput where that cannot be written."""
    from kvplanner.diagnose import runs
    from kvplanner.files import calibration_file

    try:
        runs.keep(chosen, path)
    except (OSError, ValueError) as error:
        raise unwritable(str(path or calibration_file()), error) from error


def _export(there: Sequence[Run], file: str, ids: Sequence[str]) -> int:
    from kvplanner.diagnose import runs

    chosen = [runs.named(there, name) for name in ids] if ids else list(there)
    if not chosen:
        note("there is no run to export")
        return BAD_INPUT
    _keep(chosen, Path(file))
    note(f"{len(chosen)} in {file}")
    return FITS


def _learned(name: str, given: Namespace) -> Run:
    """The run of a log. Raises BadInput where it teaches nothing."""
    from kvplanner.catalog import gpus
    from kvplanner.cli.diagnose import read
    from kvplanner.cli.inspect import open_model
    from kvplanner.diagnose.calibration import learn, run_of_log
    from kvplanner.diagnose.implied import gpus_named
    from kvplanner.request.named import machine_of

    found = read(name)
    model, words = given.model or found.model, given.gpu or gpus_named(found)
    if not model or not words:
        raise BadInput(f"does not name its {'GPUs' if model else 'model'}", name,
                       f"Name {'them with --gpu' if model else 'it with --model'}")  # fmt: skip
    from kvplanner.cli.local import machine as local

    machine = machine_of(words, local)[0] if given.gpu else gpus.machine(words)
    opened = open_model(model)
    learned = learn(found, opened, machine, "")
    if not learned.calibrations:
        raise BadInput(f"teaches nothing: {learned.why}", name, "kvplanner diagnose tells what it says")
    return run_of_log(found, learned, opened, machine)
