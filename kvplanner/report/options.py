"""Options by what they mean, and what they are called, from the engine's own declarations."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.option import Option, Role
from kvplanner.engine.plan import Plan, WorkingRange
from kvplanner.engine.registry import engine

_WORDS: Final = {
    "kv": "KV", "gpu": "GPU", "gpus": "GPUs", "cuda": "CUDA", "cudagraph": "CUDA graph", "lora": "LoRA",
    "loras": "LoRAs", "mm": "multimodal", "num": "number of", "max": "max", "enable": "", "len": "length",
    "dtype": "type", "quantization": "quantisation", "utilization": "utilisation", "optimization": "optimisation",
    "mamba": "Mamba", "dbo": "DBO",
    "eplb": "EPLB", "cpu": "CPU", "backend": "back end", "tp": "TP", "pp": "PP", "seqs": "sequences", "gb": "(GiB)",
}  # fmt: skip


@lru_cache(maxsize=64)
def with_role(engine_name: str, version: str | None, role: Role) -> Option | None:
    """The option of an engine that plays a role, None where it has none."""
    return role_option(engine(engine_name), version, role)


def role_value(plan: Plan, role: Role) -> float | None:
    """The number that the option with a role has in a plan, None where there is none."""
    option = with_role(plan.request.engine, plan.request.version, role)
    resolved = plan.options.get(option.name) if option else None
    value = resolved.value if resolved else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def option_label(option: Option) -> str:
    """What an option is called in the form; one without a name of its own is called by its flag's words."""
    if option.label:
        return option.label
    words = [_WORDS.get(word, word) for word in option.name.split("_")]
    text = " ".join(word for word in words if word)
    return text[:1].upper() + text[1:]


def in_sentence(label: str) -> str:
    """A label as it stands within a sentence: abbreviations and names (KV, Llama-3.1-8B) keep their capitals."""
    first = label.partition(" ")[0]
    own = any(letter.isupper() or letter.isdigit() for letter in first[1:])
    return label if own else label[:1].lower() + label[1:]


def label_in_sentence(plan: Plan, role: Role) -> str:
    """What the option with a role is called within a sentence: "utilisation"; "" where the engine has none."""
    option = with_role(plan.request.engine, plan.request.version, role)
    return in_sentence(option_label(option)) if option else ""


def range_words(found: WorkingRange) -> str:
    """Where a server starts as an option moves, for the tip of its slider and a screen reader."""
    ends = (("below", found.below), ("above", found.above))
    beyond = "".join(f"; {end}: {what}" for end, what in ends if what)
    if not found.open:
        return f"Starts at no value of this option{beyond}"
    surely = ""
    if found.sure and (found.sure_low, found.sure_high) != (found.low, found.high):
        surely = f", surely from {found.sure_low:g} to {found.sure_high:g}"
    elif not found.sure:
        surely = ", but surely at none of them"
    return f"Starts from {found.low:g} to {found.high:g}{surely}{beyond}"
