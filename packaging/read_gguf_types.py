"""Write tests/model/gguf_types.json.gz: the types that llama.cpp's own tests pin for the tensors of real models.

python packaging/read_gguf_types.py LLAMA_CPP: the sources' folder, whose tests/snapshots/*.schema are read (MIT;
llama.cpp 0.5.0-dev, October 2026: mixes made without an importance matrix).
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

# The snapshots' names → the catalogue's. Of the others the catalogue has no inventory, or another conversion.
MODELS = {
    "qwen3-14b": "Qwen/Qwen3-14B",
    "meta-llama-3.1-70b-instruct": "meta-llama/Llama-3.1-70B-Instruct",
    "gemma-3-4b-it": "google/gemma-3-4b-it",
    "deepseek-v3.1": "deepseek-ai/DeepSeek-V3.1",
    "qwen3-coder-next": "Qwen/Qwen3-Coder-Next",
    "qwen3.6-27b": "Qwen/Qwen3.6-27B",
    "qwen3.5-397b-a17b": "Qwen/Qwen3.5-397B-A17B",
    "nvidia-nemotron-3-nano-30b-a3b": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
}
OUT = Path(__file__).parents[1] / "tests" / "model" / "gguf_types.json.gz"


def read(path: Path) -> dict[str, dict[str, dict[str, list[int]]]]:
    """Mix → "TENSOR TYPE" → layers (−1 outside them); under "" the type of everything else."""
    found: dict[str, dict[str, dict[str, list[int]]]] = {}
    mix: dict[str, dict[str, list[int]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        head = re.match(r"\[(\w+)\] (\w+)", line)
        if head:
            mix = found[head[1]] = {"": {head[2].upper(): []}}
            continue
        tensor = re.match(r"(?:blk\.(\d+)\.)?(\S+) (\w+)$", line)
        if tensor and not line.startswith("#"):
            layers = mix.setdefault(tensor[2], {}).setdefault(tensor[3].upper(), [])
            layers.append(int(tensor[1]) if tensor[1] else -1)
    return found


def main() -> int:
    """Writes the file."""
    folder = Path(sys.argv[1]) / "tests" / "snapshots"
    data = {model: read(folder / f"{name}.schema") for name, model in MODELS.items()}
    text = json.dumps(data, separators=(",", ":")).encode()
    OUT.write_bytes(gzip.compress(text, mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
