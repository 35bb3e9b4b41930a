"""What single words of a request name: a load, a machine, a weight format. For those who read no more of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from kvplanner.catalog import gpus
from kvplanner.engine.request import MOST_KINDS, Load, Part, mixed
from kvplanner.errors import BadInput, UnknownName
from kvplanner.gpu.spec import Machine
from kvplanner.request.start import START_GPU
from kvplanner.units import parse_count

LOCAL: Final = "local"
_LOAD: Final = r"([^@+]+)@([^@+]+)\+([^@+]+)"
_PART: Final = re.compile(r"\s*(\d{1,4}(?:\.\d{1,6})?)\s*%?\s*:\s*([\w.]+)\s*\+\s*([\w.]+)\s*")
_MIX_EXAMPLE: Final = "Write for example 32@70%:1500+500,30%:8k+1k"
_LOAD_EXAMPLE: Final = "Write users@prompt+output in tokens, for example 32@1500+500"


def machine_of(text: str, local: Callable[[], Machine | None]) -> tuple[Machine, str, tuple[str, ...]]:
    """The machine that --gpu names, its words, and what to say when nothing was named or it was left open which.

    Without words: this machine's GPUs when they can be seen, else the start GPU. Raises UnknownName, BadInput.
    """
    if text and text.strip().lower() != LOCAL:
        named = gpus.machine(text, choose=True)
        return named, gpus.machine_words(named) if named.assumed else text, named.assumed
    seen = local()
    if seen is not None:
        said = () if text else (f"No --gpu was given: planned for this machine's {seen.describe()}",)
        return seen, LOCAL, said
    if text:
        raise BadInput("no NVIDIA GPU can be seen on this machine", "--gpu local", "Name a GPU, for example --gpu H100")
    said = (f"No --gpu was given and no NVIDIA GPU can be seen here: planned for one {START_GPU}",)
    return gpus.machine(START_GPU), START_GPU, said


def parse_load(text: str) -> Load:
    """Load from "32@1500+500", or of several kinds from "32@70%:1500+500,30%:8k+1k". Raises BadInput."""
    users, _, kinds = text.strip().partition("@")
    if ":" in kinds:
        return mixed(_users(users, text), parse_mix(kinds, "--load"))
    match = re.fullmatch(_LOAD, text.strip())
    try:
        count, prompt, output = (parse_count(part) for part in match.groups()) if match else (0, 0, 0)
    except ValueError as error:
        raise BadInput(str(error), "--load", _LOAD_EXAMPLE) from error
    if count < 1 or prompt + output < 1:
        raise BadInput(f"{text[:60]!r} is not a load", "--load", _LOAD_EXAMPLE)
    return Load(count, prompt, output)


def _users(text: str, whole: str) -> int:
    try:
        users = parse_count(text)
    except ValueError as error:
        raise BadInput(str(error), "--load", _MIX_EXAMPLE) from error
    if users < 1:
        raise BadInput(f"{whole[:60]!r} is not a load", "--load", _MIX_EXAMPLE)
    return users


def parse_mix(text: str, where: str = "--mix") -> tuple[Part, ...]:
    """Kinds of requests from "70%:1500+500,30%:8k+1k"; shares count against their sum. Raises BadInput."""
    example = _MIX_EXAMPLE if where == "--load" else _MIX_EXAMPLE.replace("32@", "")
    found: list[Part] = []
    for word in text.split(","):
        match = _PART.fullmatch(word)
        try:
            share = float(match[1]) if match else 0.0
            prompt, output = (parse_count(match[2]), parse_count(match[3])) if match else (0, 0)
        except ValueError as error:
            raise BadInput(str(error), where, example) from error
        if share <= 0 or prompt + output < 1:
            raise BadInput(f"{word[:60]!r} is no part of a mix", where, example)
        found.append(Part(share, prompt, output))
    if len(found) > MOST_KINDS:
        raise BadInput(f"{len(found)} kinds of requests are too many", where, f"Give {MOST_KINDS} at most")
    whole = sum(part.share for part in found)
    return tuple(part._replace(share=part.share / whole) for part in found)


def mix_text(load: Load) -> str:
    """What `parse_mix` reads as the kinds of a load: "70%:1500+500,30%:8000+1000"."""
    return ",".join(f"{part.share * 100:.6g}%:{part.prompt_tokens}+{part.output_tokens}" for part in load.mix)


def load_text(load: Load) -> str:
    """What `parse_load` reads: "32@1500+500"."""
    return f"{load.users}@{mix_text(load) or f'{load.prompt_tokens}+{load.output_tokens}'}"


def format_name(text: str) -> str:
    """The weight format that a text such as "fp8", "awq" or "q4_k_m" names. Raises UnknownName."""
    from kvplanner.model.whatif import WHATIF_FORMATS

    wanted = _plain(text)
    names = {_plain(name): name for name in WHATIF_FORMATS}
    found = names.get(wanted) or names.get(f"gguf{wanted}")
    if found:
        return found
    near = [name for plain, name in names.items() if wanted and plain.startswith(wanted)]
    if len(near) == 1:
        return near[0]
    digits = "".join(c for c in wanted if c.isdigit())
    alike = [name for name in WHATIF_FORMATS if _plain(name.split()[0]) in wanted]
    near = near or alike or [name for plain, name in names.items() if digits and digits in plain]
    raise UnknownName(f"{text!r} is no weight format", "--weight-format", tuple(near or WHATIF_FORMATS),
                      "Name one of them")  # fmt: skip


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())
