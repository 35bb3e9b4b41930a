"""What is fuzzed: each target takes any bytes and may only raise the application's own errors.

It also checks what must hold of everything that is accepted, so that a wrong answer is found as well as a crash.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Final
from zlib import crc32

from kvplanner import jsonfile
from kvplanner.catalog import gpus, models
from kvplanner.diagnose.diagnosis import diagnose
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput, NotModelled, PlannerError
from kvplanner.model.model import Model
from kvplanner.observe import recording
from kvplanner.observe.metrics import parse_fill
from kvplanner.printable import printable
from kvplanner.request import planfile
from kvplanner.request.words import PlanWords, Sources, build
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


@cache
def _model(name: str) -> Model:
    """A model that plans are made of: an argument, not what is fuzzed."""
    return models.load(name if name in _MODELS else _MODELS[0])


_MODELS: Final = ("Qwen/Qwen3-0.6B", "openai/gpt-oss-20b")


def _planned(request: PlanRequest, data: bytes) -> None:
    """A plan of one input in eight, or one of the application's own errors; what it says keeps its order."""
    if crc32(data) % 8:
        return  # planning takes far longer than reading
    with suppress(PlannerError):
        plan: Plan = engine(request.engine).plan(request)
        for device in plan.devices:
            for segment in device.segments:
                assert segment.estimate.low <= segment.estimate.value <= segment.estimate.high


def fuzz_plan(data: bytes) -> None:
    """A plan file, saved and read again, and its plan."""
    with suppress(PlannerError):
        plan = planfile.from_json(jsonfile.parse_object(data, "fuzz"), "fuzz")
        again = planfile.to_json(plan)
        assert planfile.to_json(planfile.from_json(again, "fuzz")) == again, "reading and writing goes on changing it"
        _planned(planfile.to_request(plan, _model(plan.model), gpus.machine("2xRTX 4090")), data)


def fuzz_recording(data: bytes) -> None:
    """A recording, read to its end."""
    _RECORDING.write_bytes(data)
    with suppress(PlannerError):
        for snapshot in recording.replay(_RECORDING):
            assert all(gpu.uuid == printable(gpu.uuid) for gpu in snapshot.gpus)


def fuzz_metrics(data: bytes) -> None:
    """A page of metrics."""
    with suppress(PlannerError):
        fill = parse_fill(data.decode("utf-8", "replace"))
        assert fill.text() == printable(fill.text())


def fuzz_command(data: bytes) -> None:
    """A command line as it is pasted, and its plan."""
    with suppress(PlannerError):
        words = PlanWords(gpu="2xRTX 4090", flags=(data.decode("utf-8", "replace"),))
        _planned(build(words, Sources(_model, lambda: None)).request, data)


def fuzz_log(data: bytes) -> None:
    """A start-up log, and what it says."""
    with suppress(PlannerError):
        found = diagnose(BytesIO(data).read)
        assert all(isinstance(s.value, int) and s.value >= 0 for s in found.reading.stated if s.size)


_FOLDER: Final = tempfile.TemporaryDirectory(prefix="kvplanner-fuzz-")
_RECORDING: Final = Path(_FOLDER.name) / "recording.csv"

TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "safetensors": fuzz_safetensors,
    "gguf": fuzz_gguf,
    "json": fuzz_json,
    "plan": fuzz_plan,
    "recording": fuzz_recording,
    "metrics": fuzz_metrics,
    "command": fuzz_command,
    "log": fuzz_log,
}


def catalogue_configs() -> Iterator[tuple[str, bytes]]:
    """A config of every architecture that the catalogue knows, to start from: too many to keep among the seeds."""
    for entry in {entry.architecture: entry for entry in models.index() if not entry.like}.values():
        yield entry.architecture, json.dumps(models.record(entry.id)["config"]).encode()


def seeds(target: str) -> list[Path]:
    """The kept inputs of a target."""
    return sorted((FOLDER / "seeds" / target).iterdir())
