"""How a running Ollama looks in a process list (data only; read by kvplanner.observe.processes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Fields as in kvplanner.engine.signature.
SIGNATURE: Final[Mapping[str, object]] = {
    "engine": "ollama",
    "title": "Ollama",
    "commands": (
        (r"ollama", r"runner"), (r"ollama_llama_server",), (r"ollama-runner",), (r"ollama", r"serve"),
    ),
    "titles": (),
    "model_flags": ("--model",),
    "model_positional": False,
    "names_model": False,
    "default_port": 11434,
    "packages": (),
    "launch": ("ollama", "serve"),
    "images": (r"ollama/ollama",),
    "container": "ollama/ollama:{version}",
    "modelfile": ("num_ctx", "num_gpu", "num_batch"),
    "planned": True,
    "store": "ollama:",
    # llm/server.go of 0.30: the flags of the llama-server that each model runs in.
    "child_options": (
        ("ctx_size", "num_ctx"), ("parallel", "num_parallel"), ("cache_type_k", "kv_cache_type"),
        ("batch_size", "num_batch"), ("n_gpu_layers", "num_gpu"),
    ),
    "child_share": ("num_ctx", "num_parallel"),
    "env_prefixes": ("OLLAMA_", "LLAMA_ARG_"),
    # cmd/cmd.go: what loads a model, or shows it; what stands behind its name is a prompt.
    "programs": (
        {
            "command": (r"ollama", r"run|show|pull|stop"),
            "talks": True,
            "dropped": ("--format", "--keepalive", "--width", "--height", "--steps", "--seed", "--negative"),
            "switches": (
                "--verbose", "-v", "--nowordwrap", "--hidethinking", "--insecure", "--experimental", "--think",
                "--experimental-yolo", "--experimental-websearch", "--modelfile", "--license", "--parameters",
                "--template", "--system", "--truncate", "--dimensions",
            ),
        },
    ),
}  # fmt: skip
