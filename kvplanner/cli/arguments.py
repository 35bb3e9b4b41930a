"""Argument parsers that fail like the rest of the program: one line with what to do, not a page of usage."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final, NoReturn

from kvplanner.errors import BadInput, UnknownName

# What starts an engine's own command line, and what may stand before it.
_LAUNCHER: Final = re.compile(r"(?:.*[/\\])?(?:vllm serve|(?:docker|podman|nerdctl) run|python[\d.]* -m)")
_BEFORE: Final = re.compile(r"sudo|env|exec|nohup|time|uvx?|poetry|pipenv|run|[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """An argument parser of one command. usage: its first lines of help, made from the arguments when left out."""

    def __init__(self, command: str, description: str, epilog: str = "", usage: str | None = None) -> None:
        self.command = command
        super().__init__(
            prog=f"kvplanner {command}",
            usage=usage,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raises BadInput instead of printing usage and leaving."""
        raise BadInput(message.removeprefix("argument "), self.command, f"{self.prog} --help lists what it takes")

    def refuse(self, flag: str, remedy: str) -> NoReturn:
        """Raises UnknownName for a flag that is none of these, with those that are spelled alike."""
        from difflib import get_close_matches

        ours = [spelled for action in self._actions for spelled in action.option_strings]
        near = tuple(get_close_matches(flag.partition("=")[0], ours, n=2, cutoff=0.75))
        what = f"{flag.partition('=')[0]} is no flag of kvplanner"
        raise UnknownName(what, self.command, near, "" if near else remedy)


def split_flags(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own words, and the engine's: after "--", or from where a command line such as "vllm serve" begins."""
    words = list(argv)
    start = _launch_start(words)
    if "--" not in words or (start is not None and start < words.index("--")):
        return (words, ()) if start is None else (words[:start], tuple(words[start:]))
    end = words.index("--")
    rest = words[end + 1 :]
    return words[:end], tuple(rest[1:] if rest[:1] == ["--"] else rest)


def _launch_start(words: Sequence[str]) -> int | None:
    """Where a launcher stands without a "--" before it, with what it is started through and its environment."""
    for index, word in enumerate(words):
        if word == "--":
            return None
        parts = word.split() if any(c.isspace() for c in word) else words[index : index + 2]
        if _LAUNCHER.fullmatch(" ".join(parts[:2])) and (
            index == 0 or not words[index - 1].startswith("--") or "=" in words[index - 1]
        ):
            while index > 0 and _BEFORE.fullmatch(words[index - 1]):
                index -= 1
            return index
    return None
