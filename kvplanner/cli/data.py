"""kvplanner data: what is known here and how old it is; adds and removes packs of newer data, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import FITS, columns, emit_json, note, say
from kvplanner.errors import BadInput
from kvplanner.report.table import fitted

SCHEMA: Final = "kvplanner.data/1"


def parser() -> Parser:
    """The arguments of `data`."""
    made = Parser("data", "What is known here and how old it is. A pack (.kvpack), one signed file, brings newer\n"
                  "models, GPUs and engine constants to a machine without a network.")  # fmt: skip
    made.add_argument("action", nargs="?", choices=("list", "add", "remove"), default="list",
                      help="add FILE, remove NAME; a list without")  # fmt: skip
    made.add_argument("what", nargs="?", metavar="FILE|NAME", help="the pack's file to add, the pack's name to remove")
    made.add_argument("--trust", metavar="FINGERPRINT", default="",
                      help="add: a publisher's key that may sign packs here from now on")  # fmt: skip
    made.add_argument("--json", action="store_true", help=f"as JSON, schema {SCHEMA}")
    return made


def run(argv: Sequence[str]) -> int:
    """Lists, adds or removes; raises BadInput for a pack that cannot be used."""
    given = parser().parse_args(list(argv))
    if given.trust and given.action != "add":
        raise BadInput("is for add", "--trust", "Write kvplanner data add FILE --trust FINGERPRINT")
    if given.action == "list":
        if given.what:
            raise BadInput(f"takes no {given.what[:60]!r}", "data", "Write data add FILE or data remove NAME")
        _list(as_json=given.json)
        return FITS
    if not given.what:
        raise BadInput(
            "which pack is missing", f"data {given.action}", "Name its file to add it, its name to remove it"
        )
    from kvplanner import packs
    from kvplanner.report.data import contents

    if given.action == "add":
        added = packs.add(Path(given.what), given.trust)
        say(f"{'Replaced' if added.replaced else 'Added'} pack {added.pack.name} of {added.pack.made}: "
            f"{contents(added.pack)}")  # fmt: skip
    else:
        packs.remove(given.what)
        say(f"Removed pack {given.what}")
    return FITS


def _list(*, as_json: bool) -> None:
    from kvplanner import packfile, packs
    from kvplanner.report import data

    rows = data.rows(datetime.now(UTC).astimezone().date())
    known = {pack.name: packs.unchanged(pack) for pack in packfile.installed().packs}
    if as_json:
        listed = [
            row._asdict() | {"made": row.made.isoformat(), "unchanged": known.get(row.name, True)} for row in rows
        ]
        emit_json({"schema": SCHEMA, "data": listed, "engines": dict(data.engines()), "problems": data.problems()})
        return
    marks = {name: "" if fine else " CHANGED since it was signed" for name, fine in known.items()}
    heads = ("data", "of", "age", "holds", "signed by")
    told = [(r.title, r.made.isoformat(), r.age, r.what, r.signed + marks.get(r.name, "")) for r in rows]
    say("\n".join(fitted([heads, *told], "<<><<", (3, 4), columns())))
    say("\nRules: " + "; ".join(f"{title} {versions}" for title, versions in data.engines() if versions))
    if len(rows) == 1:
        say("No pack was added; kvplanner data add FILE.kvpack adds one")
    for problem in data.problems():
        note(problem)
