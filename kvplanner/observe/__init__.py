"""The real thing: GPUs through NVML, processes, server metrics."""
