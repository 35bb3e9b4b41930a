"""Argument parsers that fail like the rest of the program: one line with what to do, not a page of usage."""

from __future__ import annotations

import argparse
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn

from kvplanner.cli.output import flush, say, terminal_columns
from kvplanner.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help for the terminal's width. One is made for each argument that is declared, also where none is shown."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=terminal_columns() - 2)


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
            formatter_class=_Formatter,
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but --flag=-- is refused: Python 3.11 makes an empty list of it, whatever the flag."""
        for word in takewhile(lambda word: word != "--", args or ()):
            flag = word.removesuffix("--").removesuffix("=")
            if flag != word and any(flag in action.option_strings for action in self._actions):
                self.error(f"{flag}: expected a value, got --")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raises BadInput instead of printing usage and leaving."""
        raise BadInput(message.removeprefix("argument "), self.command, f"{self.prog} --help lists what it takes")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Help goes the way of every answer, at once: what follows leaves without coming back."""
        say(message.rstrip("\n"))
        flush()

    def refuse(self, flag: str, remedy: str) -> NoReturn:
        """Raises UnknownName for a flag that is none of these, with those that are spelled alike."""
        from difflib import get_close_matches

        ours = [spelled for action in self._actions for spelled in action.option_strings]
        near = tuple(get_close_matches(flag.partition("=")[0], ours, n=2, cutoff=0.75))
        what = f"{flag.partition('=')[0]} is no flag of kvplanner"
        raise UnknownName(what, self.command, near, "" if near else remedy)
