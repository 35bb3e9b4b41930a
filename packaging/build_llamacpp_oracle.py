"""Copies what llama.cpp itself computes under all placement flags into tests/oracle/llamacpp/cases.json.gz.

python packaging/build_llamacpp_oracle.py DATA, where DATA holds results.json: bytes that unmodified llama.cpp (commit
0c1e57098, ggml 0.25.3) reserves on imitated CUDA devices. The models' headers are those of tests/source/gguf_oracle.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).parents[1] / "tests" / "oracle" / "llamacpp" / "cases.json.gz"
_KEPT: Final = (
    "model",
    "gpus",
    "flags",
    "ok",
    "bytes",
    "n_ctx",
    "n_ctx_seq",
    "fa_resolved",
    "output_mib",
    "stage",
    "error",
)


def main() -> None:
    """Writes the cases, one object each, without what no test compares."""
    results = json.loads((Path(sys.argv[1]) / "results.json").read_text())
    kept = {name: results[name] for name in ("about", "bytes_columns", "flag_defaults", "gpu_sets")}
    kept["cases"] = [{name: case[name] for name in _KEPT if name in case} for case in results["cases"]]
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
