"""kvplanner fits: what fits a machine, or which machine a model needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import BAD_INPUT, DOES_NOT_FIT, FITS, columns, emit_json_rows, flush, note, say
from kvplanner.errors import BadInput, PlannerError
from kvplanner.record import NamedTuple
from kvplanner.request.flags import ENGINES, VERSIONS, split_flags

if TYPE_CHECKING:
    from argparse import Namespace

    from kvplanner.catalog.models import ModelEntry
    from kvplanner.engine.request import Ask
    from kvplanner.model.model import Model
    from kvplanner.solve.fits import Fit

_EXAMPLES: Final = """examples:
  kvplanner fits --gpu "RTX 4090" --load 8@1500+500                what fits this machine
  kvplanner fits --gpu 2xH100 --search "qwen 32b" --formats fp8,awq
  kvplanner fits Qwen3-32B --load 8@1500+500                       which machines the model needs
  kvplanner fits Qwen3-32B --gpu "RTX 4090" --formats fp8,awq,gptq    in which formats it fits

exit status: 0 something fits, 1 nothing does, 2 bad input
"""
_NONE_KEPT: Final = "nothing was tried: no such model is known here. Without --local, --recent and --starred all are"
_USAGE: Final = "kvplanner fits [MODEL] [--gpu SPEC] [options] [-- ENGINE FLAGS]"


def parser() -> Parser:
    """The arguments of `fits`; the engine's own flags follow "--"."""
    made = Parser("fits", "What fits a machine (--gpu), or which machine a model needs (MODEL).", _EXAMPLES, _USAGE)
    add = made.add_argument
    add("model", nargs="?", default="", metavar="MODEL", help="as for plan; without one, all models of the catalogue")
    add("--gpu", default="", metavar="SPEC", help='"RTX 4090", "2xH100", "local"; without one, all GPUs')
    add("--search", default="", metavar="WORDS", help="only models (or GPUs) whose names have all these words")
    add("--local", action="store_true", help="only models on this computer")
    add("--recent", action="store_true", help="only models that were planned lately in the window")
    add("--starred", action="store_true", help="only models that are starred in the window")
    add("--formats", default="", metavar="F,F", help="also as if stored in these: fp8, awq, int8 ...")
    add("--counts", default="1,2,4,8", metavar="N,N", help="of each GPU (1,2,4,8)")
    add("--load", default="", metavar="N@PROMPT+OUTPUT", help="users at once and their tokens: 8@1500+500")
    add("--engine", default="", metavar="NAME", help=ENGINES)
    add("--engine-version", default="", metavar="V", help=VERSIONS)
    add("--all", action="store_true", help="also what does not fit; of machines, every count")
    add("--unit", choices=("GiB", "GB"), default="GiB", help="of every size (GiB)")
    add("--json", action="store_true", help="every row as JSON, schema kvplanner.fits/1")
    return made


def run(argv: Sequence[str]) -> int:
    """Prints the rows, best first, each as soon as its place is known."""
    ours, flags = split_flags(argv)
    given = parser().parse_args(ours)
    chosen = given.local or given.recent or given.starred
    if not given.model and not given.gpu:
        raise BadInput("neither a model nor a GPU is named", "fits", 'Write kvplanner fits MODEL, or fits --gpu "H100"')
    if given.model and chosen:
        raise BadInput("a model is named beside a list of models", "fits", "Leave out one of them")
    import gc

    collecting = gc.isenabled()
    gc.disable()  # thousands of plans, none of which holds itself: looking for such ones takes a tenth of the time
    try:
        search = _search(given, _ask(given, flags), _formats(given.formats))
        tried, fitting = (_emit if given.json else _show)(search, given)
    finally:
        if collecting:
            gc.enable()
    if not tried:
        note(_NONE_KEPT if chosen else "nothing was tried: no name holds all those words. Fewer words find more")
        return BAD_INPUT
    return FITS if fitting else DOES_NOT_FIT


def _ask(given: Namespace, flags: tuple[str, ...]) -> Ask:
    """What is asked of the engine, the same for every row."""
    from kvplanner.engine.registry import engine, names
    from kvplanner.engine.request import Ask
    from kvplanner.request.named import parse_load

    chosen = engine(given.engine or names()[0])
    version = given.engine_version or None
    load = parse_load(given.load) if given.load else None
    if version is None and not flags:
        return Ask(chosen.name, load=load)  # the usual case, without what reads flags
    from kvplanner.engine.command import parse_flags

    parsed = parse_flags(chosen.options(version), flags, chosen.ignored_flags())
    if parsed.positional:
        raise BadInput(f"{parsed.positional[0]!r} belongs to no flag", "after --", "Give flags alone")
    return Ask(chosen.name, version, parsed.values, load)


def _formats(text: str) -> tuple[str | None, ...]:
    from kvplanner.request.named import format_name

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


class _Search(NamedTuple):
    """rows: as they come. models, formats, gpus: names that may stand in them."""

    rows: Iterator[Fit]
    models: tuple[str, ...]
    formats: tuple[str, ...]
    gpus: tuple[str, ...] = ()


