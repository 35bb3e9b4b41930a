"""A data pack to try: signed with a key of the tests' own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from kvplanner import packfile

sys.path.insert(0, str(Path(__file__).parents[1] / "packaging"))

import build_pack

__all__ = ["BODY", "CONFIG", "GPU", "KEY", "LATE", "MARK", "MODEL", "build_pack", "pack"]
KEY = SigningKey(bytes(range(32)))
MARK = packfile.fingerprint(bytes(KEY.verify_key).hex())
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
MODEL = {"id": "acme/Tiny-1B", "family": "Tiny", "kind": "copy", "source": "github:acme/tiny", "config": CONFIG}
GPU = {
    "id": "rtx-9090", "vendor": "nvidia", "class": "geforce", "nvml_name": "NVIDIA GeForce RTX 9090",
    "aliases": ["RTX 9090"], "memory_gb": 48, "compute_capability": "12.0", "nvml_total_mib": 49140,
}  # fmt: skip
LATE = {"value": 5e9, "low": 4e9, "high": 6e9, "basis": "measured", "why": "a lab's own start-up log"}
BODY: dict[str, Any] = {
    "name": "spring", "made": "2026-12-24", "by": "The lab", "models": [MODEL], "gpus": [GPU],
    "constants": {"vllm": {"late_bytes": [LATE]}},
}  # fmt: skip


def pack(folder: Path, key: SigningKey = KEY, **changes: Any) -> Path:
    """A pack's file with some fields of its body changed."""
    path = folder / "given.kvpack"
    path.write_bytes(build_pack.signed(BODY | changes, key))
    return path
