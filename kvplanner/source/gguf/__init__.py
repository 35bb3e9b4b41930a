"""GGUF files: header, layers, inventory, model."""
