"""Readers of config.json: one small module per family of architectures, found through the registry."""
