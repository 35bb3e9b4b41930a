"""llama.cpp: GGUF models on one or more GPUs and the host."""