def _search(given: Namespace, ask: Ask, formats: Sequence[str | None]) -> _Search:
    from kvplanner.cli.local import machine as local
    from kvplanner.request.named import machine_of
    from kvplanner.solve import fits

    named = tuple(f"as {name}" for name in formats if name)
    machine = machine_of(given.gpu, local)[0] if given.gpu else None
    if machine is not None and not given.model:
        entries, texts = _chosen(given)
        first = fits.likely_first(entries, machine)
        rows = fits.best_first(fits.models_on(machine, ask, formats=formats, entries=first, also=_opened(texts)))
        ids = tuple(entry.id for entry in entries)
        stored = tuple(entry.quantization or "bfloat16" for entry in entries)
        return _Search(rows, (*ids, *(Path(text).name for text in texts)), (*stored, *named))
    from kvplanner.cli.inspect import open_model

    model = open_model(given.model)
    own = (model.weight_format, *named)
    if machine is not None:
        rows = fits.models_on(machine, ask, formats=formats, entries=(), also=(model,))
        return _Search(rows, (model.id,), own)
    from kvplanner.catalog import gpus

    every = fits.machines_for if given.all or given.json else fits.least
    rows = every(model, ask, counts=_counts(given.counts), query=given.search, formats=formats)
    return _Search(rows, (model.id,), own, tuple(f"64x{entry.id}" for entry in gpus.index()))


def _chosen(given: Namespace) -> tuple[tuple[ModelEntry, ...], tuple[str, ...]]:
    """Models of the catalogue, and what opens others: all of the former, or those of the lists that are asked for."""
    from kvplanner import kept
    from kvplanner.catalog import models

    entries = models.search(given.search) if given.search else models.index()
    if not (given.local or given.recent or given.starred):
        return entries, ()
    texts = [*(_on_this_machine() if given.local else ())]
    texts += kept.texts(kept.RECENT_MODELS) if given.recent else ()
    texts += kept.texts(kept.STARRED_MODELS) if given.starred else ()
    words = given.search.lower().split()
    known = {entry.id for entry in models.index()}
    wanted = {*texts}
    others = (text for text in dict.fromkeys(texts) if text not in known)
    return (
        tuple(entry for entry in entries if entry.id in wanted),
        tuple(text for text in others if all(word in text.lower() for word in words)),
    )


def _on_this_machine() -> tuple[str, ...]:
    """What opens the models that lie on this computer."""
    from kvplanner import kept
    from kvplanner.files import data_folder
    from kvplanner.source.stores import local

    folders = tuple(map(Path, kept.texts(kept.MODEL_FOLDERS)))
    found = local.scan(local.places(folders), remember_in=data_folder())
    return tuple(model.key for model in found if not model.problem)


def _opened(texts: Sequence[str]) -> Iterator[Model]:
    """Models that the lists name, one after the other; what cannot be opened any more is said."""
    from kvplanner.source.resolve import open_model

    for text in texts:
        try:
            yield open_model(text)
        except PlannerError as error:
            note(f"left out: {error}")


def _emit(search: _Search, given: Namespace) -> tuple[int, int]:
    """Prints JSON; how many rows there are, and how many of them fit."""
    from kvplanner.report.fits import head, row_to_json

    counted = [0, 0]

    def rows() -> Iterator[object]:
        for row in search.rows:
            counted[0] += 1
            counted[1] += bool(row.fits)
            yield row_to_json(row)

    emit_json_rows(head(machine=given.gpu or None, model=given.model or None), "rows", rows())
    return counted[0], counted[1]


def _show(search: _Search, given: Namespace) -> tuple[int, int]:
    """Prints a table; how many rows there are, and how many of them fit."""
    from kvplanner.report.fits import ALIGN, HEADS, cells, widths
    from kvplanner.report.table import Running

    fixed = {0} if given.model else {2} if given.gpu else set()
    spare = [2] if given.gpu else [0]
    gone = fixed | set(spare) if given.model or given.gpu else set()
    gone |= set() if given.load else {5}
    kept = [at for at in range(len(HEADS)) if at not in gone or (given.model and given.gpu and at == 0)]
    wide = widths(search.models, search.gpus, search.formats)
    table = Running(
        [HEADS[at] for at in kept], "".join(ALIGN[at] for at in kept), [wide[at] for at in kept],
        [at for at, place in enumerate(kept) if place == 6] + [at for at, place in enumerate(kept) if place == 3],
        columns(),
    )  # fmt: skip
    say(table.line([HEADS[at] for at in kept]))
    flush()
    tried = fitting = shown = 0
    for row in search.rows:
        tried, fitting = tried + 1, fitting + bool(row.fits)
        if row.fits or given.all or given.model:
            made = cells(row, given.unit)
            say(table.line([made[at] for at in kept]))
            flush()
            shown += 1
    if tried > shown:
        say(f"\n{shown} of {tried} fit or may fit; --all shows the others")
    return tried, fitting
