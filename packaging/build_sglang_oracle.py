"""Copy what SGLang's own code computed for known configurations into tests/oracle/sglang/, in compact form.

    python packaging/build_sglang_oracle.py SOURCE

SOURCE holds results.jsonl, defaults.jsonl and refusals.jsonl: one configuration per line, computed by SGLang 0.5.23's
Python code on a published model config, without a GPU and without weights. Only what the tests compare is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "tests" / "oracle" / "sglang"
PROVENANCE = (
    "computed by SGLang 0.5.23's own Python code on the model configs of the catalogue (models built without weights, "
    "no GPU; FlashInfer, DeepGEMM, FlashAttention 4 and CUTLASS counted as installed)"
)
DEFAULTS = ("mem_fraction_static", "chunked_prefill_size", "page_size")
WEIGHTS = ("param_bytes", "attr_tensor_bytes", "nonpersistent_buffer_bytes", "total_bytes")
REFUSALS = {
    "Loaded weights leave no GPU memory": "weights",
    "Not enough GPU memory for hybrid": "states",
    "SWA pool (": "window",
    "SWA pool cap": "window_cap",
    "The DSV4 SWA pool cap": "window_cap",
    "Hybrid (mamba/linear-attention) state cache is too small": "requests",
    "Not enough memory.": "tokens",
}


def main(source: Path) -> None:
    """Write cases.jsonl, defaults.jsonl and refusals.jsonl; the first line of each says where the rest comes from."""
    TARGET.mkdir(parents=True, exist_ok=True)
    _write("cases.jsonl", [_case(row) for row in _rows(source / "results.jsonl")])
    _write("defaults.jsonl", [_head(row) | {"defaults": _defaults(row)} for row in _rows(source / "defaults.jsonl")])
    _write("refusals.jsonl", [_head(r) | {k: r[k] for k in ("error", "error_stage")}
                              for r in _rows(source / "refusals.jsonl")])  # fmt: skip


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, path.read_text("utf-8").splitlines())


def _write(name: str, rows: list[dict[str, Any]]) -> None:
    rows = [{"provenance": PROVENANCE}, *rows]
    text = "\n".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows)
    (TARGET / name).write_text(text + "\n", "utf-8")
    print(f"{name}: {len(rows) - 1} rows, {len(text):,} bytes")


def _head(row: dict[str, Any]) -> dict[str, Any]:
    head = {"model": row["model"].replace("--", "/", 1), "gpu": row["gpu"], "mib": row["gpu_mib"], "tp": row["tp"]}
    if row.get("pp", 1) > 1:
        head |= {"pp": row["pp"], "stage": row.get("pp_rank", 0)}
    return head | ({"flags": row["flags"]} if row["flags"] else {})


def _defaults(row: dict[str, Any]) -> dict[str, Any]:
    given = row["defaults"]
    decode, prefill = given["cuda_graph_decode"], given["cuda_graph_prefill"]
    split = [given["prefill_attention_backend"], given["decode_attention_backend"]]
    kept = {name: given[name] for name in DEFAULTS} | {
        "attention": [name or given["attention_backend"] for name in split],
        "decode": [decode["backend"], decode["max_bs"], decode["sizes"]],
        "prefill": [prefill["backend"], prefill["sizes"]],
    }
    return kept | ({"context": given["context_len"]} if "context_len" in given else {})


def _case(row: dict[str, Any]) -> dict[str, Any]:
    case = _head(row) | {"defaults": _defaults(row), "kv": [_sizing(k) for k in row["kv"]]}
    rank = row.get("rank")
    if rank is None:
        return case
    built = {name: rank["weights"][name] for name in WEIGHTS}
    after = rank.get("weights_after")
    done = rank.get("post_processing") in ("ok", "ok, with guessed values")
    return case | {"built": built} | ({"loaded": {name: after[name] for name in WEIGHTS}} if done and after else {})


def _sizing(row: dict[str, Any]) -> dict[str, Any]:
    out = {"before": row["pre_bytes"], "after": row["after_load_bytes"]}
    if "error" in row:
        text = row["error"].partition(": ")[2]
        kind = next((kind for start, kind in REFUSALS.items() if text.startswith(start)), None)
        if kind is None:
            raise SystemExit(f"unknown error text: {text}")
        return out | {"refusal": kind, "message": text}
    sized = {
        "tokens": row["max_total_num_tokens"],
        "window": row["swa_max_total_num_tokens"],
        "slots": row["max_mamba_cache_size"],
        "requests": row["max_running_requests"],
        "table": row["req_pool"]["by_buffer"]["req_to_token"],
        "pool": row["kv_pool"]["total_bytes"],
    }
    return out | {name: value for name, value in sized.items() if value is not None}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
