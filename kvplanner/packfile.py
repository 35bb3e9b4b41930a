"""Data packs: newer models, GPUs and engine constants in one signed file, for machines that never go online.

A pack (`NAME.kvpack`) is one line of JSON, which names the publisher's Ed25519 key and its signature, and then the
signed bytes: a JSON object with name, made (a date), by, models, gpus and constants. What was added lies in the data
folder's `packs`, each pack beside the rows that the index of models takes from it, made when it was added. The rows'
file is named by the pack's signature: whichever pack is there, one that was replaced halfway included, has its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Final

from kvplanner.errors import BadInput
from kvplanner.files import has_packs, packs_folder
from kvplanner.jsonfile import parse_object
from kvplanner.reading import file_size, read_whole
from kvplanner.record import NamedTuple

SCHEMA: Final = "kvplanner.pack/1"
ROWS_SCHEMA: Final = "kvplanner.packrows/1"
SUFFIX: Final = ".kvpack"
MOST_BYTES: Final = 8_000_000
MOST_PACKS: Final = 32
NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,59}")
_ROWS_SUFFIX: Final = ".rows.json"
_HEAD_BYTES: Final = 1000
_REMEDY: Final = "Get the pack again from where it was published"


class Signed(NamedTuple):
    """The two halves of a pack's file. key, signature: as hexadecimal digits; body: what is signed."""

    key: str
    signature: str
    body: bytes


class Pack(NamedTuple):
    """What one pack brings. made: its date; by: who made it, in the publisher's words; key: as hexadecimal digits.

    models, gpus: records as the catalogues hold them, by id; rows: what the index of models says of them;
    constants: of each engine by name, entries that come before the shipped ones.
    """

    name: str
    made: date
    by: str
    key: str
    models: Mapping[str, dict[str, Any]] = {}
    gpus: Mapping[str, dict[str, Any]] = {}
    constants: Mapping[str, Mapping[str, list[dict[str, Any]]]] = {}
    rows: tuple[list[Any], ...] = ()


def split(data: bytes, where: str) -> Signed:
    """Key, signature and signed bytes of a pack's file. Raises BadInput for another kind of file."""
    line, newline, body = data.partition(b"\n")
    if not newline or len(line) > _HEAD_BYTES or not line.startswith(b"{"):
        raise BadInput("not a data pack", where, f"Packs end in {SUFFIX} and begin with their signature")
    head = parse_object(line, where)
    if head.get("schema") != SCHEMA:
        raise BadInput(f"a pack of schema {str(head.get('schema'))[:60]!r}", where, f"This version reads {SCHEMA}")
    key, signature = str(head.get("key")), str(head.get("signature"))
    if not re.fullmatch(r"[0-9a-f]{64}", key) or not re.fullmatch(r"[0-9a-f]{128}", signature):
        raise BadInput("key or signature is none", where, _REMEDY)
    return Signed(key, signature, body)


def fingerprint(key: str) -> str:
    """A key in few digits, for people to compare: the start of its SHA-256."""
    from hashlib import sha256

    digits = sha256(bytes.fromhex(key)).hexdigest()[:20]
    return "-".join(digits[at : at + 4] for at in range(0, 20, 4))


def read(signed: Signed, where: str) -> Pack:
    """The pack of signed bytes; what is in its records is not looked at. Raises BadInput naming the field."""
    body = parse_object(signed.body, where)
    unknown = sorted(body.keys() - {"name", "made", "by", "models", "gpus", "constants"})
    if unknown:
        raise BadInput(f"the field {unknown[0][:60]!r} is not known", where, "A newer version of kvplanner reads it")
    name, by = body.get("name"), body.get("by")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadInput("a pack's name has small letters, digits, dots and dashes", f"{where}: name", _REMEDY)
    if not isinstance(by, str) or not 0 < len(by) <= 100 or not by.isprintable():
        raise BadInput("who made it is missing", f"{where}: by", _REMEDY)
    try:
        made = date.fromisoformat(str(body.get("made")))
    except ValueError as error:
        raise BadInput("the date is none, such as 2026-11-30", f"{where}: made", _REMEDY) from error
    return Pack(
        name, made, by, signed.key,
        models=_by_id(body.get("models", []), f"{where}: models"),
        gpus=_by_id(body.get("gpus", []), f"{where}: gpus"),
        constants=_constants(body.get("constants", {}), f"{where}: constants"),
    )  # fmt: skip


