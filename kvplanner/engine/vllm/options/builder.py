"""The sections of the form and the one way to write an option down."""

from __future__ import annotations

from typing import Any

from kvplanner.engine.option import Option, OptionType
from kvplanner.engine.vllm.options.names import LABELS, ROLES

MEMORY = "Memory"
PARALLEL = "Parallelism"
CONTEXT = "Context and load"
CACHE = "KV cache"
GRAPHS = "Compilation and graphs"
STATE = "State layers"
WEIGHTS = "Weights"
MULTIMODAL = "Multimodal"
SPECULATIVE = "Speculative decoding"
LORA = "LoRA"

# More host memory than any machine has.
LARGEST_GIB = 1 << 20


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def option(name: str, kind: OptionType, section: str, help_text: str, default: str, **more: Any) -> Option:
    """An option whose flag is its name with dashes; a boolean also gets its --no- form."""
    aliases: tuple[str, ...] = more.pop("aliases", ())
    if kind == "bool":
        more.setdefault("negation", "--no-" + name.replace("_", "-"))
    more.setdefault("label", LABELS.get(name, ""))
    more.setdefault("role", ROLES.get(name, ""))
    return Option(name, (_flag(name), *aliases), kind, section, help_text, default, **more)
