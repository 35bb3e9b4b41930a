"""Copy public start-up reports into tests/truth: checked field by field, one report a line, keys in a fixed order.

    python packaging/build_truth.py FOLDER [FILE ...]

FOLDER holds vllm.jsonl, sglang.jsonl and llamacpp.jsonl (reports with a public source), and the same with -uncited
(reports whose source is not recorded: good to fit on, not shown as evidence). A report that breaks the rules of
tests/truth/README.md stops the run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).resolve().parent.parent / "tests" / "truth"
FILES: Final = ("vllm.jsonl", "vllm-uncited.jsonl", "sglang.jsonl", "sglang-uncited.jsonl")
KEYS: Final = (
    "id", "source", "date", "vllm_version", "sglang_version", "model", "quantization", "dtype", "gpu", "gpu_memory_gib",
    "tp", "pp", "dp", "ep", "flags", "reported", "outcome", "notes",
)  # fmt: skip
LLAMACPP_FILES: Final = ("llamacpp.jsonl", "llamacpp-uncited.jsonl")
LLAMACPP_KEYS: Final = (
    "id", "source", "engine", "engine_version", "model", "quant", "gpu", "n_gpu", "flags", "reported", "notes",
)  # fmt: skip
OUTCOMES: Final = frozenset({
    "ok", "free_check", "weights", "profile", "no_kv", "kv_too_small", "graph_capture", "runtime_oom", "wsl_or_driver",
    "other",
})  # fmt: skip


def check(row: dict[str, Any], where: str) -> dict[str, Any]:
    """The row with its keys in order, without fields that no scorer reads.

    Such a field may describe the report (a number, a word); a list or an object is a field misplaced.
    Raises ValueError or TypeError naming the place of a broken field.
    """
    misplaced = sorted(key for key in set(row) - set(KEYS) if isinstance(row[key], list | dict))
    if misplaced:
        raise ValueError(f"{where}: unknown fields {misplaced}")
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


def check_llamacpp(row: dict[str, Any], where: str) -> dict[str, Any]:
    """A report of llama.cpp with its keys in order. Raises ValueError or TypeError naming the place."""
    missing = [key for key in ("id", "source", "engine_version", "model", "gpu", "flags", "reported") if key not in row]
    if missing:
        raise ValueError(f"{where}: missing fields {missing}")
    if not isinstance(row["gpu"], list) or not isinstance(row["reported"], dict):
        raise TypeError(f"{where}: gpu is no list, or reported no object")
    return {key: row[key] for key in LLAMACPP_KEYS if row.get(key) is not None}


def copy(source: Path, target: Path, checked: Callable[[dict[str, Any], str], dict[str, Any]] = check) -> int:
    """Rows written to target."""
    rows = []
    seen: set[str] = set()
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
        row = checked(json.loads(line), f"{source.name}:{number}")
        if row["id"] in seen:
            raise ValueError(f"{source.name}:{number}: id {row['id']!r} twice")
        seen.add(row["id"])
        rows.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    target.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return len(rows)


def main(folder: str, *names: str) -> None:
    """Copy the named files of reports, or every one."""
    for name in names or (*FILES, *LLAMACPP_FILES):
        checked = check_llamacpp if name in LLAMACPP_FILES else check
        print(name, copy(Path(folder) / name, TARGET / name, checked))


if __name__ == "__main__":
    main(*sys.argv[1:])
