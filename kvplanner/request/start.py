"""What is planned where nothing was named."""

from __future__ import annotations

from typing import Final

START_MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
START_GPU: Final = "NVIDIA H100 80GB HBM3"
START_GPU_ID: Final = "h100-sxm5-80gb"  # the same in the catalogue
