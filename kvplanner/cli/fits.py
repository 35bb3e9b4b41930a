"""kvplanner fits: what fits a machine, or which machine a model needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import BAD_INPUT, DOES_NOT_FIT, FITS, columns, emit_json, note, say
from kvplanner.errors import BadInput
from kvplanner.request.flags import split_flags

if TYPE_CHECKING:
    from argparse import Namespace

    from kvplanner.engine.request import Ask
    from kvplanner.solve.fits import Fit

_EXAMPLES: Final = """examples:
  kvplanner fits --gpu "RTX 4090" --load 8@1500+500                what fits this machine
  kvplanner fits --gpu 2xH100 --search "qwen 32b" --formats fp8,awq
  kvplanner fits Qwen3-32B --load 8@1500+500                       which machines the model needs
  kvplanner fits Qwen3-32B --gpu "RTX 4090" --formats fp8,awq,gptq    in which formats it fits

exit status: 0 something fits, 1 nothing does, 2 bad input
"""
_USAGE: Final = "kvplanner fits [MODEL] [--gpu SPEC] [options] [-- ENGINE FLAGS]"


def parser() -> Parser:
    """The arguments of `fits`; the engine's own flags follow "--"."""
    made = Parser("fits", "What fits a machine (--gpu), or which machine a model needs (MODEL).", _EXAMPLES, _USAGE)
    add = made.add_argument
    add("model", nargs="?", default="", metavar="MODEL", help="as for plan; without one, all models of the catalogue")
    add("--gpu", default="", metavar="SPEC", help='"RTX 4090", "2xH100", "local"; without one, all GPUs')
    add("--search", default="", metavar="WORDS", help="only models, or GPUs, that all words fit")
    add("--formats", default="", metavar="F,F", help="also as if stored in these: fp8, awq, int8 ...")
    add("--counts", default="1,2,4,8", metavar="N,N", help="of each GPU (1,2,4,8)")
    add("--load", default="", metavar="N@PROMPT+OUTPUT", help="users at once and their tokens: 8@1500+500")
    add("--engine", default="", metavar="NAME", help="the engine (vllm)")
    add("--engine-version", default="", metavar="V", help="its version, the newest known when left out")
    add("--all", action="store_true", help="also what does not fit; of machines, every count")
    add("--unit", choices=("GiB", "GB"), default="GiB", help="of every size (GiB)")
    add("--json", action="store_true", help="every row as JSON, schema kvplanner.fits/1")
    return made


def run(argv: Sequence[str]) -> int:
    """Prints the rows, best first."""
    ours, flags = split_flags(argv)
    given = parser().parse_args(ours)
    if not given.model and not given.gpu:
        raise BadInput("neither a model nor a GPU is named", "fits", 'Write kvplanner fits MODEL, or fits --gpu "H100"')
    ask, formats = _ask(given, flags), _formats(given.formats)
    import gc

    collecting = gc.isenabled()
    gc.disable()  # thousands of plans, none of which holds itself: looking for such ones takes a tenth of the time
    try:
        rows = _rows(given, ask, formats)
    finally:
        if collecting:
            gc.enable()
    if given.json:
        from kvplanner.report.fits import to_json

        emit_json(to_json(rows, machine=given.gpu or None, model=given.model or None))
    else:
        _show(rows, given)
    if not rows:
        note("nothing was tried: no name holds all those words. Fewer words find more")
        return BAD_INPUT
    return FITS if any(row.fits for row in rows) else DOES_NOT_FIT


def _ask(given: Namespace, flags: tuple[str, ...]) -> Ask:
    """What is asked of the engine, the same for every row."""
    from kvplanner.engine.command import parse_flags
    from kvplanner.engine.registry import engine, names
    from kvplanner.engine.request import Ask
    from kvplanner.request.words import parse_load

    chosen = engine(given.engine or names()[0])
    version = given.engine_version or None
    parsed = parse_flags(chosen.options(version), flags, chosen.ignored_flags())
    if parsed.positional:
        raise BadInput(f"{parsed.positional[0]!r} belongs to no flag", "after --", "Give flags alone")
    load = parse_load(given.load) if given.load else None
    return Ask(chosen.name, version, parsed.values, load)


def _formats(text: str) -> tuple[str | None, ...]:
    from kvplanner.request.words import format_name

    return (None, *(format_name(part) for part in text.split(",") if part.strip()))


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1 or max(counts) > _MOST_GPUS:
        raise BadInput(f"{text[:40]!r} is no list of counts", "--counts", "Write for example --counts 1,2,4,8")
    return counts


_MOST_GPUS: Final = 64


def _rows(given: Namespace, ask: Ask, formats: Sequence[str | None]) -> tuple[Fit, ...]:
    from kvplanner.catalog import models
    from kvplanner.cli.plan import sources
    from kvplanner.request.words import machine_of
    from kvplanner.solve import fits

    found = sources()
    if not given.model:
        machine, _, _ = machine_of(given.gpu, found.local)
        entries = models.search(given.search) if given.search else None
        return tuple(sorted(fits.models_on(machine, ask, formats=formats, entries=entries), key=lambda fit: fit.order))
    model = found.open_model(given.model)
    if given.gpu:
        machine, _, _ = machine_of(given.gpu, found.local)
        return tuple(fits.models_on(machine, ask, formats=formats, entries=(), also=(model,)))
    rows = tuple(fits.machines_for(model, ask, counts=_counts(given.counts), query=given.search, formats=formats))
    return rows if given.all or given.json else fits.least(rows, ask.load.users if ask.load else 0)


def _show(rows: Sequence[Fit], given: Namespace) -> None:
    from kvplanner.report.fits import ALIGN, HEADS, cells
    from kvplanner.report.table import fitted

    shown = [row for row in rows if row.fits or given.all or given.model]
    fixed = {0} if given.model else {2} if given.gpu else set()
    spare = [2] if given.gpu else [0]
    gone = fixed | set(spare) if given.model or given.gpu else set()
    gone |= set() if given.load else {5}
    kept = [at for at in range(len(HEADS)) if at not in gone or (given.model and given.gpu and at == 0)]
    table = [[row[at] for at in kept] for row in (HEADS, *(cells(fit, given.unit) for fit in shown))]
    align = "".join(ALIGN[at] for at in kept)
    drop = [at for at, place in enumerate(kept) if place in (6, 3)]
    say("\n".join(fitted(table, align, drop, columns())))
    hidden = len(rows) - len(shown)
    if hidden:
        say(f"\n{len(shown)} of {len(rows)} fit or may fit; --all shows the others")
