"""What single words of a request name: a load, a machine, a weight format. For those who read no more of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from kvplanner.catalog import gpus
from kvplanner.engine.request import Load
from kvplanner.errors import BadInput, UnknownName
from kvplanner.gpu.spec import Machine
from kvplanner.request.start import START_GPU
from kvplanner.units import parse_count

LOCAL: Final = "local"
_LOAD: Final = r"([^@+]+)@([^@+]+)\+([^@+]+)"
_LOAD_EXAMPLE: Final = "Write users@prompt+output in tokens, for example 32@1500+500"


def machine_of(text: str, local: Callable[[], Machine | None]) -> tuple[Machine, str, tuple[str, ...]]:
    """The machine that --gpu names, its words, and what to say when nothing was named.

    Without words: this machine's GPUs when they can be seen, else the start GPU. Raises UnknownName, BadInput.
    """
    if text and text.strip().lower() != LOCAL:
        return gpus.machine(text), text, ()
    seen = local()
    if seen is not None:
        said = () if text else (f"No --gpu was given: planned for this machine's {seen.describe()}",)
        return seen, LOCAL, said
    if text:
        raise BadInput("no NVIDIA GPU can be seen on this machine", "--gpu local", "Name a GPU, for example --gpu H100")
    said = (f"No --gpu was given and no NVIDIA GPU can be seen here: planned for one {START_GPU}",)
    return gpus.machine(START_GPU), START_GPU, said


def parse_load(text: str) -> Load:
    """Load from "32@1500+500". Raises BadInput."""
    match = re.fullmatch(_LOAD, text.strip())
    try:
        users, prompt, output = (parse_count(part) for part in match.groups()) if match else (0, 0, 0)
    except ValueError as error:
        raise BadInput(str(error), "--load", _LOAD_EXAMPLE) from error
    if users < 1 or prompt + output < 1:
        raise BadInput(f"{text[:60]!r} is not a load", "--load", _LOAD_EXAMPLE)
    return Load(users, prompt, output)


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
