"""Write resources/models/preread.jsonl: every model of the catalogue as its record's config reads; and kinds.json, by
which kind of model they are searched.

Run it whenever a record, or a reader of configs, has changed; tests/catalog/test_preread.py says so:

    python packaging/preread_models.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from kvplanner.catalog import models, preread
from kvplanner.errors import PlannerError
from kvplanner.model.model import Model

TARGET: Final = Path(__file__).resolve().parent.parent / "resources" / "models" / "preread.jsonl"


def lines() -> dict[str, str]:
    """A line for each record; models that cannot be read have none, so that opening them says why."""
    found: dict[str, list[Model]] = {}
    for entry in models.index():
        try:
            found.setdefault(entry.like or entry.id, []).append(models.read(entry))
        except PlannerError:
            continue
    return {record: preread.encoded(of_record) for record, of_record in found.items()}


def kinds() -> dict[str, tuple[str, ...]]:
    """The kinds of each model that is more than a plain decoder."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in models.index():
        try:
            of_model = models.kinds_of(models.read(entry).spec)
        except PlannerError:
            continue
        found |= {entry.id: of_model} if of_model else {}
    return found


def main() -> None:
    """Write the files anew."""
    TARGET.write_bytes(preread.file_of(lines()))
    text = json.dumps(kinds(), separators=(",", ":"), ensure_ascii=False)
    (TARGET.parent / "kinds.json").write_text(text.replace("],", "],\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
