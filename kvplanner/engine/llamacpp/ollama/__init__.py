"""Ollama: a preset over llama.cpp, with defaults of its own."""

from typing import Final

TITLE: Final = "Ollama"
