"""The oracle's cases: read, planned by the engine's arithmetic, and compared buffer by buffer.

`python -m tests.oracle.llamacpp.cases [RESULTS HEADERS]` prints the figures; RESULTS is a results.json and HEADERS a
folder of MODEL.gguf files (or .gguf.gz headers) of other models.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from kvplanner.engine.llamacpp.builds import build_of
from kvplanner.engine.llamacpp.settings import ContextSettings, PlaceSettings, Settings
from kvplanner.engine.llamacpp.sizes import Sizes, size_up
from kvplanner.engine.llamacpp.tensors import Tensors, tensors_of
from kvplanner.model.ggml import BY_NAME
from kvplanner.model.model import Model
from kvplanner.source.gguf.header import GgufHeader, GgufTensor, read_header
from kvplanner.source.gguf.model import from_headers
from kvplanner.units import MIB, round_up

_CASES: Final = Path(__file__).parent / "cases.json.gz"
MORE: Final = Path(__file__).parent / "more.json.gz"
WIDE: Final = Path(__file__).parent / "wide.json.gz"
FLAGS: Final = Path(__file__).parent / "flags.json.gz"

_HEADERS: Final = Path(__file__).parents[2] / "source" / "gguf_oracle"


class Buffer(NamedTuple):
    """One device's buffers, as the oracle has them and as planned: weights, context, compute."""

    device: str
    true: tuple[int, int, int]
    got: tuple[int, int, int]


class Checked(NamedTuple):
    """A case with its buffers; `flags` for messages."""

    model: str
    gpus: str
    flags: Mapping[str, str]
    buffers: tuple[Buffer, ...]

    @property
    def exact(self) -> bool:
        """Whether weights and context are equal on every device."""
        return all(buffer.true[:2] == buffer.got[:2] for buffer in self.buffers)

    @property
    def compute_error(self) -> float:
        """The largest relative error of any device's compute buffer."""
        return max((abs(b.got[2] / max(b.true[2], 1) - 1) for b in self.buffers if b.true[2] or b.got[2]), default=0.0)


def load(path: Path = _CASES) -> dict[str, Any]:
    """The oracle's file."""
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return found


@lru_cache(maxsize=32)
def model_of(name: str, folder: Path = _HEADERS) -> tuple[Model, Tensors]:
    """A model of the oracle, from its header."""
    packed = folder / f"{name}.gguf.gz"
    path = folder / f"{name}.gguf"
    if packed.is_file():
        import tempfile

        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(gzip.decompress(packed.read_bytes()))
            file.flush()
            header = read_header(Path(file.name), allow_truncated=True)
    else:
        header = read_header(path, allow_truncated=True)
    model = from_headers([header], [path.name], name, "gguf", str(path))
    return model, tensors_of(model)


@lru_cache(maxsize=1)
def wide() -> dict[str, Any]:
    """Cases of many architectures; their models' headers lie beside them."""
    return load(WIDE)


@lru_cache(maxsize=256)
def wide_model(name: str) -> tuple[Model, Tensors]:
    """A model of the wide cases."""
    data = wide()["models"][name]
    tensors: list[GgufTensor] = []
    offset = 0
    rows = list(data["outside"])
    for number, block in enumerate(data["block_of"]):
        rows += [[f"blk.{number}.{own}", type_, shape] for own, type_, shape in data["blocks"][block]]
    for own, type_, shape in rows:
        kind = BY_NAME[type_]
        size = math.prod(shape) // kind.block * kind.bytes
        tensors.append(GgufTensor(own, tuple(shape), kind, offset, size))
        offset += round_up(size, 32)
    metadata = {key: tuple(value) if isinstance(value, list) else value for key, value in data["metadata"].items()}
    header = GgufHeader(3, "little", metadata, data["lengths"], tuple(tensors), 32, 0, offset)
    model = from_headers([header], [f"{name}.gguf"], name, "gguf", name)
    return model, tensors_of(model)


def checked_wide(models: Collection[str]) -> Iterator[Checked]:
    """Every wide case of some models, with our answer."""
    data = wide()
    for case in data["cases"]:
        if case["model"] not in models:
            continue
        flags = {**data["flag_defaults"], **case["flags"]}
        yield _check(case, flags, data["gpu_sets"][case["gpus"]], wide_model(case["model"]))


def checked_flags(step: int = 1) -> Iterator[Checked]:
    """Cases of flags that the others do not try, each with a few of all models; every so-manieth of them."""
    data = load(FLAGS)
    for case in data["cases"][::step]:
        name = case["model"]
        flags = {**data["flag_defaults"], **case["flags"]}
        sized = wide_model(name) if name in wide()["models"] else model_of(name)
        yield _check(case, flags, data["gpu_sets"][case["gpus"]], sized)


def checked(oracle: Mapping[str, Any], folder: Path = _HEADERS) -> Iterator[Checked]:
    """Every case that llama.cpp planned, with our answer."""
    for case in oracle["cases"]:
        flags = {**oracle["flag_defaults"], **case["flags"]}
        if not case["ok"]:
            continue
        yield _check(case, flags, oracle["gpu_sets"][case["gpus"]], model_of(case["model"], folder))


