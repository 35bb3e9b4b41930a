"""Recurrent state in the cache: its bytes per layer and the blocks that a request holds.

Shapes and dtypes: model_executor/layers/mamba/mamba_utils.py and the models' own rules in vLLM 0.33.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm.backends import CHECKPOINTS_SINCE, Chosen
from kvplanner.engine.vllm.dtypes import element_bytes
from kvplanner.engine.vllm.settings import Settings
from kvplanner.model.spec import State

# Families whose config decides the dtype of the recurrent state when the flag is "auto".
_CONFIG_DECIDES: Final = ("NemotronH", "Qwen3_5")


def state_bytes(mixer: State, settings: Settings, architecture: str) -> int:
    """Bytes of one layer's recurrent state and convolution inputs for one block on one rank."""
    tp, rows = settings.tp, mixer.conv_kernel - 1 + settings.spec_tokens
    conv_dtype = settings.dtype if settings.mamba_cache_dtype == "auto" else settings.mamba_cache_dtype
    conv = element_bytes(conv_dtype)
    state = element_bytes(_state_dtype(mixer, settings, architecture, conv_dtype))
    if mixer.kind == "mamba1":
        return mixer.channels // tp * ((mixer.conv_kernel - 1) * conv + mixer.state_size * state)
    if mixer.kind == "mamba2":
        groups = mixer.groups if mixer.groups % tp == 0 else tp
        mixed = (mixer.heads * mixer.head_size + 2 * groups * mixer.state_size) // tp
        return mixed * rows * conv + mixer.heads // tp * mixer.head_size * mixer.state_size * state
    if mixer.kind == "short_conv":
        return mixer.channels // tp * rows * conv
    if mixer.kind == "lightning":
        return mixer.heads // tp * mixer.head_size * mixer.head_size * conv
    key_heads, key_size = mixer.key_heads or mixer.heads, mixer.key_size or mixer.head_size
    mixed = (2 * key_heads * key_size + mixer.heads * mixer.head_size) // tp
    return mixed * rows * conv + mixer.heads // tp * mixer.head_size * key_size * state


def _state_dtype(mixer: State, settings: Settings, architecture: str, conv_dtype: str) -> str:
    if settings.mamba_ssm_cache_dtype != "auto":
        return settings.mamba_ssm_cache_dtype
    if mixer.kind == "kda":
        return "float32"
    if architecture.startswith(_CONFIG_DECIDES):
        return mixer.state_dtype or ("float32" if architecture.startswith("NemotronH") else conv_dtype)
    return conv_dtype


def state_blocks(mixer: State, settings: Settings, chosen: Chosen) -> int:
    """Blocks of state that one request holds in one group of layers."""
    if settings.mamba_cache_mode != "align":
        return 1 + settings.spec_tokens
    checkpoints = mixer.kind == "mamba2" and settings.version >= CHECKPOINTS_SINCE
    extra = checkpoints or (mixer.kind == "gated_delta" and chosen.flashinfer_gdn)
    return 2 + settings.spec_tokens + (1 if extra else 0)
