"""How a running vLLM looks in a process list (data only; read by kvplanner.observe.processes).

Seen in vLLM's sources from 0.6 to 0.33: the console script `vllm serve`, the module entry points, and the titles that
child processes give themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# words: patterns (regular expressions, full match) for consecutive words of a command line; programs are matched by
# base name without ".exe". titles: patterns for the title that a child gives itself. model_flags: flags that name the
# model; model_positional: whether the first word after `words` that is no flag names it.
# packages: distributions whose installed version is the engine's version.
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
    "planned": True,
}
