"""What is planned where nothing was named."""

from __future__ import annotations

from typing import Final

START_MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
START_GPU: Final = "NVIDIA H100 80GB HBM3"
START_GPU_ID: Final = "h100-sxm5-80gb"  # the same in the catalogue
# Where the start model fails on a machine: shorter contexts, then smaller models.
START_CONTEXTS: Final = (32_768, 8192)
START_MODELS: Final = (START_MODEL, "Qwen/Qwen3-4B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-0.6B")
