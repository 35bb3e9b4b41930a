"""Argument parsers that fail like the rest of the program: one line with what to do, not a page of usage."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from kvplanner.errors import BadInput


class Parser(argparse.ArgumentParser):
    """An argument parser of one command."""

    def __init__(self, command: str, description: str, epilog: str = "") -> None:
        self.command = command
        super().__init__(
            prog=f"kvplanner {command}",
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raises BadInput instead of printing usage and leaving."""
        raise BadInput(message, self.command, f"{self.prog} --help lists what it takes")


def split_flags(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own words, and the engine's after "--"."""
    words = list(argv)
    if "--" not in words:
        return words, ()
    end = words.index("--")
    return words[:end], tuple(words[end + 1 :])
