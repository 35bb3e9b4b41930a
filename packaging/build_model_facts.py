"""Build tests/model/facts.jsonl: python packaging/build_model_facts.py FOLDER.

FOLDER holds oracle/vllm/results.jsonl: what vLLM 0.33's own code computes. Kept of each model on one rank: context
length, caches per layer kind, bytes per token and state bytes; a test holds the readers against them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "tests" / "model" / "facts.jsonl"
_KEPT = (
    "type", "layers", "num_kv_heads", "head_size", "head_size_v", "sliding_window", "attention_chunk_size", "shapes",
    "dtypes",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Write one line per model: the case with the fewest ranks and flags."""
    if len(arguments) != 1:
        print("usage: python packaging/build_model_facts.py FOLDER", file=sys.stderr)
        return 2
    best: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
    for line in (Path(arguments[0]) / "oracle/vllm/results.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if not row["ranks"] or row["pp"] != 1 or any("cache-dtype" in str(flag) for flag in row["flags"]):
            continue
        rank = (row["tp"], len(row["flags"]))
        if row["model"] not in best or rank < best[row["model"]][0]:
            best[row["model"]] = (rank, _facts(row))
    rows = [json.dumps(facts, separators=(",", ":")) for _, (_, facts) in sorted(best.items())]
    TARGET.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    print(len(rows), "models")
    return 0


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    rank = row["ranks"][0]
    asked = any("max-model-len" in str(flag) or "max_model_len" in str(flag) for flag in row["flags"])
    return {
        "model": row["model"].replace("--", "/", 1),
        "tp": row["tp"],
        "dtype": row["defaults"]["dtype"],
        "max_model_len": None if asked else row["defaults"]["max_model_len"],
        "per_token": rank["kv_bytes_per_token"]["all_attention_layers"],
        "per_token_full": rank["kv_bytes_per_token"]["full_attention_layers"],
        "state": rank["kv_bytes_per_token"]["state_bytes_per_request"],
        "specs": [{k: v for k, v in spec.items() if k in _KEPT} for spec in rank["spec_summary"]],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
