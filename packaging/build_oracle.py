"""Copy what vLLM's own code computed for known configurations into tests/oracle/, in compact form.

    python packaging/build_oracle.py SOURCE [ERAS]

SOURCE holds results.jsonl and refusals.jsonl: one configuration per line, computed by vLLM 0.33.0's Python code on a
published model config, without a GPU and without weights; ERAS holds a results.jsonl of older releases' own code. Only
what the tests compare is kept.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "tests" / "oracle"
PROVENANCE = (
    "computed by vLLM 0.33.0's own Python code on the model configs of the catalogue (models built without weights, "
    "no GPU; FlashInfer, DeepGEMM and CUTLASS counted as installed)"
)
DEFAULTS = (
    "dtype", "quantization", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "kv_cache_dtype",
    "enable_prefix_caching", "block_size", "mamba_cache_mode", "cudagraph_mode", "max_cudagraph_capture_size",
    "num_cudagraph_capture_sizes", "async_scheduling",
)  # fmt: skip
ERA_PROVENANCE = (
    "computed by the Python code of vLLM 0.20.2, 0.24.0 and 0.28.0 on the model configs of the catalogue (models built "
    "without weights, no GPU; FlashInfer counted as installed)"
)
ERA_DEFAULTS = (
    "use_v2_model_runner", "enable_chunked_prefill", "gpu_memory_utilization", "disable_hybrid_kv_cache_manager",
)  # fmt: skip
_ERROR = re.compile(
    r"ValueError: (?P<head>To serve .*? max seq len) \((?P<length>\d+)\), \((?P<need>[\d.]+) GiB(?P<middle>.*?)"
    r"\((?P<usable>-?[\d.]+) GiB\)\.(?P<hint> Based .*? is )(?P<estimate>\d+)\.(?P<tail>.*)",
    re.DOTALL,
)


def main(source: Path) -> None:
    """Write cases.jsonl and refusals.jsonl; the first line of each says where the rest comes from."""
    words: dict[str, str] = {}
    cases = [_case(json.loads(line), words) for line in (source / "results.jsonl").read_text("utf-8").splitlines()]
    cases.sort(key=lambda c: (c["case"], c["tp"]))
    _write("cases.jsonl", {"provenance": PROVENANCE, "too_small": words}, cases)
    refusals = [json.loads(line) for line in (source / "refusals.jsonl").read_text("utf-8").splitlines()]
    _write("refusals.jsonl", {"provenance": PROVENANCE}, refusals)


def eras(source: Path) -> None:
    """Write eras.jsonl: what older releases' own code computes."""
    words: dict[str, dict[str, str]] = {}
    cases = []
    for line in (source / "results.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        case = _case(row, words.setdefault(row["release"], {}))
        rank = row["ranks"][0]
        processed = rank["post_processing"].startswith("ok")
        after = rank["weights_after" if processed else "weights"]
        more = {name: row["defaults"][name] for name in ERA_DEFAULTS}
        cases.append(case | {
            "release": row["release"], "case": row["case"], "defaults": case["defaults"] | more,
            "mode": row["cudagraph"]["resolved_mode"],
            "weights": [after["param_bytes"], after["total_bytes"] - after["by_category"].get("rotary", 0)],
            "processed": processed,
        })  # fmt: skip
    cases.sort(key=lambda c: (c["release"], str(c["case"]), c["model"], c["gpu"], c["tp"]))
    _write("eras.jsonl", {"provenance": ERA_PROVENANCE, "too_small": words}, cases)


def _write(name: str, head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    text = "\n".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in (head, *rows))
    (TARGET / name).write_text(text + "\n", "utf-8")
    print(f"{name}: {len(rows)} rows, {len(text):,} bytes")


def _case(row: dict[str, Any], words: dict[str, str]) -> dict[str, Any]:
    return {
        "case": row["case"],
        "model": row["model"].replace("--", "/", 1),
        "gpu": row["gpu"],
        "tp": row["tp"],
        "pp": row["pp"],
        "flags": row["flags"],
        "defaults": {name: row["defaults"][name] for name in DEFAULTS},
        "backends": sorted({name for rank in row["ranks"] for name in rank["attn_backends"]}),
        "kv": list(_sizings(row["kv"], words)),
    }


def _sizings(rows: list[dict[str, Any]], words: dict[str, str]) -> Iterator[dict[str, Any]]:
    for row in rows:
        out: dict[str, Any] = {"available": row["available_bytes"]}
        if "error" in row:
            match = _ERROR.fullmatch(row["error"])
            if match is None:
                raise SystemExit(f"unknown error text: {row['error']}")
            for part in ("head", "middle", "hint", "tail"):
                if words.setdefault(part, match[part]) != match[part]:
                    raise SystemExit(f"a second wording of the error: {match[part]}")
            out["error"] = [int(match["length"]), match["need"], match["usable"], int(match["estimate"])]
            out["auto_fit"] = _sized(row["auto_fit"])
        else:
            out |= _sized(row)
        yield out


def _sized(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "blocks": row["num_blocks"],
        "block_size": row["block_size"],
        "tokens": row["kv_cache_size_tokens"],
        "concurrency": row["max_concurrency"],
        "length": row["max_model_len"],
        "groups": _runs(
            [
                g["layers"],
                g["spec"].removesuffix("Spec"),
                g["block_size"],
                g["page_size_bytes"],
                g["blocks_per_request"],
            ]
            for g in row["groups"]
        ),
        "bytes_per_block": [s["pool_bytes_per_block"] for s in row["stages"]],
    }


def _runs(groups: Iterable[list[Any]]) -> list[list[Any]]:
    """Equal neighbours as one entry: [times, layers, spec, block size, page bytes, blocks per request]."""
    out: list[list[Any]] = []
    for group in groups:
        if out and out[-1][1:] == group:
            out[-1][0] += 1
        else:
            out.append([1, *group])
    return out


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        eras(Path(sys.argv[2]))
