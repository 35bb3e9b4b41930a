"""Copy what vLLM allocates for weights into tests/engine/data: one case a line, only what the weight tests read.

    python packaging/build_weights_oracle.py RESULTS.jsonl

RESULTS.jsonl comes from vLLM 0.33's own Python code run without a GPU: models built on the meta device, weights
post-processed. `bytes` are the registered parameters after post-processing; `moved` are tensors that a kernel's
packing takes out of the parameters (they stay on the GPU). Where post-processing could not run, `bytes` are from
before it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).resolve().parent.parent / "tests" / "engine" / "data" / "vllm_weights.jsonl"
CAPABILITY: Final = {"H100": (9, 0), "A100": (8, 0), "B200": (10, 0), "RTX 3090": (8, 6), "RTX 4090": (8, 9)}
# Tensors without a name that are buffers and not packed weights stay far below this.
_BUFFERS: Final = 1 << 30


def cases(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The ranks of one result."""
    found = []
    defaults = result["defaults"]
    for rank in result["ranks"]:
        after, before = rank["weights_after"], rank["weights"]
        processed = after["param_bytes"] is not None
        counted = after if processed else before
        names = counted["by_category"]
        moved = names.get("unnamed", 0) - (before["by_category"].get("unnamed", 0) if processed else 0)
        found.append({
            "model": result["model"].replace("--", "/", 1), "gpu": result["gpu"],
            "arch": next(v for k, v in CAPABILITY.items() if k in result["gpu"]),
            "tp": result["tp"], "pp": result["pp"], "stage": rank["pp_stage"],
            "dtype": defaults["dtype"], "max_model_len": defaults["max_model_len"],
            "quantization": defaults["quantization"], "bytes": counted["param_bytes"],
            "moved": moved if moved > _BUFFERS and "moe" in str(rank["kernels"]).lower() else 0,
            "loaded": counted["allocator_bytes"], "processed": processed,
        })  # fmt: skip
    return found


def main(path: str) -> None:
    """Write every distinct case."""
    lines: dict[str, None] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        for case in cases(json.loads(line)):
            lines.setdefault(json.dumps(case, separators=(",", ":")))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(len(lines), "cases")


if __name__ == "__main__":
    main(sys.argv[1])
