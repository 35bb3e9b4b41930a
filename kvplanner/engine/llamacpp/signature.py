"""How a running llama-server looks in a process list (data only; read by kvplanner.observe.processes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Fields as in kvplanner.engine.signature.
SIGNATURE: Final[Mapping[str, object]] = {
    "engine": "llamacpp",
    "title": "llama-server",
    "commands": ((r"llama-server",), (r"llama", "serve"), (r"-m", r"llama_cpp\.server")),
    "titles": (),
    "model_flags": ("-m", "--model"),
    "model_positional": False,
    "default_port": 8080,
    "packages": (),
    "launch": ("llama-server",),
    "model_env": ("LLAMA_ARG_MODEL",),
    "images": (r"ghcr\.io/ggml-org/llama\.cpp",),
    "container": "ghcr.io/ggml-org/llama.cpp:server-cuda-{version}",
    "container_words": ("--host", "0.0.0.0"),
    "container_model": "-m",
    "planned": True,
}