def _by_id(records: object, where: str) -> dict[str, dict[str, Any]]:
    if not isinstance(records, list):
        raise BadInput("not a list of records", where, _REMEDY)
    found: dict[str, dict[str, Any]] = {}
    for at, record in enumerate(records):
        name = record.get("id") if isinstance(record, dict) else None
        if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
            raise BadInput("a record has no id", f"{where}[{at}]", _REMEDY)
        if name in found:
            raise BadInput(f"{name!r} stands twice", where, _REMEDY)
        found[name] = record
    return found


def _constants(given: object, where: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
    if not isinstance(given, dict):
        raise BadInput("not an object of engines", where, _REMEDY)
    for engine, names in given.items():
        if not isinstance(names, dict):
            raise BadInput("not an object of constants", f"{where}.{engine[:60]}", _REMEDY)
        for name, entries in names.items():
            if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
                raise BadInput("not a list of entries", f"{where}.{engine[:60]}.{name[:60]}", _REMEDY)
    return given


class Installed(NamedTuple):
    """The packs of this machine, the oldest first. problems: file names of those left aside, with why."""

    packs: tuple[Pack, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()


@cache
def installed() -> Installed:
    """The packs that were added here; one that cannot be read is left aside and named, never an error."""
    try:
        with os.scandir(packs_folder()) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(SUFFIX))
    except OSError:
        return Installed()
    packs, problems = [], []
    for name in names[:MOST_PACKS]:
        try:
            packs.append(_load(packs_folder() / name))
        except BadInput as error:
            problems.append((name, str(error)))
    problems += [(name, f"more than {MOST_PACKS} packs") for name in names[MOST_PACKS:]]
    return Installed(tuple(sorted(packs, key=lambda pack: (pack.made, pack.name))), tuple(problems))


def _load(path: Path) -> Pack:
    signed = split(read_whole(path, MOST_BYTES), str(path))
    pack = read(signed, str(path))
    if not pack.models:
        return pack
    kept = rows_path(path, signed)
    kept = kept if file_size(kept) is not None else path.with_suffix(_ROWS_SUFFIX)  # of before the signature was in it
    if file_size(kept) is None:
        raise BadInput("its index is missing", str(path), "Add the pack again")
    beside = parse_object(read_whole(kept, MOST_BYTES), str(kept))
    rows = beside.get("rows") if beside.get("schema") == ROWS_SCHEMA else None
    if not isinstance(rows, list) or not all(map(_is_row, rows)) or {row[0] for row in rows} != pack.models.keys():
        raise BadInput("its index is of another version", str(path), "Add the pack again")
    return pack._replace(rows=tuple(rows))


# What a row holds, in its order: texts or nothing, and where numbers stand.
_IN_ROW: Final = (str, str, str, int, int, str, int, str, str, int, str, int)
_ALWAYS: Final = {0, 1, 2, 9, 10, 11}


def _is_row(row: object) -> bool:
    """Whether it is as the index of models has its rows."""
    return (
        isinstance(row, list)
        and len(row) == len(_IN_ROW)
        and all(
            isinstance(value, kind) if value is not None else at not in _ALWAYS
            for at, (value, kind) in enumerate(zip(row, _IN_ROW, strict=True))
        )
    )


def rows_path(path: Path, signed: Signed) -> Path:
    """Where the index rows of an added pack lie."""
    return path.with_name(f"{path.stem}.{signed.signature[:16]}{_ROWS_SUFFIX}")


def forget_rows(path: Path, keep: Path | None = None) -> None:
    """Take away the rows of packs that were at this path, but one's."""
    named = re.compile(re.escape(path.stem) + r"(\.[0-9a-f]{16})?" + re.escape(_ROWS_SUFFIX))
    with suppress(OSError):
        for other in [other for other in path.parent.iterdir() if named.fullmatch(other.name) and other != keep]:
            other.unlink(missing_ok=True)


@cache
def models() -> Mapping[str, tuple[dict[str, Any], Pack]]:
    """Records of models that packs bring, with their pack; of one id, that of the newest pack."""
    return {name: (record, pack) for pack in installed().packs for name, record in pack.models.items()}


@cache
def gpus() -> Mapping[str, tuple[dict[str, Any], Pack]]:
    """Records of GPUs that packs bring, with their pack; of one id, that of the newest pack."""
    return {name: (record, pack) for pack in installed().packs for name, record in pack.gpus.items()}


def constants(engine: str, name: str) -> list[dict[str, Any]]:
    """Entries of an engine's constant that packs bring, those of the newest pack first."""
    return [entry for pack in reversed(installed().packs) for entry in pack.constants.get(engine, {}).get(name, ())]


def forget() -> None:
    """Read the packs anew when they are next asked for."""
    for known in (has_packs, installed, models, gpus):
        known.cache_clear()
