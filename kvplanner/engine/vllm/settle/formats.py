"""Which vLLM releases load a quantisation method, and which GPUs they have kernels for.

Read from the registries (model_executor/layers/quantization/__init__.py) and each method's get_min_capability of the
releases from 0.14 to 0.33; before those, from features/quantization of the engine's documentation, and reports of its
refusals. Where a border lies between two releases that were read, the later one stands here.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm.releases import spelled
from kvplanner.engine.vllm.settings import Version
from kvplanner.model.quantisation.elsewhere import why_not
from kvplanner.record import NamedTuple


class Loads(NamedTuple):
    """What is known of a method.

    since: the first release that has it, where known. gone: the first release known without it. capability: the least
    compute capability by the first release of which it is true, newest first. gone_why: what its registry says.
    """

    since: Version | None = None
    gone: Version | None = None
    capability: tuple[tuple[Version, Version], ...] = ()
    gone_why: str = "its registry no longer lists the method"


_ALL: Final[Version] = (0, 0)
# Read in layers/quantization of the releases 0.6.6 to 0.33.0 (get_min_capability), both sides of each border.
_METHODS: Final[dict[str, Loads]] = {
    "gguf": Loads(gone=(24, 0)),
    "bitsandbytes": Loads(gone=(28, 0)),
    "awq": Loads(capability=((_ALL, (7, 5)),)),
    # Marlin came to 7.5 with 0.14 or 0.15, without MXFP4.
    "fp8": Loads(capability=(((14, 0), (7, 5)), (_ALL, (8, 0)))),
    "mxfp4": Loads(since=(10, 1), capability=((_ALL, (8, 0)),)),
    "mxfp8": Loads(since=(19, 0), capability=(((20, 0), (8, 0)), (_ALL, (10, 0)))),
    "fbgemm_fp8": Loads(capability=((_ALL, (8, 0)),)),
    "fp_quant": Loads(since=(11, 1), capability=((_ALL, (10, 0)),)),
    "experts_int8": Loads(capability=((_ALL, (8, 0)),)),
    "modelopt": Loads(capability=(((27, 0), (8, 0)), (_ALL, (8, 9)))),
    "modelopt_fp4": Loads(since=(8, 0), capability=(((14, 0), (7, 5)), ((9, 0), (8, 0)), (_ALL, (10, 0)))),
    "modelopt_mxfp8": Loads(since=(16, 0), capability=(((20, 0), (8, 0)), (_ALL, (10, 0)))),
    "modelopt_mixed": Loads(since=(17, 0), capability=(((24, 0), (7, 5)), (_ALL, (8, 9)))),
    "torchao": Loads(since=(8, 5), capability=((_ALL, (7, 5)),)),
    "auto-round": Loads(since=(9, 0)),
    "quark": Loads(since=(7, 2), capability=((_ALL, (7, 0)),)),
}
_ALSO_CALLED: Final = {
    "auto_awq": "awq", "awq_marlin": "awq", "auto_gptq": "gptq", "gptq_marlin": "gptq", "gpt_oss_mxfp4": "mxfp4",
    "inc": "auto-round",
}  # fmt: skip
_SHOWN: Final = {"gguf": "GGUF"}
# What a method's weights may need beside it, since when no release has it, and what the engine says of it.
_TRAITS: Final[dict[str, tuple[Version, str]]] = {
    "act-order": ((30, 0), "GPTQ group activation ordering (desc_act=True) is no longer supported"),
    "2:4 sparse": ((22, 0), "Sparsity support has been removed from compressed-tensors"),
}
# What a method's weights may need that older releases lack: the first that has it, and what those do.
_FIRST: Final[dict[str, tuple[Version, str]]] = {
    # ModelOptMixedPrecisionConfig in layers/quantization/modelopt.py of 0.21.0 and 0.22.0.
    "mixed under a wrapper": (
        (22, 0), "does not find the names of quantized_layers in a model with encoders: it builds all layers in 16 "
        "bits, and fails as it loads them",
    ),
}  # fmt: skip
# Read only with a flag of its own since then.
_DEPRECATED: Final = {"fbgemm_fp8": (14, 0), "fp_quant": (14, 0)}


def cannot_load(method: str, version: Version) -> str:
    """Why a release loads no weights of a quantisation method, "" when it does or that is not known."""
    foreign = why_not(method)
    if foreign:
        return f"weights in {foreign}"
    known = _of(method)
    release = spelled(version).rpartition(".")[0]
    name = _SHOWN.get(method, method)
    if known.gone is not None and version >= known.gone:
        return f"vLLM {release} has no {name} quantisation"
    if known.since is not None and version < known.since:
        return f"vLLM {release} has no {name} quantisation yet: it came with {spelled(known.since)}"
    return ""


def trouble_with(traits: tuple[str, ...], version: Version) -> str:
    """What a release says of a checkpoint that it no longer reads, or does not read yet; "" when it reads it."""
    for trait in traits:
        since, words = _TRAITS.get(trait, (None, ""))
        if since is not None and version >= since:
            return words
        first, words = _FIRST.get(trait, (version, ""))
        if version < first:
            return f"vLLM {spelled(version)} {words}. It loads from {spelled(first)} on"
    return ""


def deprecated(method: str, version: Version) -> bool:
    """Whether a release asks for --allow-deprecated-quantization first."""
    since = _DEPRECATED.get(method)
    return since is not None and version >= since


def least_capability(method: str, version: Version) -> Version:
    """The least compute capability that a release's kernels for a method run on, (0, 0) where none is known."""
    return next((least for since, least in _of(method).capability if version >= since), (0, 0))


def _of(method: str) -> Loads:
    return _METHODS.get(_ALSO_CALLED.get(method, method), Loads())
