"""Recurrent state in the cache: its bytes per layer and the blocks that a request holds.

Shapes and dtypes: model_executor/layers/mamba/mamba_utils.py and the models' own rules in vLLM 0.33.
"""

from __future__ import annotations

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.backends import Chosen
from kvplanner.engine.vllm.dtypes import element_bytes
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.settings import Settings
from kvplanner.model.kv import state_elements
from kvplanner.model.spec import State


def state_bytes(mixer: State, settings: Settings, architecture: str) -> int:
    """Bytes of one layer's recurrent state and convolution inputs for one block on one rank."""
    conv_dtype = settings.model.dtype if settings.cache.mamba_dtype == "auto" else settings.cache.mamba_dtype
    # Drafted tokens need their own inputs of the convolution, Mamba-1 excepted.
    rows = mixer.conv_kernel - 1 + (0 if mixer.kind == "mamba1" else settings.speculative.tokens)
    state, channels = state_elements(mixer, settings.parallel.tp)
    inputs = channels * rows * element_bytes(conv_dtype)
    return inputs + state * element_bytes(_state_dtype(mixer, settings, architecture, conv_dtype))


def _state_dtype(mixer: State, settings: Settings, architecture: str, conv_dtype: str) -> str:
    if mixer.kind == "lightning":
        return conv_dtype
    if settings.cache.mamba_ssm_dtype != "auto":
        return settings.cache.mamba_ssm_dtype
    if mixer.kind == "kda":
        return "float32"
    default = quirks(architecture).state_dtype
    if not default:
        return conv_dtype
    return mixer.state_dtype or ("float32" if default == "float32" else conv_dtype)


def state_blocks(mixer: State, settings: Settings, chosen: Chosen) -> int:
    """Blocks of state that one request holds in one group of layers."""
    if settings.cache.mamba_mode != "align":
        return 1 + settings.speculative.tokens
    checkpoints = mixer.kind == "mamba2" and rules.CHECKPOINTS.at(settings.version)
    extra = checkpoints or (mixer.kind == "gated_delta" and chosen.flashinfer_gdn)
    return 2 + settings.speculative.tokens + (1 if extra else 0)
