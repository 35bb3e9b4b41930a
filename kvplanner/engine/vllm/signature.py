"""How a running vLLM looks in a process list (data only; fields as in kvplanner.engine.signature).

Seen in vLLM's sources from 0.6 to 0.33: the console script `vllm serve`, the module entry points, and the titles that
child processes give themselves.

The image takes the server's flags, with --model in every release: its entry point was a module before `vllm serve`.
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
    "container": "vllm/vllm-openai:v{version}",
    "container_model": "--model",
    "python": ("vllm", "LLM", "model"),
    "python_flags": ("--usage", "llm"),
    "python_also": ("AsyncEngineArgs", "EngineArgs"),
    "nodes_flag": "--nnodes",
    "node_flags": (("--nnodes", "{nodes}"), ("--node-rank", "{node}"), ("--master-addr", "$HEAD")),
    "node_worker": ("--headless",),
    "replica_flags": (
        ("--data-parallel-size-local", "{local}"),
        ("--data-parallel-start-rank", "{first}"),
        ("--data-parallel-address", "$HEAD"),
        ("--data-parallel-rpc-port", "13345"),
    ),
    "ray_flags": ("--distributed-executor-backend", "ray"),
    "planned": True,
}
