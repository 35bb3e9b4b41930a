"""What the engine refuses while it resolves arguments or builds the model: bad input, before memory is planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.engine.option import OptionValue
from kvplanner.engine.sglang.quirks import quirk
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.shared.identity import by_identity
from kvplanner.errors import BadInput
from kvplanner.model.spec import Attention, Mla, ModelSpec, State

# Methods by the least compute capability that runs them (model_loader/loader.py), and those that 0.5.23 lost.
_LEAST_ARCH: Final = {"modelopt_fp8": (8, 9)}
_NOT_SUPPORTED: Final = ("fbgemm_fp8",)


def check_arguments(spec: ModelSpec, settings: Settings, options: Mapping[str, OptionValue]) -> None:
    """Raises BadInput, in words near the engine's, for arguments that it does not resolve."""
    _context(spec, settings)
    _states(spec, settings, options)


def check_model(spec: ModelSpec, settings: Settings) -> None:
    """Raises BadInput, in words near the engine's, for a model that it does not build or load."""
    if settings.parallel.pp > 1 and quirk(spec.architecture).alone:
        raise BadInput(f"SGLang builds no pipeline of {spec.architecture} (the engine ends with a bare AssertionError)",
                       "--pp-size", "Use --tp-size instead")  # fmt: skip
    _heads(spec, settings)
    method = settings.quantization or ""
    if method == "modelopt" and spec.kv_cache_dtype == "fp8":
        method = "modelopt_fp8"
    refused = method_refused(method, settings.arch)
    if refused:
        raise BadInput(refused, "--quantization", "Use another GPU, or another checkpoint of this model")


def method_refused(method: str, arch: tuple[int, int] | None) -> str:
    """Why weights of a method are not loaded on a compute capability, "" when they are. arch None: on any."""
    if method in _NOT_SUPPORTED:
        return f"SGLang does not load {method} checkpoints"
    least = _LEAST_ARCH.get(method)
    if least is None or arch is None or arch >= least:
        return ""
    return (
        f"The quantization method {method} is not supported for the current GPU. Minimum capability: "
        f"{least[0]}{least[1]}. Current capability: {arch[0]}{arch[1]}"
    )


def _context(spec: ModelSpec, settings: Settings) -> None:
    longest = spec.context_length
    if longest is not None and settings.context_length > longest:
        raise BadInput(
            f"User-specified context_length ({settings.context_length}) is greater than the derived context_length "
            f"({longest})", "--context-length", f"Give at most {longest:,}",
        )  # fmt: skip


def _heads(spec: ModelSpec, settings: Settings) -> None:
    ranks = settings.parallel.attention_tp
    found = uneven_heads(spec, ranks)
    if found is not None:
        raise _uneven(*found, ranks)


@by_identity(256, lambda _, ranks: ranks)
def uneven_heads(spec: ModelSpec, ranks: int) -> tuple[str, int] | None:
    """What of the first layer that does not divide by attention ranks it is, and how many; None where all do."""
    for mixer in (m for layer in spec.layers for m in layer.mixers):
        if isinstance(mixer, Attention | Mla) and mixer.heads % ranks:
            return "attention heads", mixer.heads
        if isinstance(mixer, Attention) and mixer.kv_heads % ranks and ranks % mixer.kv_heads:
            return "KV heads", mixer.kv_heads
        if isinstance(mixer, State):
            for name, count in (("state heads", mixer.heads), ("state channels", mixer.channels)):
                if count % ranks:
                    return name, count
    return None


def _uneven(what: str, count: int, ranks: int) -> BadInput:
    return BadInput(f"{count} {what} do not divide by {ranks} attention ranks (the engine ends with a bare "
                    "AssertionError)", "--tp-size", f"Choose a size that divides {count}")  # fmt: skip


def _states(spec: ModelSpec, settings: Settings, options: Mapping[str, OptionValue]) -> None:
    known = quirk(spec.architecture).states or options.get("mamba_radix_cache_strategy") == "no_buffer"
    if settings.states.strategy != "no_buffer" or not known:
        return
    flag = "--mamba-radix-cache-strategy"
    if (options.get("page_size") or 1) != 1:
        raise BadInput("no_buffer only supports page_size=1", flag, "Leave --page-size out")
    if settings.overlap:
        raise BadInput("no_buffer does not support the overlap schedule", flag, "Add --disable-overlap-schedule")
    if "trtllm_mha" in (settings.prefill_attention, settings.decode_attention):
        raise BadInput("no_buffer does not support the trtllm_mha attention back end", flag,
                       "Choose another --attention-backend")  # fmt: skip
