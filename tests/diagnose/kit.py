"""Start-up logs of vLLM to put together line by line."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from kvplanner.diagnose.diagnosis import Diagnosis, diagnose

LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-32B-Instruct"
CORE = "(EngineCore pid=7) INFO 05-20 08:12:16 [core.py:1] "
ERROR = "(EngineCore pid=7) ERROR 05-20 08:12:18 [core.py:1] "
OOM = (
    f"{ERROR}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of "
    "23.52 GiB of which 87.00 MiB is free."
)
LOADING = f"{CORE}Starting to load model x..."
LOADED = f"{CORE}Model loading took 14.99 GiB memory and 3.1 seconds"
NO_ROOM = (
    f"{CORE}Available KV cache memory: -4.20 GiB",
    f"{ERROR}ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
)
TOO_SMALL = (
    f"{CORE}Available KV cache memory: 4.47 GiB",
    f"{ERROR}ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (4.47 GiB). Based on the available memory, the "
    "estimated maximum model length is 36624.",
)
SIZED = f"{CORE}GPU KV cache size: 49,000 tokens, Maximum concurrency for 8,192 tokens per request: 5.98x"
BAR = "(EngineCore pid=7) Capturing CUDA graphs (FULL):  10%|#         | 3/35 [00:00<00:04, 8.33it/s]"
STARTED = f"{CORE}init engine (profile, create kv cache, warmup model) took 9.1 s"


def log(model: str, version: str, options: dict[str, Any], *lines: str) -> Diagnosis:
    head = (
        f"(APIServer pid=1) INFO 05-20 08:12:00 [api.py:1] vLLM API server version {version}",
        f"(APIServer pid=1) INFO 05-20 08:12:00 [utils.py:1] non-default args: {dict(model=model, **options)}",
    )
    return diagnose(BytesIO("\n".join((*head, *lines, "")).encode()).read)
