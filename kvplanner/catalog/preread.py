"""Models of the catalogue as they are once read: what reading each config gave, kept so that it is not read again.

One line holds all models that share a record, as JSON: a list of nodes, each the number of its class, then its fields
without the last ones that are at their defaults; a field that is a list of one number is an earlier node. The last node
is the tuple of the models. The first line names the classes and the place of each record's line.

The file is made by packaging/preread_models.py with the readers themselves; a test reads every record anew. Where it
was made for other fields of those classes, every record is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import count
from typing import Any, Final

from kvplanner.estimate import Estimate, Input
from kvplanner.files import shipped
from kvplanner.model import formats, spec, tensors
from kvplanner.model.model import Model

# Every class that a model is made of, by name; the number of a node's class is a place in the file's own list.
_CLASSES: Final[Mapping[str, type[tuple[Any, ...]]]] = {
    kind.__name__: kind
    for kind in (
        Model, Estimate, Input, formats.WeightFormat, tensors.TensorGroup, tensors.Inventory, spec.ModelSpec,
        spec.LayerSpec, spec.Attention, spec.Mla, spec.Mlp, spec.Moe, spec.State, spec.Tower, spec.Indexer,
        spec.Compressed,
    )
}  # fmt: skip
_NAMES: Final = tuple(_CLASSES)
_FIELDS: Final = {name: [*getattr(kind, "_fields", ())] for name, kind in _CLASSES.items()}
# By the number of a node's class: the class, its number of fields, and the defaults of the last ones. A plain tuple's
# size is any.
_MAKERS: Final = (
    (tuple, 0, ()),
    *((kind, len(_FIELDS[name]), (*getattr(kind, "_field_defaults", {}).values(),)) for name, kind in _CLASSES.items()),
)
_MANY: Final = 8
_lines_read: Final = count()
_PATH: Final = shipped("models", "preread.jsonl")
_MISSING: Final = object()


def model(model_id: str, record_id: str) -> Model | None:
    """The model of a record, None where the file has none of it."""
    return _of_record(record_id).get(model_id)


@cache
def _of_record(record_id: str) -> dict[str, Model]:
    place = _places().get(record_id)
    return {} if place is None else {found.id: found for found in decoded(_line(*place))}


def _line(start: int, size: int) -> bytes:
    """A record's line. Whoever reads many has the whole file at hand from then on: opening it costs as much as it."""
    if next(_lines_read) >= _MANY:
        return _whole()[start : start + size]
    with _PATH.open("rb") as file:
        file.seek(start)
        return file.read(size)


@cache
def _whole() -> bytes:
    return _PATH.read_bytes()


def _head() -> bytes:
    """The first line: what a start reads of two megabytes, beside the line of its model."""
    if not _PATH.exists():
        return b"{}"
    with _PATH.open("rb") as file:
        return file.readline()


@cache
def _places() -> dict[str, list[int]]:
    """Where each record's line lies: offset and length. None of them where the file is of other classes."""
    head = json.loads(_head())
    found: dict[str, list[int]] = head.get("places", {})
    return found if head.get("classes") == _FIELDS else {}


def decoded(line: bytes | str) -> tuple[Model, ...]:
    """The models of a line."""
    nodes: list[Any] = []
    add, new = nodes.append, tuple.__new__
    for number, *fields in json.loads(line):
        values = [nodes[f[0]] if f.__class__ is list else f for f in fields]
        kind, size, defaults = _MAKERS[number]
        if (missing := size - len(values)) > 0:
            values += defaults[-missing:]
        add(new(kind, values))  # as the class's own constructor does, which takes twice as long with as many names
    models: tuple[Model, ...] = nodes[-1]
    return models


def encoded(models: Iterable[Model]) -> str:
    """A line that holds models; equal parts of them are one node. Raises TypeError for a part of another class."""
    nodes: list[list[Any]] = []
    seen: dict[str, int] = {}

    def node(value: object) -> object:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if not isinstance(value, tuple):
            raise TypeError(f"a model has a part of {type(value)}")
        number = 0 if type(value) is tuple else 1 + _NAMES.index(type(value).__name__)
        made = [number, *map(node, _shortened(value))]
        key = json.dumps(made)
        if key not in seen:
            seen[key] = len(nodes)
            nodes.append(made)
        return [seen[key]]

    node(tuple(models))
    return json.dumps(nodes, ensure_ascii=False, separators=(",", ":"))


def _shortened(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """The fields of a value without the last ones that are at their defaults."""
    defaults: Mapping[str, Any] = getattr(value, "_field_defaults", {})
    fields: tuple[str, ...] = getattr(value, "_fields", ())
    end = len(value)
    while fields and end and _same(defaults.get(fields[end - 1], _MISSING), value[end - 1]):
        end -= 1
    return value[:end]


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def file_of(lines: Mapping[str, str]) -> bytes:
    """The whole file: record ids with their lines."""
    places: dict[str, list[int]] = {}
    body = [f"{line}\n".encode() for line in lines.values()]

    def head(start: int) -> bytes:
        at = start
        for record_id, line in zip(lines, body, strict=True):
            places[record_id] = [at, len(line)]
            at += len(line)
        return (json.dumps({"classes": _FIELDS, "places": places}, separators=(",", ":")) + "\n").encode()

    start = 0
    while len(made := head(start)) != start:
        start = len(made)
    return made + b"".join(body)
