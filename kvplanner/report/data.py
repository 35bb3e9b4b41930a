"""What this installation knows and how old that is: the data that came with it, and the packs that were added."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from kvplanner import packfile
from kvplanner.catalog import gpus, models
from kvplanner.engine import registry
from kvplanner.packfile import Pack
from kvplanner.printable import printable
from kvplanner.record import NamedTuple
from kvplanner.units import counted


class DataRow(NamedTuple):
    """A line of the list. name: of the pack, "" for what came with the program; what, age: in words."""

    name: str
    title: str
    what: str
    made: date
    age: str
    signed: str = ""


def rows(today: date) -> tuple[DataRow, ...]:
    """What came with the program, then each pack, the newest first."""
    made = date.fromisoformat(gpus.made())
    known = f"{models.shipped_count()} models, {counted(gpus.shipped_count(), 'GPU', 'GPUs')}"
    packs = tuple(reversed(packfile.installed().packs))
    return (DataRow("", "with kvplanner", known, made, age(made, today)), *(_row(pack, today) for pack in packs))


def _row(pack: Pack, today: date) -> DataRow:
    mark = f"{packfile.fingerprint(pack.key)} ({printable(pack.by)})"
    return DataRow(pack.name, f"pack {pack.name}", contents(pack), pack.made, age(pack.made, today), mark)


def contents(pack: Pack) -> str:
    """How much a pack holds, in words."""
    parts = [counted(len(records), one, more) for records, one, more in (
        (pack.models, "model", "models"), (pack.gpus, "GPU", "GPUs"),
    ) if records]  # fmt: skip
    for engine, entries in pack.constants.items():
        title = dict(registry.titles()).get(engine, engine)
        parts.append(f"{counted(len(entries), 'constant', 'constants')} of {title}")
    return ", ".join(parts) or "nothing"


def age(made: date, today: date) -> str:
    """How old data of a day are: "3 days", "5 weeks", "14 months"."""
    days = (today - made).days
    if days < 0:
        return "dated after today"
    if days < 28:
        return counted(days, "day", "days")
    return counted(days // 7, "week", "weeks") if days < 120 else counted(days * 12 // 365, "month", "months")


def engines() -> tuple[tuple[str, str], ...]:
    """Each engine with the releases whose rules are known."""
    found = ((engine.title, engine.versions) for engine in map(registry.engine, registry.names()))
    return tuple((title, _run(versions)) for title, versions in found)


def _run(versions: Sequence[str]) -> str:
    ends = dict.fromkeys((versions[-1], versions[0])) if versions else ()
    return " to ".join(ends)


def problems() -> Sequence[str]:
    """Packs that were left aside, each with why."""
    return tuple(f"{printable(name)} is left aside: {printable(why)}" for name, why in packfile.installed().problems)
