"""Which engine a process belongs to: by its command line, or by the title that it gave itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kvplanner.engine.programs import as_server, variables_of
from kvplanner.engine.signature import Program, Signature, base_name, command_end, signature, signatures
from kvplanner.record import NamedTuple

__all__ = ["Recognised", "Signature", "recognise", "signature", "signatures"]


class Recognised(NamedTuple):
    """A process that belongs to an engine. server: started with a command line; rest: the words after it.

    program: another server of the engine's, whose words `own` were translated into `rest`.
    """

    signature: Signature
    server: bool
    rest: tuple[str, ...] = ()
    program: Program | None = None
    own: tuple[str, ...] = ()

    def with_variables(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """The words, with those that its environment stands for where it reads any."""
        if self.program is None:
            return self.rest
        return as_server(self.program, (*variables_of(self.program, environment), *self.own))[1]


def recognise(command: Sequence[str], name: str = "") -> Recognised | None:
    """Which engine a command line (or the title that a process gave itself) belongs to."""
    for found in signatures():
        for pattern in found.commands:
            at = _position(command, pattern)
            if at is not None:
                return Recognised(found, True, tuple(command[at:]))
        for program in found.programs:
            at = _position(command, program.command) if program.serves else None
            if at is not None:
                own = tuple(command[at:])
                return Recognised(found, True, as_server(program, own)[1], program, own)
    title = command[0] if len(command) == 1 else name
    for found in signatures():
        if any(re.fullmatch(pattern, text) for pattern in found.titles for text in (title, name) if text):
            return Recognised(found, False)
    return None


def _position(command: Sequence[str], pattern: Sequence[str]) -> int | None:
    """Where the words after `pattern` begin. A program counts as the first word or as an interpreter's script."""
    for start in range(min(len(command), 8) - len(pattern) + 1):
        if pattern[0] != "-m" and not _may_be_program(command, start):
            continue
        if (end := command_end(command, pattern, start)) is not None:
            return end
    return None


def _may_be_program(command: Sequence[str], start: int) -> bool:
    if start == 0:
        return True
    # "python /venv/bin/vllm serve", "python -u vllm serve", "uv run vllm serve", "env A=b vllm serve".
    return all(
        base_name(word).startswith(("python", "uv", "run", "env", "numactl", "nice"))
        or word.startswith("-")
        or "=" in word
        for word in command[:start]
    )
