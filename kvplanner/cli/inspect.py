"""kvplanner inspect: what a model is, without planning anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import FITS, emit_json, say

if TYPE_CHECKING:
    from kvplanner.model.model import Model
    from kvplanner.report.inspect import Inspection

SCHEMA: Final = "kvplanner.inspect/1"


def parser() -> Parser:
    """The arguments of `inspect`."""
    made = Parser("inspect", "What a model is: parameters, bytes by kind and format, layers in words, KV cache.")
    made.add_argument("model", metavar="MODEL", help="catalogue id, folder, config.json, *.safetensors, *.gguf, ...")
    made.add_argument("--json", action="store_true", help=f"as JSON, schema {SCHEMA}")
    return made


def run(argv: Sequence[str]) -> int:
    """Prints what the model is. Raises PlannerError where it cannot be read."""
    from kvplanner.report.inspect import inspect
    from kvplanner.report.inspect_text import lines

    given = parser().parse_args(list(argv))
    found = inspect(open_model(given.model))
    if given.json:
        emit_json(to_json(found))
    else:
        say("\n".join(lines(found)))
    return FITS


def open_model(text: str) -> Model:
    """The model that a word names; only "hub:" goes online, since it asks for it."""
    from kvplanner.source.resolve import open_model as resolve

    return resolve(text, allow_network=text.startswith("hub:"))


def to_json(found: Inspection) -> dict[str, object]:
    """The inspection as plain data: all sizes in bytes."""
    from kvplanner.report.schema import estimate_to_json
    from kvplanner.units import whole

    stored = found.stored
    told = found._asdict() | {name: [row._asdict() for row in getattr(found, name)] for name in _ROWS}
    told["towers"] = [tower._asdict() for tower in found.towers]
    for row in (told, *told["caches"]):
        row |= {name: whole(value) for name, value in row.items() if name.endswith("bytes_per_token")}
    told["stored_bytes"] = stored.value if stored else None
    told["stored"] = estimate_to_json(stored) if stored else None
    return {"schema": SCHEMA, **told}


_ROWS: Final = ("layers", "tensors", "largest", "caches", "states")
