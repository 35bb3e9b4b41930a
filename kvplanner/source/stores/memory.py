"""What the last search of this machine found, kept in a file so that the next start shows it at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, get_args

from kvplanner import jsonfile
from kvplanner.errors import BadInput
from kvplanner.files import write_whole
from kvplanner.source.stores.found import Fingerprint, Found, Store

FILE_NAME: Final = "local-models.json"
_VERSION: Final = 1
_LIMIT_BYTES: Final = 32_000_000
_TEXTS: Final = ("key", "name", "store", "path", "format", "architecture", "problem")
_NUMBERS: Final = ("bytes", "modified_ns")
_MAYBE: Final = ("parameters", "context_length")

Remembered = dict[str, tuple[Fingerprint, Found | None]]


def load(folder: Path | None) -> Remembered:
    """The entries by key; a None stands for a file that is no model. Empty when there is no good file."""
    if folder is None:
        return {}
    try:
        content = jsonfile.read_object(folder / FILE_NAME, _LIMIT_BYTES)
    except BadInput:
        return {}
    entries = content.get("entries")
    if content.get("version") != _VERSION or not isinstance(entries, list):
        return {}
    remembered: Remembered = {}
    for entry in entries:
        if isinstance(entry, dict) and (read := _entry(entry)) is not None:
            remembered[read[0]] = read[1:]
    return remembered


def save(folder: Path | None, entries: Iterable[tuple[str, Fingerprint, Found | None]]) -> None:
    """Replaces the file as a whole. A folder that cannot be written costs only the memory."""
    if folder is None:
        return
    rows = [
        {"key": key, "mark": list(mark), "found": found and {n: getattr(found, n) for n in Found._fields}}
        for key, mark, found in entries
    ]  # fmt: skip
    with suppress(OSError, UnicodeEncodeError):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE_NAME, json.dumps({"version": _VERSION, "entries": rows}, ensure_ascii=False).encode())


def _entry(entry: Mapping[str, object]) -> tuple[str, Fingerprint, Found | None] | None:
    key, mark, found = entry.get("key"), entry.get("mark"), entry.get("found")
    if not isinstance(key, str) or not isinstance(mark, list) or len(mark) != 3 or not all(_is_size(n) for n in mark):
        return None
    fingerprint = Fingerprint(*mark)
    if found is None:
        return key, fingerprint, None
    if not isinstance(found, dict) or found.keys() != set(Found._fields):
        return None
    texts = all(isinstance(found[name], str) for name in _TEXTS) and found["store"] in get_args(Store)
    numbers = all(_is_size(found[name]) for name in _NUMBERS)
    maybe = all(found[name] is None or _is_size(found[name]) for name in _MAYBE)
    return (key, fingerprint, Found(**found)) if texts and numbers and maybe else None


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
