"""Memory beside weights and cache: activations, buffers, graphs, runtime."""
