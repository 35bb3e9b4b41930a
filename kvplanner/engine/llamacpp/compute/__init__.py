"""Compute buffers: the graph of a model's layers, and what ggml's allocator reserves for it."""