def settings_of(flags: Mapping[str, str], context: int) -> Settings:
    """The settings that the oracle's flags stand for. context: the model's own where none is given."""
    asked = ContextSettings(
        tokens=int(flags["ctx"]) or context,
        slots=int(flags["np"]),
        unified=flags["kvu"] == "1",
        batch=int(flags["batch"]),
        ubatch=int(flags["ubatch"]),
        key_type=flags["ctk"],
        value_type=flags["ctv"],
        flash=flags["fa"],
        full_window=flags["swa_full"] == "1",
        draft_rows=int(flags["rsseq"]),
        outputs=int(flags["nout"]) or int(flags["batch"]),
    )
    layers = int(flags["ngl"])
    experts = None if flags["ncmoe"] == "0" else int(flags["ncmoe"])
    place = PlaceSettings(
        gpu_layers=None if layers < 0 else layers,
        split_mode=flags["sm"],
        main_gpu=int(flags["mg"]),
        shares=tuple(float(share) for share in flags["ts"].split(",")) if flags["ts"] else (),
        overrides=flags["ot"],
        cpu_experts=0 if flags["cmoe"] == "1" else experts,
        kv_offload=flags["nkvo"] != "1",
        op_offload=flags["noo"] != "1",
    )
    return Settings(build_of(None)._replace(real_kernels=False), asked, place)


def _check(
    case: Mapping[str, Any], flags: Mapping[str, str], gpus: str | None, sized: tuple[Model, Tensors]
) -> Checked:  # fmt: skip
    model, tensors = sized
    free = [int(gpu.split("|")[1]) * MIB for gpu in gpus.split(";")] if gpus else []
    names = [f"CUDA{index}" for index in range(len(free))]
    settings = settings_of(flags, model.spec.context_length or 0)
    if flags["sm"] == "none" and free:
        main = settings.place.main_gpu
        names, free = [names[main]], [free[main]]
    if flags["sm"] == "tensor":
        # One device stands for all: it prints totals, and the largest share where it really allocates.
        names = ["Meta()"]
        if flags["real"] != "1":
            free = [1]
            settings = settings._replace(place=settings.place._replace(shares=()))
    sizes = size_up(model, tensors, settings, free)
    if flags["real"] != "1" and not sizes.compute.pipelined:
        sizes = size_up(model, tensors, settings, free, measured=True)
    return Checked(case["model"], case["gpus"], case["flags"], tuple(_buffers(case, flags, sizes, names, gpus)))


def _buffers(
    case: Mapping[str, Any], flags: Mapping[str, str], sizes: Sizes, names: list[str], gpus: str | None
) -> Iterator[Buffer]:
    true = case["bytes"]
    for index, name in enumerate(names):
        compute = sizes.compute.gpus[index]
        if sizes.compute.pipelined and index and flags["real"] != "1":
            # Without allocation llama.cpp itself counts four copies of the residual stream too many.
            compute += 16 * sizes.shape.tokens * sizes.shape.hidden
        state = sizes.state[index]
        mirrored = sizes.shape.arch in ("lfm2", "lfm2moe")  # whole on every device
        if flags["sm"] == "tensor" and flags["real"] != "1" and gpus and not mirrored:
            state = round(state / len(gpus.split(";")))  # printed as one device's share
        got = (sizes.placed.device_bytes[index], sizes.kv[index] + state, compute)
        if sizes.shared and flags["real"] == "1":
            got = (max(sizes.placed.device_bytes), max(map(sizes.context, range(sizes.how.gpus))), compute)
        yield Buffer(name, tuple(true.get(name, (0, 0, 0))), got)
    hosts = [sizes for name, sizes in true.items() if name not in names]
    weights, context, compute = (sum(column) for column in zip(*hosts, strict=True)) if hosts else (0, 0, 0)
    mapped = flags["real"] == "1" or "CPU_Mapped" in true  # a view of the file, told by its span
    yield Buffer(
        "host",
        (weights, context, compute),
        (weights if mapped else sizes.placed.host_bytes, sizes.context(-1), sizes.compute.host),
    )


def main() -> None:
    """Writes how many cases agree to standard output."""
    given = [Path(word) for word in sys.argv[1:3]]
    oracle = load(*given[:1])
    cases = list(checked(oracle, *given[1:2]))
    errors = sorted(case.compute_error for case in cases)
    lines = [f"{len(cases)} cases, weights and context equal in {sum(case.exact for case in cases)}"]
    for bound in (0.0001, 0.01, 0.02, 0.1):
        count = sum(error <= bound for error in errors)
        lines.append(f"compute within {bound:.2%}: {count} ({count / len(errors):.1%})")
    worst = sorted(cases, key=lambda case: -case.compute_error)[:10]
    lines += [f"{case.compute_error:8.1%} {case.model} {case.gpus} {dict(case.flags)}" for case in worst]
    lines += [f"not equal: {case}" for case in cases if not case.exact]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
