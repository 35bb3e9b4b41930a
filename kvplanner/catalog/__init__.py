"""The bundled models and GPUs, read from resources: a small index at start, records on demand."""
