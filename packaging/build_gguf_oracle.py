"""Copies what llama.cpp itself computes for eleven GGUF models into tests/source/gguf_oracle.

python packaging/build_gguf_oracle.py DATA, where DATA holds make_gguf.py (writes the models' headers) and results.json
(bytes that unmodified llama.cpp, commit 0c1e57098, allocates for them). Kept of each: the compressed header, and for
one GPU with everything offloaded the bytes of weights and of caches, by context, slots and batch.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from kvplanner.source.gguf.header import read_header

TARGET: Final = Path(__file__).parents[1] / "tests" / "source" / "gguf_oracle"
# Flags under which the cache follows from the header and the context alone.
_FLAGS: Final = frozenset({"ctx", "np", "kvu", "ubatch", "batch", "nout"})


def main() -> None:
    """Writes the headers and cases.json."""
    data = Path(sys.argv[1])
    results = json.loads((data / "results.json").read_text())
    TARGET.mkdir(exist_ok=True)
    cases: list[dict[str, Any]] = []
    for case in results["cases"]:
        if case["gpus"] != "1x" or not case["ok"] or not set(case["flags"]) <= _FLAGS:
            continue
        flags = {name: int(case["flags"].get(name, results["flag_defaults"][name])) for name in ("np", "kvu", "ubatch")}
        weights, context, _ = case["bytes"]["CUDA0"]
        sizes = {"ctx": case["n_ctx"], "ctx_seq": case["n_ctx_seq"], "weights": weights, "context": context}
        cases.append({"model": case["model"], **flags, **sizes})
    for model in sorted({case["model"] for case in cases}):
        _keep_header(data / "make_gguf.py", model)
    about = f"{results['about']} Columns: slots, unified cache, micro-batch, context, context per slot, bytes."
    rows = ",\n  ".join(json.dumps(case) for case in cases)
    (TARGET / "cases.json").write_text(f'{{"about": {json.dumps(about)}, "cases": [\n  {rows}\n]}}\n')


def _keep_header(make: Path, model: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        subprocess.run([sys.executable, str(make), model, str(path)], check=True, capture_output=True)
        start = read_header(path).data_start
        with path.open("rb") as file:
            (TARGET / f"{model}.gguf.gz").write_bytes(gzip.compress(file.read(start), 9, mtime=0))


if __name__ == "__main__":
    main()
