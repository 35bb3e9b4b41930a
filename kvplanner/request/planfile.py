"""Plan files (.kvplan.json, schema kvplanner.planfile/1): what the user set, and nothing that can be worked out.

A model is kept by catalogue id or path and a machine by its words, so that a file stays valid when catalogues grow.
Fields that this version does not know are kept when a file is saved again. Files are untrusted: their size is
bounded, and each field is checked before it is used.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kvplanner import jsonfile
from kvplanner.engine.option import OptionValue
from kvplanner.engine.request import MOST_KINDS, Ask, Load, Part, PlanRequest, mixed
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.errors import BadInput, NotModelled, UnknownName
from kvplanner.files import write_whole
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model
from kvplanner.printable import cut, printable
from kvplanner.reading import is_there, read_whole
from kvplanner.record import NamedTuple
from kvplanner.units import counted

SCHEMA: Final = "kvplanner.planfile/1"
SUFFIX: Final = ".kvplan.json"
MAX_BYTES: Final = 1 << 20
MAX_ENTRIES: Final = 1000
_LARGEST: Final = 1 << 53
_ROUNDED: Final = 1e-9  # what rounding leaves of a sum of shares
_REMEDY: Final = "Save the plan again from kvplanner, or mend the file"
_UNKNOWN_REMEDY: Final = "Take the fields that kvplanner does not know out of the file that it was opened from"
_VERSION: Final = re.compile(r"kvplanner\.planfile/([0-9]{1,6})")

Json = dict[str, object]
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class PlanFile(NamedTuple):
    """The pieces of a PlanRequest, as a user gave them.

    model: catalogue id or path, as open_model reads it. machine: as --gpu reads it. free: bytes by device index.
    unknown: the whole document that it was read from, whose other fields are kept.
    """

    model: str
    machine: str
    ask: Ask = Ask()
    free: Mapping[int, int] = MappingProxyType({})
    unknown: Mapping[str, object] = _NOTHING


_SHOWN: Final = 60
# What a user may give instead of an estimate.
_GIVEN: Final = tuple(kind for kind in SEGMENT_KINDS if kind not in ("driver_reserved", "headroom"))


def _unknown_sizes(document: Mapping[str, object]) -> dict[str, object]:
    """Given sizes of parts that no plan of this version has: perhaps a newer one's."""
    given = document.get("measured_bytes")
    return {kind: size for kind, size in given.items() if kind not in _GIVEN} if isinstance(given, dict) else {}


def notes(plan: PlanFile) -> tuple[str, ...]:
    """What a file says that is kept in it and not planned with, in a sentence each."""
    return tuple(
        f"measured_bytes.{cut(printable(kind), _SHOWN)} is no part that a size can be given for: kept, and not "
        f"planned with; known are {', '.join(_GIVEN)}"
        for kind in _unknown_sizes(plan.unknown)
    )


def from_request(request: PlanRequest, model: str, machine: str, kept: PlanFile | None = None) -> PlanFile:
    """What to store for a request; model and machine: the words that name them. kept: the file it came from."""
    free = {d.index: d.free_bytes for d in request.machine.devices if d.free_bytes is not None}
    return PlanFile(model, machine, request.ask, free, kept.unknown if kept else _NOTHING)


def to_json(plan: PlanFile) -> Json:
    """The document to write: known fields over those that came with the file."""
    document: Json = dict(plan.unknown)
    engine: Json = _kept(document, "engine")
    ask = plan.ask
    engine["name"] = ask.engine
    _put(engine, "version", ask.version)
    load = None if ask.load is None else _load(_kept(document, "load"), ask.load)
    document |= {"schema": SCHEMA, "model": plan.model, "machine": plan.machine, "engine": engine}
    _put(document, "options", dict(ask.options))
    _put(document, "load", load)
    _put(document, "weight_format", ask.weight_format)
    _put(document, "measured_bytes", {**_unknown_sizes(plan.unknown), **ask.measured})
    _put(document, "free_bytes", {str(index): size for index, size in plan.free.items()})
    return document


def _load(kept: Json, load: Load) -> Json:
    """A load's fields; the kinds of a mix as objects, where there are several."""
    kept.pop("mix", None)
    fields = load._asdict()
    mix = fields.pop("mix")
    return kept | fields | ({"mix": [part._asdict() for part in mix]} if mix else {})


