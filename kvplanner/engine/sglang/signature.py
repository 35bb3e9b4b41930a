"""How a running SGLang looks in a process list (data only; read by kvplanner.observe.processes).

The parent is the console script or the module; each GPU is held by one scheduler (setproctitle, 0.5.23), and the
other children hold none.
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
    ),
    "titles": (r"sglang::scheduler.*", r"sglang::detokenizer.*", r"sglang::data_parallel_controller.*",
               r"sglang::tokenizer_worker.*"),
    "model_flags": ("--model-path", "--model"),
    "model_positional": True,
    "default_port": 30000,
    "packages": ("sglang",),
    "planned": True,
}  # fmt: skip
