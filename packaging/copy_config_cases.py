"""Copy a folder of public configs with what is known of them into tests/model/config_cases.jsonl.

    python packaging/copy_config_cases.py FOLDER

FOLDER holds configs.jsonl (file, source_url, architecture, expected, kind_of_fault, note) and the files that it names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).resolve().parent.parent / "tests" / "model" / "config_cases.jsonl"


def main(folder: Path) -> None:
    """One line for each case that has a file: its text as it stands, so that what JSON lacks is kept."""
    rows = [json.loads(line) for line in (folder / "configs.jsonl").read_text(encoding="utf-8").splitlines()]
    made = [
        {
            "name": Path(row["file"]).stem, "source": row["source_url"], "expected": row["expected"],
            "note": row["note"], "text": (folder / row["file"]).read_text(encoding="utf-8"),
        }
        for row in rows
        if row["file"]
    ]  # fmt: skip
    TARGET.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in made), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
