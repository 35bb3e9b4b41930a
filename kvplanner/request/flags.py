"""Our own flags, declared once for the terminal and the window, and where an engine's begin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.engine.registry import names
from kvplanner.engine.signature import command_end, launchers, signatures
from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Flag(NamedTuple):
    """A flag with a value. many: it may be given again and again."""

    name: str
    metavar: str
    help: str
    many: bool = False

    @property
    def field(self) -> str:
        """What argparse calls its value."""
        return self.name.removeprefix("--").replace("-", "_")


ENGINES: Final = f"{', '.join(names())} ({names()[0]}; for a GGUF file or ollama:NAME, its own)"
VERSIONS: Final = "the engine's version (the newest known)"
# What to plan. With a model and an engine's own flags these are all the words of a plan.
PLAN_FLAGS: Final = (
    Flag("--gpu", "SPEC", '"H100", "2xRTX 4090", "1xRTX 4090,1xRTX 3090", "4x79.2GiB", "local"'),
    Flag("--engine", "NAME", ENGINES),
    Flag("--engine-version", "V", VERSIONS),
    Flag("--weight-format", "F", "plan the model as if stored so: fp8, int8, awq, gptq, nvfp4, mxfp4, q4_k_m ..."),
    Flag(
        "--load",
        "N@PROMPT+OUTPUT",
        "users at once and their tokens: 32@1500+500, or 32@70%%:1500+500,30%%:8k+1k",
    ),
    Flag("--free", "[GPU=]SIZE", "free memory before the engine starts: 70GiB, or 0=70GiB,1=60GiB", many=True),
    Flag(
        "--measured",
        "KIND=SIZE",
        "what you measured, in place of an estimate: activations=3GB; kinds as in a plan's table",
        many=True,
    ),
)
# How the terminal tells a plan.
REPORT_FLAGS: Final = (
    "--explain", "--unit", "--json", "--save", "--online", "--markdown", "--remedies", "--solve", "--mix",
    "--launch", "--nodes",
)  # fmt: skip
# Those that stand among an engine's own only by mistake.
OURS: Final = frozenset({*(flag.name for flag in PLAN_FLAGS), *REPORT_FLAGS})
_MODEL: Final = "catalogue id, folder, config.json, *.safetensors, *.gguf, ollama:NAME, hub:ORG/NAME or a .kvplan.json"

# What starts an engine's own command line, and what may stand before it.
_CONTAINER: Final = re.compile(r"(?:.*[/\\])?(?:(?:docker|podman|nerdctl) run|python[\d.]* -m)")
_BEFORE: Final = re.compile(r"sudo|env|exec|nohup|time|uvx?|poetry|pipenv|run|[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


def add_plan_words(parser: ArgumentParser) -> None:
    """Have a parser take a model and all that says what to plan for it."""
    parser.add_argument("model", nargs="?", default="", metavar="MODEL", help=_MODEL)
    add_plan_flags(parser)


def add_plan_flags(parser: ArgumentParser) -> None:
    """Have a parser take all that says what to plan for a model."""
    for flag in PLAN_FLAGS:
        if flag.many:
            parser.add_argument(flag.name, action="append", default=[], metavar=flag.metavar, help=flag.help)
        else:
            parser.add_argument(flag.name, metavar=flag.metavar, help=flag.help)


def split_flags(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own words, and the engine's: after "--", or from where a command line such as "vllm serve" begins."""
    words = list(argv)
    start = _launch_start(words)
    if start is not None and _is_ours(words[start : start + 2]):  # a whole command in quotes, then ours
        ours, more = split_flags(words[start + 1 :])
        return [*words[:start], *ours], (words[start], *more)
    if "--" not in words or (start is not None and start < words.index("--")):
        return (words, ()) if start is None else (words[:start], tuple(words[start:]))
    end = words.index("--")
    rest = words[end + 1 :]
    return words[:end], tuple(rest[1:] if rest[:1] == ["--"] else rest)


def _is_ours(words: Sequence[str]) -> bool:
    """Whether a word of several, which quotes hold together, is followed by a flag of ours."""
    return len(words) > 1 and any(c.isspace() for c in words[0]) and words[1].partition("=")[0] in OURS


def _starts_a_server(words: Sequence[str]) -> bool:
    if _CONTAINER.fullmatch(" ".join(words[:2])):
        return True
    patterns = (pattern for found in signatures() if found.planned for pattern in launchers(found))
    return any(command_end(words, pattern, 0) is not None for pattern in patterns if len(pattern) <= 2)


def _launch_start(words: Sequence[str]) -> int | None:
    """Where a launcher stands without a "--" before it, with what it is started through and its environment."""
    for index, word in enumerate(words):
        if word == "--":
            return None
        parts = word.split() if any(c.isspace() for c in word) else words[index : index + 2]
        if _starts_a_server(parts) and (index == 0 or not words[index - 1].startswith("--") or "=" in words[index - 1]):
            while index > 0 and _BEFORE.fullmatch(words[index - 1]):
                index -= 1
            return index
    return None