def _kept(document: Json, field: str) -> Json:
    inner = document.get(field)
    return dict(inner) if isinstance(inner, dict) else {}


def _put(target: Json, field: str, value: object) -> None:
    """Stores a value; what is not set is not stored."""
    if value is None or value == {}:
        target.pop(field, None)
    else:
        target[field] = value


def save(path: str | os.PathLike[str], plan: PlanFile) -> None:
    """Writes the file whole or not at all: a neighbour is written, synced and moved over it.

    What is saved opens again: it is read back before anything is written. Raises BadInput when it would not, and
    when the folder cannot be written.
    """
    where = str(path)
    data = _encoded(to_json(plan), where)
    try:
        write_whole(path, data)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise BadInput(f"the plan cannot be saved: {reason}", where, "Choose another place") from error


def _encoded(document: Json, where: str) -> bytes:
    """The text of a document that `load` accepts. Raises BadInput where there is none."""
    try:
        data = (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()
        if len(data) > MAX_BYTES:
            # What came with the file may be long: blanks are the first to go.
            data = (json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n").encode()
    except (ValueError, RecursionError, UnicodeError) as error:
        raise BadInput(f"the plan cannot be saved: {error}", where, _UNKNOWN_REMEDY) from error
    if len(data) > MAX_BYTES:
        raise BadInput(f"the plan would have {len(data):,} bytes, and at most {MAX_BYTES:,} are opened again", where,
                       _UNKNOWN_REMEDY)  # fmt: skip
    try:
        from_json(jsonfile.parse_object(data, where), where)
    except BadInput as error:
        raise BadInput(f"the plan would not open again: {error.what}", where, error.remedy) from error
    return data


def load(path: str | os.PathLike[str]) -> PlanFile:
    """Reads a plan file. Raises BadInput that names the file, the field and what was expected.

    A model path that is not absolute is taken from the file's folder.
    """
    where = str(path)
    data = read_whole(Path(path), MAX_BYTES)
    try:
        document = jsonfile.parse_object(data, where)
    except BadInput as error:
        raise BadInput(f"is not a plan file: {error.what}", where, _REMEDY) from error
    plan = from_json(document, where)
    beside = Path(path).parent / plan.model
    if plan.model.startswith(("./", "../", ".\\", "..\\")) and is_there(beside):
        return plan._replace(model=str(beside))
    return plan


def from_json(document: Json, where: str) -> PlanFile:
    """A plan file's document, checked field by field. Raises BadInput, or NotModelled for a newer schema."""
    schema = document.get("schema")
    if schema != SCHEMA:
        raise _other_schema(schema, where)
    fields = _Fields(where)
    engine = fields.object(document, "engine")
    raw_load = fields.object(document, "load")
    wished: Load | None = None
    if raw_load:
        wished = fields.load(raw_load)
    return PlanFile(
        fields.text(document, "model"),
        fields.text(document, "machine"),
        Ask(
            engine=fields.text(engine, "name", "engine") if "name" in engine else Ask().engine,
            version=fields.text(engine, "version", "engine") if engine.get("version") is not None else None,
            options=fields.options(document),
            load=wished,
            weight_format=fields.text(document, "weight_format") if document.get("weight_format") is not None else None,
            measured=fields.measured(document),
        ),
        fields.free(document),
        document,
    )


def _other_schema(schema: object, where: str) -> BadInput | NotModelled:
    """The error for a document that is not of this version's kind."""
    version = _VERSION.fullmatch(schema) if isinstance(schema, str) else None
    if version and int(version[1]) > int(SCHEMA.rpartition("/")[2]):
        return NotModelled(f"schema {schema} is newer than {SCHEMA}", where, "Open it with a newer kvplanner")
    if version:
        return NotModelled(f"schema {schema} is older than any that was published", where, _REMEDY)
    shown = cut(repr(schema), 60)
    return BadInput(f"is not a plan file: schema is {shown}, {SCHEMA!r} is expected", where,
                    "Choose a file that kvplanner saved")  # fmt: skip


class _Fields:
    """Checks the fields of one document, naming each in its error."""

    def __init__(self, where: str) -> None:
        self.where = where

    def wrong(self, field: str, value: object, expected: str) -> BadInput:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return BadInput(f"field {field} is {shown}, {expected} is expected", self.where, _REMEDY)

    def object(self, parent: Json, field: str) -> Json:
        value = parent.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict) or len(value) > MAX_ENTRIES:
            raise self.wrong(field, value, "an object")
        return value

    def text(self, parent: Json, field: str, path: str = "") -> str:
        value = parent.get(field)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(f"{path}.{field}" if path else field, value, "a text")
        return value

    def integer(self, parent: Json, field: str, path: str) -> int:
        value = parent.get(field)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
            raise self.wrong(f"{path}.{field}", value, "a whole number, not negative")
        return value

    def load(self, given: Json) -> Load:
        """A load; of several kinds, the longest is found anew."""
        users = self.integer(given, "users", "load")
        if given.get("mix") is None:
            prompt, output = (self.integer(given, name, "load") for name in ("prompt_tokens", "output_tokens"))
            return Load(users, prompt, output)
        mix = given["mix"]
        if not isinstance(mix, list) or not 0 < len(mix) <= MOST_KINDS or not all(isinstance(p, dict) for p in mix):
            raise self.wrong("load.mix", mix, f"a list of 1 to {MOST_KINDS} objects")
        parts = [self._part(part) for part in mix]
        whole = sum(part.share for part in parts)
        exact = abs(whole - 1) < _ROUNDED
        return mixed(users, parts if exact else [part._replace(share=part.share / whole) for part in parts])

    def _part(self, given: Json) -> Part:
        share = given.get("share")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise self.wrong("load.mix.share", share, "a number above 0, at most 1")
        prompt, output = (self.integer(given, name, "load.mix") for name in ("prompt_tokens", "output_tokens"))
        found = Part(share, prompt, output)
        if not found.tokens:
            raise self.wrong("load.mix.prompt_tokens", 0, "a token at least")
        return found

    def options(self, document: Json) -> dict[str, OptionValue]:
        found: dict[str, OptionValue] = {}
        for name, value in self.object(document, "options").items():
            if not isinstance(value, bool | int | float | str):
                raise self.wrong(f"options.{name}", value, "a text, a number, true or false")
            found[name] = value
        return found

    def measured(self, document: Json) -> dict[str, int]:
        given = self.object(document, "measured_bytes")
        sizes = {kind: self.integer(given, kind, "measured_bytes") for kind in given}
        return {kind: size for kind, size in sizes.items() if kind in _GIVEN}

    def free(self, document: Json) -> dict[int, int]:
        given = self.object(document, "free_bytes")
        if unknown := [index for index in given if not (index.isascii() and index.isdecimal() and len(index) < 4)]:
            raise self.wrong("free_bytes", unknown[0], "the index of a GPU")
        return {int(index): self.integer(given, index, "free_bytes") for index in given}


def _check_options(plan: PlanFile) -> None:
    from kvplanner.engine.registry import engine
    from kvplanner.engine.values import check_value

    asked = plan.ask
    chosen = engine(asked.engine)
    known = {option.name: option for option in chosen.options(asked.version)}
    for name, value in asked.options.items():
        if name not in known:
            from difflib import get_close_matches

            release = f" {asked.version}" if asked.version else ""
            raise UnknownName(f"{chosen.title}{release} has no such option", f"plan file: options.{name[:60]}",
                              tuple(get_close_matches(name, known, n=3)), "Take it out of the file")  # fmt: skip
        try:
            check_value(known[name], value)
        except BadInput as error:
            raise BadInput(error.what, f"plan file: options.{name}", error.remedy) from None


def to_request(plan: PlanFile, model: Model, machine: Machine) -> PlanRequest:
    """The request that a plan file stands for, once its model and machine were found.

    Raises BadInput when it tells the free memory of a GPU that the machine does not have, and for options that the
    engine does not have or that are of another type or range.
    """
    _check_options(plan)
    if outside := [index for index in plan.free if index >= len(machine.devices)]:
        raise BadInput(f"there is no GPU {outside[0]}: the machine has {counted(len(machine.devices), 'GPU', 'GPUs')}",
                       "plan file: free_bytes", "Take it out of the file, or name the machine with --gpu")  # fmt: skip
    devices = tuple(
        d._replace(free_bytes=plan.free[d.index], free_source="plan file") if d.index in plan.free else d
        for d in machine.devices
    )
    return plan.ask.request(model, machine._replace(devices=devices))
