"""Dense decoders with grouped-query attention that differ in a few traits only.

Traits: configuration and modelling classes of transformers 5.24, each confirmed by element counts of the
catalogue's models.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.families.decoder import Decoder
from kvplanner.model.families.patterns import optional_window, window_everywhere
from kvplanner.model.families.read import Reader

READERS: Final[dict[str, Reader]] = {
    "LlamaForCausalLM": Decoder(mlp_bias=("mlp_bias", False)),
    "MistralForCausalLM": Decoder(qkv_bias=False, o_bias=False, pattern=window_everywhere),
    "Ministral3ForCausalLM": Decoder(qkv_bias=False, o_bias=False, pattern=window_everywhere),
    "Qwen2ForCausalLM": Decoder(qkv_bias=True, o_bias=False, pattern=optional_window),
    "Qwen3ForCausalLM": Decoder(qk_norm="head", head_size=128, pattern=optional_window),
}
