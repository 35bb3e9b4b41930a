"""The engines that are recognised among running processes: each engine package's own data, and those without one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from kvplanner.engine import registry

_PROGRAM_SUFFIXES: Final = (".exe", ".py")


class Signature(NamedTuple):
    """How an engine looks among processes; see an engine package's signature.py for the fields' meaning."""

    engine: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    titles: tuple[str, ...] = ()
    model_flags: tuple[str, ...] = ()
    model_positional: bool = False
    default_port: int = 0
    packages: tuple[str, ...] = ()
    planned: bool = False


class Recognised(NamedTuple):
    """A process that belongs to an engine. server: started with a command line; rest: the words after it."""

    signature: Signature
    server: bool
    rest: tuple[str, ...] = ()


# Engines that are named but not planned yet. Ollama's runner and llama-server share ancestry, so Ollama comes first.
_OTHERS: Final = (
    Signature(
        "ollama", "Ollama",
        ((r"ollama", r"runner"), (r"ollama_llama_server",), (r"ollama-runner",), (r"ollama", r"serve")),
        model_flags=("--model",), default_port=11434,
    ),
    Signature(
        "llamacpp", "llama-server", ((r"llama-server",), (r"-m", r"llama_cpp\.server")),
        model_flags=("--model", "-m", "--hf-repo", "-hf"), default_port=8080,
    ),
    Signature(
        "sglang", "SGLang",
        ((r"-m", r"sglang\.launch_server"), (r"sglang", r"serve"), (r"-m", r"sglang\.srt\.server")),
        titles=(r"sglang::.*",), model_flags=("--model-path", "--model"), default_port=30000, packages=("sglang",),
    ),
)  # fmt: skip


@cache
def signatures() -> tuple[Signature, ...]:
    """All signatures, those of planned engines first."""
    planned: Iterator[dict[str, Any]] = (dict(fields) for fields in registry.signatures())
    return (*(Signature(**fields) for fields in planned), *_OTHERS)


def signature(engine: str) -> Signature | None:
    """The signature of an engine, None when it has none."""
    return next((s for s in signatures() if s.engine == engine), None)


def recognise(command: Sequence[str], name: str = "") -> Recognised | None:
    """Which engine a command line (or the title that a process gave itself) belongs to."""
    for found in signatures():
        for pattern in found.commands:
            at = _position(command, pattern)
            if at is not None:
                return Recognised(found, True, tuple(command[at:]))
    title = command[0] if len(command) == 1 else name
    for found in signatures():
        if any(re.fullmatch(pattern, text) for pattern in found.titles for text in (title, name) if text):
            return Recognised(found, False)
    return None


def _position(command: Sequence[str], pattern: Sequence[str]) -> int | None:
    """Where the words after `pattern` begin. A program counts as the first word or as an interpreter's script."""
    starts = range(min(len(command), 8) - len(pattern) + 1)
    for start in starts:
        words = command[start : start + len(pattern)]
        if pattern[0] != "-m" and not _may_be_program(command, start):
            continue
        first = words[0] if pattern[0] == "-m" else _base(words[0])
        if all(re.fullmatch(p, w) for p, w in zip(pattern, (first, *words[1:]), strict=True)):
            return start + len(pattern)
    return None


def _may_be_program(command: Sequence[str], start: int) -> bool:
    if start == 0:
        return True
    # "python /venv/bin/vllm serve", "python -u vllm serve", "uv run vllm serve", "env A=b vllm serve".
    return all(
        _base(word).startswith(("python", "uv", "run", "env", "numactl", "nice")) or word.startswith("-") or "=" in word
        for word in command[:start]
    )


def _base(word: str) -> str:
    base = word.replace("\\", "/").rsplit("/", 1)[-1]
    for suffix in _PROGRAM_SUFFIXES:
        base = base.removesuffix(suffix)
    return base
