"""How a running SGLang looks in a process list (data only; fields as in kvplanner.engine.signature).

The parent is the console script or the module. One child titled sglang::scheduler holds each GPU; those titled
sglang::detokenizer, ::data_parallel_controller and ::tokenizer_worker hold none (setproctitle, 0.5.23).

The image has no server as its entry point; the module starts one in every release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SIGNATURE: Final[Mapping[str, object]] = {
    "engine": "sglang",
    "title": "SGLang",
    "commands": (
        (r"sglang", "serve"),
        (r"-m", r"sglang\.launch_server"),
        (r"-m", r"sglang", "serve"),
        (r"-m", r"sglang\.srt\.server"),
    ),
    "titles": (r"sglang::.*",),
    "model_flags": ("--model-path", "--model"),
    "model_positional": True,
    "default_port": 30000,
    "packages": ("sglang",),
    "launch": ("sglang", "serve"),
    "images": (r"lmsysorg/sglang[\w.-]*",),
    "container": "lmsysorg/sglang:v{version}",
    "container_words": ("python3", "-m", "sglang.launch_server", "--host", "0.0.0.0"),
    "container_model": "--model-path",
    "python": ("sglang", "Engine", "model_path"),
    "python_also": ("ServerArgs",),
    "nodes_flag": "--nnodes",
    "node_flags": (("--nnodes", "{nodes}"), ("--node-rank", "{node}"), ("--dist-init-addr", "$HEAD:20000")),
    "planned": True,
}  # fmt: skip
