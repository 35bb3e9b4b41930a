"""Copy published sizes that names can be held against: python packaging/build_size_rows.py FOLDER.

FOLDER holds models-2/published-sizes.jsonl. The result is tests/catalog/published_sizes.tsv: id, bytes, how far they
are rounded, and who says so; rows with a remark (rounded to an unknown grain, stored twice) are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "tests" / "catalog" / "published_sizes.tsv"


def main(arguments: list[str]) -> int:
    """Write the rows."""
    if len(arguments) != 1:
        print("usage: python packaging/build_size_rows.py FOLDER", file=sys.stderr)
        return 2
    rows = {}
    for line in (Path(arguments[0]) / "models-2" / "published-sizes.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if not row.get("note"):
            numbers = f"{round(row['stored_bytes'])}\t{round(row['tolerance'])}"
            rows[(row["id"], row["source"])] = f"{row['id']}\t{numbers}\t{row['source']}"
    TARGET.write_text("id\tbytes\trounded\tsource\n" + "\n".join(sorted(rows.values())) + "\n", encoding="utf-8")
    print(len(rows), "rows")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
