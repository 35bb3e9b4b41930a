"""JSON of untrusted files: bounded size and nesting, no duplicate keys, no NaN, and errors that name line and field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from kvplanner.errors import BadInput
from kvplanner.reading import read_whole

CONFIG_LIMIT_BYTES: Final = 8_000_000
# Index files name every tensor: 90,000 of them make 9 MB, 300,000 make 30 MB.
INDEX_LIMIT_BYTES: Final = 48_000_000
# Brackets and commas bound what parsing may cost: an empty list costs 24 times its text.
CONTAINER_LIMIT: Final = 200_000
VALUE_LIMIT: Final = 1_000_000
# The deepest configs have a dozen levels. Python's own limit depends on how deep the caller stands.
DEPTH_LIMIT: Final = 100

_KEY: Final = re.compile(r'"((?:[^"\\\n]|\\.){1,200})"\s*:')


def read_object(path: Path, limit_bytes: int = CONFIG_LIMIT_BYTES) -> dict[str, object]:
    """The JSON object in a file. Raises BadInput naming the file, line, field and remedy."""
    return parse_object(read_whole(path, limit_bytes), str(path))


def parse_object(data: bytes, where: str) -> dict[str, object]:
    """The JSON object in `data`; `where` names it in errors. Raises BadInput for anything else."""
    value = parse_value(data, where)
    if not isinstance(value, dict):
        raise BadInput(f"holds a JSON {_json_type(value)} where an object {{...}} is expected", where, _REMEDY)
    return value


_REMEDY: Final = "Restore the file from where it was downloaded"


def read_config(path: Path) -> dict[str, object]:
    """A model's config as Python's json writes it and transformers reads it: NaN and Infinity may stand in it."""
    return parse_config(read_whole(path, CONFIG_LIMIT_BYTES), str(path))


def parse_config(data: bytes, where: str) -> dict[str, object]:
    """As `parse_object`, with NaN and Infinity; a field that is to be a size refuses them where it is read."""
    value = parse_value(data, where, float)
    if not isinstance(value, dict):
        raise BadInput(f"holds a JSON {_json_type(value)} where an object {{...}} is expected", where, _REMEDY)
    return value


def parse_value(data: bytes, where: str, constant: Callable[[str], object] | None = None) -> object:
    """Any JSON value; raises BadInput for text that is not strict JSON or not worth its cost.

    constant: makes a value of NaN, Infinity and -Infinity, which strict JSON does not have.
    """
    if data.count(b"{") + data.count(b"[") > CONTAINER_LIMIT or data.count(b",") > VALUE_LIMIT:
        raise BadInput(
            f"more than {CONTAINER_LIMIT:,} objects and lists, or {VALUE_LIMIT:,} values", where, "Not a model's file"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"invalid UTF-8 on line {line} (byte {error.start:,})", where, _REMEDY) from error
    try:
        return _parsed(text, constant or _no_constant)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"broken JSON on line {error.lineno}, column {error.colno}{_near_field(text, error.pos)}"
            f": {error.msg.lower()}",
            where,
            _REMEDY,
        ) from error
    except _Refused as error:
        line = _line_of(text, error.key)
        raise BadInput(f"{error.reason}{f' on line {line}' if line else ''}", where, _REMEDY) from error
    except RecursionError as error:
        raise BadInput("lists or objects nested too deeply", where, "Not a model's file") from error
    except ValueError as error:
        # Python refuses integers of more than 4,300 digits.
        raise BadInput("a number with more digits than any model needs", where, _REMEDY) from error


def _parsed(text: str, constant: Callable[[str], object]) -> object:
    value: object = json.loads(text, object_pairs_hook=_unique, parse_constant=constant, parse_float=_finite)
    if text.count("{") + text.count("[") > DEPTH_LIMIT:
        _check_depth(value)
    return value


class _Refused(Exception):
    def __init__(self, reason: str, key: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.key = key


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"the field {key[:100]!r} stands twice in one object", f'"{key}"')
            seen.add(key)
    return result


def _no_constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not JSON", name)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused(f"the number {text[:40]} is larger than any", text)
    return value


def _check_depth(value: object) -> None:
    """Raises RecursionError for more levels than are allowed, by a walk that is no deeper itself."""
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise RecursionError


def _line_of(text: str, needle: str) -> int:
    """The line of the last appearance of `needle`, 0 when it is spelled otherwise."""
    position = text.rfind(needle)
    return text.count("\n", 0, position) + 1 if position >= 0 else 0


def _near_field(text: str, position: int) -> str:
    keys = _KEY.findall(text, max(0, position - 400), position)
    return f", in or after the field {keys[-1]!r}" if keys else ""


def _json_type(value: object) -> str:
    if isinstance(value, list):
        return "list"
    if isinstance(value, str):
        return "string"
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else "constant"
