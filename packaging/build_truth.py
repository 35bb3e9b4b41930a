"""Copy public start-up reports into tests/truth: checked field by field, one report a line, keys in a fixed order.

    python packaging/build_truth.py FOLDER [FILE ...]

FOLDER holds vllm.jsonl and sglang.jsonl (reports with a public source), vllm-uncited.jsonl and sglang-uncited.jsonl
(reports whose source is not recorded: good to fit on, not shown as evidence). A report that breaks the rules of
tests/truth/README.md stops the run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).resolve().parent.parent / "tests" / "truth"
FILES: Final = ("vllm.jsonl", "vllm-uncited.jsonl", "sglang.jsonl", "sglang-uncited.jsonl")
KEYS: Final = (
    "id", "source", "date", "vllm_version", "sglang_version", "model", "quantization", "dtype", "gpu", "gpu_memory_gib",
    "tp", "pp", "dp", "ep", "flags", "reported", "outcome", "notes",
)  # fmt: skip
OUTCOMES: Final = frozenset({
    "ok", "free_check", "weights", "profile", "no_kv", "kv_too_small", "graph_capture", "runtime_oom", "wsl_or_driver",
    "other",
})  # fmt: skip


def check(row: dict[str, Any], where: str) -> dict[str, Any]:
    """The row with its keys in order. Raises ValueError or TypeError naming the place of a broken field."""
    unknown = sorted(set(row) - set(KEYS))
    if unknown:
        raise ValueError(f"{where}: unknown fields {unknown}")
    of_sglang = where.startswith("sglang")
    wanted = ("id", "source", *(() if of_sglang else ("model",)), "flags", "reported", "outcome")
    missing = [key for key in wanted if key not in row]
    if missing:
        raise ValueError(f"{where}: missing fields {missing}")
    if not of_sglang and row["outcome"] not in OUTCOMES:
        raise ValueError(f"{where}: unknown outcome {row['outcome']!r}")
    for name, value in row["reported"].items():
        if not isinstance(value, int | float):
            raise TypeError(f"{where}: reported.{name} is {value!r}, not a number")
    return {key: row[key] for key in KEYS if row.get(key) is not None}


def copy(source: Path, target: Path) -> int:
    """Rows written to target."""
    rows = []
    seen: set[str] = set()
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
        row = check(json.loads(line), f"{source.name}:{number}")
        if row["id"] in seen:
            raise ValueError(f"{source.name}:{number}: id {row['id']!r} twice")
        seen.add(row["id"])
        rows.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    target.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return len(rows)


def main(folder: str, *names: str) -> None:
    """Copy the files of reports that are named, or every one."""
    for name in names or FILES:
        print(name, copy(Path(folder) / name, TARGET / name))


if __name__ == "__main__":
    main(*sys.argv[1:])
