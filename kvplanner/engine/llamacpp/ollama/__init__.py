"""Ollama: a preset over llama.cpp, with defaults of its own."""
