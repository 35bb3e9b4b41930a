"""GGUF models as llama.cpp sees them: weights and caches from our reading equal the bytes that it allocates itself.

The rules between a spec and bytes stand here as the engine's source has them, so that a wrong spec shows.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, Mla, State
from kvplanner.source.gguf.header import parse_header
from kvplanner.source.gguf.model import from_headers
from kvplanner.units import round_up

FOLDER = Path(__file__).parent / "gguf_oracle"
CASES: list[dict[str, Any]] = json.loads((FOLDER / "cases.json").read_text())["cases"]
MODELS = sorted({case["model"] for case in CASES})


class Header:
    """The kept header of a file whose data is elsewhere."""

    def __init__(self, model: str) -> None:
        self.name = model
        self.data = gzip.decompress((FOLDER / f"{model}.gguf.gz").read_bytes())
        self.size = 1 << 42

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length].ljust(length, b"\0")


@cache
def model(name: str) -> Model:
    return from_headers([parse_header(Header(name))], [name], name, "gguf", name)


def cache_bytes(found: Model, case: dict[str, Any]) -> int:
    """Keys, values and states in fp16 and fp32, as llama.cpp's caches hold them."""
    total = 0
    for kind in found.spec.layer_of:
        for mixer in found.spec.layers[kind].mixers:
            if isinstance(mixer, Attention) and mixer.owns_cache:
                cells = case["ctx"]
                if mixer.window:
                    slots = case["np"] if case["kvu"] else 1
                    cells = round_up(min(case["ctx_seq"], mixer.window * slots + case["ubatch"]), 256)
                    cells *= 1 if case["kvu"] else case["np"]
                total += 2 * cells * mixer.kv_heads * (mixer.head_size + mixer.head_size_v)
            elif isinstance(mixer, Mla):
                total += 2 * case["ctx"] * (mixer.kv_lora_rank + mixer.qk_rope)
            elif isinstance(mixer, State):
                inner = mixer.heads * mixer.head_size
                size = mixer.state_size or mixer.key_size
                convolved = inner + 2 * (mixer.groups or mixer.key_heads) * size
                total += 4 * case["np"] * ((mixer.conv_kernel - 1) * convolved + size * inner)
    return total


@pytest.mark.parametrize("name", MODELS)
def test_caches_equal_llama_cpps(name: str) -> None:
    cases = [case for case in CASES if case["model"] == name]
    assert len(cases) >= 20
    wrong = [case for case in cases if cache_bytes(model(name), case) != case["context"]]
    assert wrong == []


@pytest.mark.parametrize("name", MODELS)
def test_weights_equal_llama_cpps(name: str) -> None:
    """All but what stays on the host: the embedding unless it is the head too, and per-layer embeddings.

    A device pads each tensor to 128 bytes and the last row of quantised ones: a hundredth of a per cent.
    """
    inventory = model(name).inventory
    assert inventory is not None
    host = sum(
        group.stored_bytes
        for group in inventory.outside
        if group.place == "first" and (group.path == "token_embd" or group.path.startswith("per_layer_token"))
    )
    expected = next(case["weights"] for case in CASES if case["model"] == name)
    padding = expected - (inventory.stored_bytes() - host)
    assert 0 <= padding <= expected // 10_000


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_left_open(name: str) -> None:
    found = model(name)
    assert found.spec.not_modelled == ()
    assert found.problems == ()
    assert found.inventory is not None
    assert not [
        group.path for group, _ in found.inventory.groups() if group.kind == "other" and "rope" not in group.path
    ]
