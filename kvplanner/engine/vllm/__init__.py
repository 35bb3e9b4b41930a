"""vLLM: options, rule eras, weights per rank, KV cache, buffers, activations, graphs and the budget."""

from typing import Final

TITLE: Final = "vLLM"
