"""Takes a few cases of many architectures into tests/oracle/llamacpp/wide.json.gz.

python packaging/build_llamacpp_wide.py (RESULTS.json HEADERS)... where RESULTS holds bytes that unmodified llama.cpp
(0.5.0-dev, ggml 0.25.3, as vendored by llama-cpp-python 0.3.36) reserves on imitated CUDA devices, and HEADERS its
models' files, of which only the headers are read. Metadata follow the publishers' config.json; tensors' names and
shapes are those that llama.cpp itself asks for. Of every model one case each of the kinds below is taken, in turn.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kvplanner.source.gguf.header import GgufHeader, GgufTensor, read_header

TARGET: Final = Path(__file__).parents[1] / "tests" / "oracle" / "llamacpp" / "wide.json.gz"
_EACH: Final = 4
_PARTIAL: Final = ("ngl", "cmoe", "ncmoe")


def _kind(case: Mapping[str, Any]) -> str:
    """What a case tries, by the flag that matters most."""
    flags = case["flags"]
    if any(name in flags for name in _PARTIAL):
        return "partial"
    for name, kind in (("nkvo", "caches on the host"), ("fa", "no flash attention"), ("ctk", "another cache type"),
                       ("swa_full", "whole windows"), ("ubatch", "another micro-batch"), ("np", "slots")):  # fmt: skip
        if name in flags:
            return kind
    if case["gpus"] != "1x":
        return "pipeline"
    return "plain" if "nout" in flags else "all logits"


def _few(cases: Sequence[Mapping[str, Any]], turn: int) -> Iterator[Mapping[str, Any]]:
    """The plain case, a pipeline, a partial offload, and one of the other kinds in turn."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for case in cases:
        by_kind.setdefault(_kind(case), []).append(case)
    fixed = [kind for kind in ("plain", "pipeline", "partial") if kind in by_kind]
    others = sorted(by_kind.keys() - set(fixed))
    kinds = [*fixed, *(others[(turn + step) % len(others)] for step in range(_EACH - len(fixed)))]
    for kind in kinds:
        yield by_kind[kind][turn % len(by_kind[kind])]


def _header(path: Path) -> dict[str, Any]:
    """A header without what no reader needs: layers of one kind are written once."""
    header: GgufHeader = read_header(path, allow_truncated=True)
    blocks: list[list[Any]] = []
    layers: dict[int, list[Any]] = {}
    outside: list[Any] = []
    for tensor in header.tensors:
        if tensor.name.startswith("blk."):
            layer, _, name = tensor.name.removeprefix("blk.").partition(".")
            layers.setdefault(int(layer), []).append(_tensor(tensor, name))
        else:
            outside.append(_tensor(tensor, tensor.name))
    block_of: list[int] = []
    for number in sorted(layers):
        if layers[number] not in blocks:
            blocks.append(layers[number])
        block_of.append(blocks.index(layers[number]))
    kept = {key: value for key, value in header.metadata.items() if not key.startswith("tokenizer.")}
    lengths = {key: length for key, length in header.lengths.items() if key in kept}
    return {"metadata": kept, "lengths": lengths, "outside": outside, "blocks": blocks, "block_of": block_of}


def _tensor(tensor: GgufTensor, name: str) -> list[Any]:
    return [name, tensor.type.name, list(tensor.shape)]


def main() -> None:
    """Writes headers and cases of every model that llama.cpp could load."""
    models: dict[str, Any] = {}
    taken: list[Mapping[str, Any]] = []
    found: dict[str, Any] = {}
    for results, folder in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        found = json.loads(Path(results).read_text())
        by_model: dict[str, list[Mapping[str, Any]]] = {}
        for case in found["cases"]:
            if case["ok"]:
                by_model.setdefault(case["model"], []).append(case)
        for model, cases in by_model.items():
            taken += _few(cases, len(models))
            models[model] = _header(Path(folder) / f"{model}.gguf")
    about = "unmodified llama.cpp 0.5.0-dev (ggml 0.25.3) on imitated CUDA devices; bytes: model, context, compute"
    data = {"about": about, "flag_defaults": found["flag_defaults"], "gpu_sets": found["gpu_sets"], "models": models,
            "cases": taken}  # fmt: skip
    TARGET.write_bytes(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
