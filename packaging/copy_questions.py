"""Copy public questions about memory with their true answers into tests/solve/questions.jsonl.

    python packaging/copy_questions.py FILE

FILE has a question a line: id, url (the thread), question (in own words), command (what a user would type), expected
(the thread's answer; brackets say what is inferred), kind.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).resolve().parent.parent / "tests" / "solve" / "questions.jsonl"
KEYS: Final = ("id", "url", "question", "command", "expected", "kind")


def main(file: Path) -> None:
    """One line for each question, keys in order. Raises KeyError for a question that lacks one."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    made = [json.dumps({key: row[key] for key in KEYS}, ensure_ascii=False) for row in sorted(rows, key=_order)]
    TARGET.write_text("\n".join(made) + "\n", encoding="utf-8")


def _order(row: dict[str, str]) -> str:
    return row["id"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
