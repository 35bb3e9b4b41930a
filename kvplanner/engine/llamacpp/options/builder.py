"""The sections of the form and the one way to write an option down."""

from __future__ import annotations

from typing import Any, Final

from kvplanner.engine.option import Option, OptionType

CONTEXT: Final = "Context and load"
PLACE: Final = "Placement"
CACHE: Final = "KV cache"
COMPUTE: Final = "Compute"
HOST: Final = "Host memory"
FIT: Final = "Fitting"
MEDIA: Final = "Multimodal"
SPECULATIVE: Final = "Speculative decoding"
EXTRA: Final = "Adapters"


def option(name: str, kind: OptionType, section: str, help_text: str, default: str, **more: Any) -> Option:
    """An option whose first flag is its name with dashes, with the short ones beside it.

    env: the variable that llama-server reads; the flag stands above it.
    """
    short: tuple[str, ...] = more.pop("short", ())
    env = more.pop("env", "")
    # common_arg::has_value_from_env of common/arg.cpp: LLAMA_ARG_NO_MMAP stands for --no-mmap.
    off = env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_") if env and more.get("negation") else ""
    return Option(
        name, ("--" + name.replace("_", "-"), *short), kind, section, help_text, default, env_also=env,
        env_negation=off, **more,
    )  # fmt: skip
