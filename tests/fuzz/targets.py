"""What is fuzzed: each target takes any bytes and may only raise the application's own errors.

It also checks what must hold of everything that is accepted, so that a wrong answer is found as well as a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from kvplanner import jsonfile
from kvplanner.errors import BadInput, NotModelled, PlannerError
from kvplanner.source.checkpoint import opening, safetensors
from kvplanner.source.checkpoint.folder import index_files, index_total
from kvplanner.source.gguf import header as gguf
from kvplanner.source.gguf import model as gguf_model

FOLDER: Final = Path(__file__).parent


class Bytes:
    """A file in memory that counts what is read of it."""

    name = "fuzz"

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def read(self, offset: int, length: int) -> bytes:
        assert offset >= 0, "a negative offset"
        assert 0 <= length <= self.size - offset, "a read beyond the end"
        return self.data[offset : offset + length]


def fuzz_safetensors(data: bytes) -> None:
    """A header, and the model of what it holds."""
    with suppress(PlannerError):
        header = safetensors.parse_header(Bytes(data), allow_truncated=bool(data[-1:] > b"\x7f"))
        assert sum(tensor.bytes for tensor in header.tensors) == header.data_bytes
        assert header.header_bytes + header.data_bytes - header.missing_bytes == len(data)
        model = opening.from_headers(
            "fuzz", header.tensors, opening.Config("x", None, "none"), "safetensors", "fuzz", complete=True
        )
        assert model.inventory is not None
        assert model.inventory.stored_bytes() == header.data_bytes


def fuzz_gguf(data: bytes) -> None:
    """A header, and the model that it tells."""
    try:
        header = gguf.parse_header(Bytes(data), allow_truncated=bool(data[-1:] > b"\x7f"))
    except (BadInput, NotModelled):
        return
    assert header.padded_bytes >= header.tensor_bytes
    with suppress(PlannerError):
        model = gguf_model.from_headers([header], ["fuzz"], "fuzz", "gguf", "fuzz")
        assert model.inventory is not None
        assert model.inventory.stored_bytes() <= header.tensor_bytes


def fuzz_json(data: bytes) -> None:
    """A config and an index."""
    with suppress(PlannerError):
        content = jsonfile.parse_object(data, "fuzz")
        with suppress(PlannerError):
            index_total(content)
            index_files(content, "fuzz")
        with suppress(PlannerError):
            opening.understand(content, "fuzz", None)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "safetensors": fuzz_safetensors,
    "gguf": fuzz_gguf,
    "json": fuzz_json,
}


def seeds(target: str) -> list[Path]:
    """The kept inputs of a target."""
    return sorted((FOLDER / "seeds" / target).iterdir())
