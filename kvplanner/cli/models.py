"""kvplanner models: the bundled catalogue, searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import BAD_INPUT, FITS, columns, emit_json, note, say
from kvplanner.report.table import fitted
from kvplanner.units import format_parameters

if TYPE_CHECKING:
    from kvplanner.catalog.models import ModelEntry

SCHEMA: Final = "kvplanner.models/1"


def parser() -> Parser:
    """The arguments of `models`."""
    made = Parser("models", "Lists the bundled models: all, or those that all words of the query fit.")
    made.add_argument("query", nargs="*", metavar="QUERY", help="words of name, family, size or quantisation")
    made.add_argument("--json", action="store_true", help=f"as JSON, schema {SCHEMA}")
    return made


def run(argv: Sequence[str]) -> int:
    """Prints the entries; status 2 when nothing fits the query."""
    from kvplanner.catalog import models

    given = parser().parse_args(list(argv))
    query = " ".join(given.query)
    entries = models.search(query) if query.strip() else models.index()
    if given.json:
        emit_json({"schema": SCHEMA, "query": query, "models": [entry._asdict() for entry in entries]})
    elif entries:
        heads = ("id", "parameters", "stored GB", "GiB", "format", "context")
        say("\n".join(fitted([heads, *map(_row, entries)], "<>>><>", (2, 1, 4), columns())))
        if any(entry.lower_confidence for entry in entries):
            say("\n* less sure: some fields come from class defaults or from a model of the same shape")
    if not entries:
        note(f"no bundled model fits {query!r}. {_by_name(query)}")
        return BAD_INPUT
    return FITS


def _by_name(query: str) -> str:
    """What to do where nothing fits: a name that says a known model and format can be planned all the same."""
    from kvplanner.catalog import naming

    name = "-".join(query.split())
    said = naming.parse(name)
    if said is None or not said.key:
        return "Fewer words find more; kvplanner plan also takes a folder or a file"
    return f"kvplanner plan {name} plans {said.base.id} in {said.key}, as publishers make it"


def _row(entry: ModelEntry) -> tuple[str, ...]:
    stored = entry.stored_bytes
    return (
        entry.id + (" *" if entry.lower_confidence else ""),
        format_parameters(entry.parameters) if entry.parameters else "?",
        f"{stored / 1e9:,.2f}" if stored else "?",
        f"{stored / (1 << 30):,.2f}" if stored else "?",
        entry.quantization or "as trained",
        f"{entry.context_length:,}" if entry.context_length else "?",
    )
