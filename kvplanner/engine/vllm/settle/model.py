"""The model as it is served: dtype, quantisation, context length (config/model.py of vLLM 0.33)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.releases import ByRelease
from kvplanner.engine.vllm.settings import ModelPart, Version
from kvplanner.engine.vllm.settle.dtype import auto_dtype
from kvplanner.engine.vllm.settle.length import derived
from kvplanner.errors import BadInput
from kvplanner.model.spec import ModelSpec
from kvplanner.units import GIB

# The engine's names for the methods that a config calls differently.
_QUANTIZATION_NAMES: Final[Mapping[str, ByRelease[str]]] = {
    "mxfp4": rules.MXFP4_NAME, "awq": rules.AWQ_NAME, "gptq": rules.GPTQ_NAME,
}  # fmt: skip
_MARLIN_FROM: Final = (8, 0)
_DTYPES: Final = ("float16", "bfloat16", "float32")
_AUTO_LENGTH: Final = -1
_NO_LIMIT_FOUND: Final = 2048


def settle_model(spec: ModelSpec, book: Book, gpu: Gpu, version: Version) -> ModelPart:
    """Raises BadInput for a dtype that does not exist and for a length beyond the model's."""
    dtype = _dtype(spec, book, gpu, version)
    named = _QUANTIZATION_NAMES.get(spec.quantization or "")
    own = spec.quantization if named is None else named.at(version)
    if own is not None and own.endswith("_marlin") and (gpu.arch or _MARLIN_FROM) < _MARLIN_FROM:
        own = spec.quantization  # the format's first kernels
    method = book.settle("quantization", own, "from the config" if own else "unquantised")
    length, auto = _length(spec, book, version)
    offloaded = round(float(book.settle("cpu_offload_gb", 0.0, "none")) * GIB)
    return ModelPart(dtype, None if method is None else str(method), length, auto, offloaded)


def _dtype(spec: ModelSpec, book: Book, gpu: Gpu, version: Version) -> str:
    found, reason = auto_dtype(spec, gpu.arch, version)
    wanted = str(book.settle("dtype", found, reason))
    wanted = {"half": "float16", "float": "float32"}.get(wanted, wanted)
    if wanted == "auto":
        book.override("dtype", found, reason)
        return found
    if wanted not in _DTYPES:
        raise BadInput(f"{wanted!r} is not a dtype", "--dtype", "Use auto, float16, bfloat16 or float32")
    return wanted


def _length(spec: ModelSpec, book: Book, version: Version) -> tuple[int, bool]:
    """The context length, and whether it is lowered until it fits."""
    own = derived(spec, book, version)
    limit = own.limit or _NO_LIMIT_FOUND
    start = own.start or limit
    reason = own.why
    if start != limit:
        reason = "the length before LongRoPE takes over"
    wanted = book.settle("max_model_len", start, reason)
    auto = wanted == "auto" or int(wanted) == _AUTO_LENGTH
    length = limit if auto else int(wanted)
    if length < 1:
        raise BadInput(
            f"max_model_len {length} is not a length",
            "--max-model-len",
            "Give 1 or more, or -1 for the largest that fits",
        )
    if length > limit and own.assumed:
        book.warnings.append(
            f"{length:,} tokens are more than the {limit:,} of a model of the same shape: whether this one takes them "
            "is not known, its own config was not read"
        )
    elif length > limit and own.limit is not None:
        # The engine's words quote its config.json: only where that was read.
        read = own.limit == spec.context_length
        raise BadInput(
            f"User-specified max_model_len ({length}) is greater than the derived max_model_len "
            + (f"(max_position_embeddings={limit} in model's config.json)" if read else f"({limit}: {own.why})"),
            "--max-model-len",
            f"Lower it to {limit:,}, or give a config.json with other rope settings as the model",
            brief=f"context {length:,} exceeds the model's {limit:,}",
        )  # fmt: skip
    return length, auto
