"""Write tests/model/public_totals.jsonl: public repositories' configs with the bytes that their indexes state.

    python packaging/copy_public_totals.py FOLDER

FOLDER holds a folder for each repository as "OWNER+NAME", with config.json and *.index.json as they stand there. Kept
are the fields of the config that a reader may look at, the index's total_size and where both came from.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from catalogue_models import trimmed

TARGET: Final = Path(__file__).resolve().parent.parent / "tests" / "model" / "public_totals.jsonl"


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each config beside an index with a total."""
    for config in sorted(folder.rglob("config.json")):
        for index in sorted(config.parent.glob("*.index.json"))[:1]:
            metadata = json.loads(index.read_text(encoding="utf-8")).get("metadata") or {}
            if metadata.get("total_size"):
                owner, *rest = config.relative_to(folder).parts
                source = f"github:{owner.replace('+', '/', 1)} {'/'.join(rest)} and {index.name}"
                body = trimmed(json.loads(config.read_text(encoding="utf-8")))
                yield {"source": source, "total": int(metadata["total_size"]), "config": body}


def main(arguments: list[str]) -> int:
    """Write the file anew."""
    if len(arguments) != 1:
        print("usage: python packaging/copy_public_totals.py FOLDER", file=sys.stderr)
        return 2
    found = [json.dumps(row, sort_keys=True) for row in rows(Path(arguments[0]))]
    TARGET.write_text("".join(line + "\n" for line in found), encoding="utf-8")
    print(len(found), "configs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
