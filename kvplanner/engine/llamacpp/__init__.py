"""llama.cpp: GGUF models on one or more GPUs and the host."""

from typing import Final

TITLE: Final = "llama.cpp"
