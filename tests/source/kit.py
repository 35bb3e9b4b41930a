"""What the tests of all sources share: a small model, a file in memory, a task that is cancelled, stores on disk."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from tests.source.checkpoints import sub_model
from tests.source.checkpoints_dense import llama
from tests.source.hub_server import COMMIT
from tests.source.make_models import header_bytes, total_bytes

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 4096,
    "max_position_embeddings": 8192, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu",
}  # fmt: skip


class Cancelled(Exception):
    pass


class Cancelling:
    """Cancels after some calls."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Cancelled

    def progress(self, share: float | None, text: str = "") -> None:
        self.check()


class Bytes:
    """A file in memory."""

    name = "test.safetensors"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.read_upto = 0

    def read(self, offset: int, length: int) -> bytes:
        assert offset >= 0
        assert offset + length <= self.size
        self.read_upto = max(self.read_upto, offset + length)
        return self.data[offset : offset + length]


def add_to_hub_cache(cache: Path, id_: str, files: dict[str, bytes], commit: str = COMMIT, ref: str = "main") -> Path:
    """As the Hub's client lays it out: blobs, links to them, and what a branch means."""
    repository = cache / f"models--{id_.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir(exist_ok=True)
    (repository / "refs").mkdir(exist_ok=True)
    if ref:
        (repository / "refs" / ref).write_text(commit)
    for name, content in files.items():
        blob = repository / "blobs" / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content)
        (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
    return snapshot


def safetensors_files(layers: int = 2) -> dict[str, bytes]:
    config = sub_model(CONFIG, layers)
    tensors = llama(config)
    return {
        "config.json": json.dumps(config).encode(),
        "model.safetensors": header_bytes(tensors) + bytes(total_bytes(tensors)),
    }


def add_to_ollama(root: Path, name: str, layers: dict[str, bytes], host: str = "registry.ollama.ai") -> Path:
    """As Ollama lays it out: a manifest, and blobs by digest."""
    stem, _, tag = name.partition(":")
    path = root / "manifests" / host / (stem if "/" in stem else f"library/{stem}") / tag
    path.parent.mkdir(parents=True, exist_ok=True)
    (root / "blobs").mkdir(parents=True, exist_ok=True)

    def layer(kind: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (root / "blobs" / f"sha256-{digest}").write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    config = json.dumps({"model_format": "gguf", "model_family": "llama", "file_type": "Q8_0"}).encode()
    path.write_text(json.dumps({
        "schemaVersion": 2,
        "config": layer("application/vnd.docker.container.image.v1+json", config),
        "layers": [layer(f"application/vnd.ollama.image.{kind}", content) for kind, content in layers.items()],
    }))  # fmt: skip
    return path
