"""The runs that calibrate plans, as the user keeps them: one JSON file of the app's data (schema kvplanner.runs/1).

Nothing in it tells whose machine or which folder a run was of: engine, rules, GPU, model family, the sizes, a date.
Files are untrusted: bounded, and every field checked.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kvplanner import __version__, jsonfile
from kvplanner.diagnose.privacy import public_name, scrubbed
from kvplanner.engine.request import Calibration, MeasuredKind
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.engine.shared.calibration import release_of
from kvplanner.errors import BadInput, UnknownName
from kvplanner.files import calibration_file, write_whole
from kvplanner.reading import is_there
from kvplanner.record import NamedTuple

SCHEMA: Final = "kvplanner.runs/1"
MOST_BYTES: Final = 1 << 20
MOST_RUNS: Final = 500
_MOST_TEXT: Final = 120
_LARGEST: Final = 1 << 53
_KINDS: Final = frozenset((*SEGMENT_KINDS, "cuda_graphs_estimated")) - {
    "kv_cache",
    "headroom",
    "driver_reserved",
    "other",
}
_REMEDY: Final = "Export the runs again from kvplanner, or mend the file"
_ID: Final = re.compile(r"[0-9a-f]{8}")


class Run(NamedTuple):
    """A run that calibrates. id: of its content. date: ISO. origin: "log" or "server". model: its name without folders.

    driver: of the GPU, "" where it is not known. on: whether it is used. rules: the release of kvplanner whose rules
    the run was set beside: what it differs by says nothing to others.
    """

    id: str
    engine: str
    version: str
    model: str
    gpu: str
    date: str
    origin: str
    calibrations: tuple[Calibration, ...]
    driver: str = ""
    on: bool = True
    rules: str = __version__

    @property
    def current(self) -> bool:
        """Whether it was set beside the rules of today."""
        return self.rules == __version__

    @property
    def words(self) -> str:
        """What plans call it."""
        return _words(self.origin, self.engine, self.version, self.model, self.date)


def _words(origin: str, engine: str, version: str, model: str, date: str) -> str:
    what = "log" if origin == "log" else "running server"
    return f"{what} of {engine} {version or '?'} with {model or 'a model'}, {date}".replace("  ", " ")


def run_of(
    calibrations: Sequence[Calibration], *, engine: str, version: str, model: str, gpu: str, origin: str = "log",
    driver: str = "", date: str = "",
) -> Run:  # fmt: skip
    """A run to keep; its calibrations name it as their source."""
    date, model = date or time.strftime("%Y-%m-%d"), public_name(model)
    source = _words(origin, engine, version, model, date)
    named = tuple(c._replace(source=source) for c in calibrations)
    text = json.dumps([engine, version, model, gpu, [[c.kind, c.bytes, c.law_bytes] for c in named]])
    return Run(hashlib.sha256(text.encode()).hexdigest()[:8], engine, version, model, gpu, date, origin, named, driver)


def kept(path: Path | None = None) -> tuple[Run, ...]:
    """The runs that are kept, () where there are none. Raises BadInput for a file that is broken."""
    path = path or calibration_file()
    return kept_in(path) if is_there(path) else ()


def kept_in(path: Path) -> tuple[Run, ...]:
    """The runs of a file. Raises BadInput where it cannot be read or is broken."""
    return from_json(jsonfile.read_object(path, MOST_BYTES), str(path))


def in_use(path: Path | None = None) -> tuple[Calibration, ...]:
    """What the kept runs say of plans; a broken file says nothing, and `kept` tells why."""
    path = path or calibration_file()
    if not is_there(path):
        return ()
    try:
        return tuple(c for run in kept(path) if run.on and run.current for c in run.calibrations)
    except BadInput:
        return ()


def keep(runs: Iterable[Run], path: Path | None = None) -> None:
    """Writes the runs, whole or not at all. Raises OSError."""
    path = path or calibration_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(to_json(tuple(runs)), indent=1) + "\n").encode())


def added(runs: Sequence[Run], more: Iterable[Run]) -> tuple[Run, ...]:
    """The runs with others; one that is there already is replaced. Raises BadInput beyond what is kept."""
    both = {run.id: run for run in (*runs, *more)}
    if len(both) > MOST_RUNS:
        raise BadInput(f"more than {MOST_RUNS} runs would be kept", "calibrations", "Delete some first")
    return tuple(both.values())


def named(runs: Sequence[Run], id_: str) -> Run:
    """The run of an id, or of its beginning. Raises UnknownName."""
    found = [run for run in runs if run.id.startswith(id_)] if id_ else []
    if len(found) != 1:
        raise UnknownName(f"no single run is called {id_!r}", "calibrations", tuple(run.id for run in runs),
                          "kvplanner calibrations lists them")  # fmt: skip
    return found[0]


def to_json(runs: Sequence[Run]) -> dict[str, object]:
    """The document: sizes in bytes."""
    return {"schema": SCHEMA, "runs": [{
        "id": run.id, "engine": run.engine, "version": run.version, "model": run.model, "gpu": run.gpu,
        "driver": run.driver, "date": run.date, "origin": run.origin, "on": run.on,
        "kvplanner": run.rules,
        "measured": [{"kind": c.kind, "bytes": c.bytes, "law_bytes": c.law_bytes, "rules": c.era, "gpu": c.gpu,
                      "family": c.family, "ranks": c.ranks} for c in run.calibrations],
    } for run in runs]}  # fmt: skip


def from_json(document: Mapping[str, Any], where: str) -> tuple[Run, ...]:
    """The runs of a document. Raises BadInput naming the field."""
    if document.get("schema") != SCHEMA:
        raise BadInput("holds no runs that calibrate plans", where, f"Give a file of schema {SCHEMA}")
    runs = document.get("runs")
    if not isinstance(runs, list) or len(runs) > MOST_RUNS:
        raise BadInput(f"`runs` is no list of at most {MOST_RUNS}", where, _REMEDY)
    return tuple(_run(entry, f"{where}, runs[{place}]") for place, entry in enumerate(runs))


def _run(entry: object, where: str) -> Run:
    if not isinstance(entry, dict):
        raise BadInput("is no object", where, _REMEDY)
    engine, version, model, gpu, driver, date, origin = (
        _text(entry, name, where) for name in ("engine", "version", "model", "gpu", "driver", "date", "origin")
    )
    model = public_name(scrubbed(model) if " " in model else model)
    measured = entry.get("measured")
    if not isinstance(measured, list) or not 0 < len(measured) <= len(_KINDS):
        raise BadInput("`measured` holds no sizes", where, _REMEDY)
    id_ = _text(entry, "id", where)
    if not _ID.fullmatch(id_):
        raise BadInput("`id` is no id of a run", where, _REMEDY)
    source = _words(origin, engine, version, model, date)
    made = tuple(
        _measured(item, where)._replace(engine=engine, driver=driver, release=release_of(version), source=source)
        for item in measured
    )
    return Run(id_, engine, version, model, gpu, date, origin, made, driver,
               entry.get("on") is not False, _text(entry, "kvplanner", where))  # fmt: skip


def _measured(item: object, where: str) -> Calibration:
    if not isinstance(item, dict):
        raise BadInput("`measured` holds something else than objects", where, _REMEDY)
    kind = item.get("kind")
    if kind not in _KINDS:
        raise BadInput(f"{str(kind)[:40]!r} is no part that a run measures", where, _REMEDY)
    found: MeasuredKind = kind
    law = item.get("law_bytes")
    return Calibration(
        found, _size(item.get("bytes"), where), _text(item, "rules", where), _text(item, "gpu", where),
        _text(item, "family", where), "", "", None if law is None else _size(law, where),
        _text(item, "ranks", where),
    )  # fmt: skip


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    value = entry.get(name, "")
    if not isinstance(value, str) or len(value) > _MOST_TEXT or not value.isprintable():
        raise BadInput(f"`{name}` is no text of at most {_MOST_TEXT} characters", where, _REMEDY)
    return value


def _size(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LARGEST:
        raise BadInput("a size is no whole number of bytes", where, _REMEDY)
    return value
