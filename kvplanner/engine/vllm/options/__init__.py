"""vLLM's options, each declared once."""
