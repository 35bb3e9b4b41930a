"""How a running vLLM looks in a process list (data only; fields as in kvplanner.engine.signature).

Seen in vLLM's sources from 0.6 to 0.33: the console script `vllm serve`, the module entry points, and the titles that
child processes give themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SIGNATURE: Final[Mapping[str, object]] = {
    "engine": "vllm",
    "title": "vLLM",
    "commands": (
        (r"vllm(?:-openai)?", "serve"),
        (r"-m", r"vllm\.entrypoints\.cli\.main", "serve"),
        (r"-m", r"vllm", "serve"),
        (r"-m", r"vllm\.entrypoints\.(?:openai\.)?api_server"),
        (r"-m", r"vllm\.entrypoints\.grpc_server"),
    ),
    "titles": (r"VLLM::.*", r"VllmWorker.*", r"ray::RayWorkerWrapper.*"),
    "model_flags": ("--model", "--model-tag"),
    "model_positional": True,
    "default_port": 8000,
    "packages": ("vllm",),
    "launch": ("vllm", "serve"),
    "images": (r"vllm/vllm[\w.-]*",),
    "planned": True,
}
