"""llama.cpp's engine: placement, caches, buffers, fit and plans."""
