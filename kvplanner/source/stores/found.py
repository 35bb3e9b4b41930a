"""What a search of this machine finds, and how a search is watched and stopped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Protocol

from kvplanner.record import NamedTuple

Store = Literal["Hub cache", "Ollama", "LM Studio", "llama.cpp", "folder"]


class Control(Protocol):
    """Watches a long piece of work. Both methods raise to end it; a job's own control fits."""

    def check(self) -> None:
        """Raises when the work should end."""
        ...

    def progress(self, share: float | None, text: str = "") -> None:
        """Says how far the work is (0 to 1, None when unknown)."""
        ...


class Unwatched:
    """A control for work that nobody watches."""

    def check(self) -> None:
        """Never raises."""

    def progress(self, share: float | None, text: str = "") -> None:
        """Tells nobody."""


class Found(NamedTuple):
    """A model on this machine.

    key: what opens it (a path, or "ollama:NAME"); name: for people; bytes: of its weight files.
    format: recipe, method or dtype ("Q4_K_M", "fp8", "bfloat16"), "" when unknown. parameters and context_length:
    None when the files do not say it cheaply. problem: why it may not open ("" when nothing is known).
    """

    key: str
    name: str
    store: Store
    path: str
    bytes: int
    format: str = ""
    architecture: str = ""
    parameters: int | None = None
    context_length: int | None = None
    modified_ns: int = 0
    problem: str = ""


class Fingerprint(NamedTuple):
    """Changes when a candidate's files change."""

    files: int
    bytes: int
    newest_ns: int


class Candidate(NamedTuple):
    """Something that may be a model: where it is and how it would be opened, from names and sizes alone.

    kind: "folder" (config and weights), "gguf" (one file or all parts) or "ollama" (path is the manifest).
    """

    key: str
    name: str
    store: Store
    kind: Literal["folder", "gguf", "ollama"]
    path: Path
    fingerprint: Fingerprint
    problem: str = ""


def fingerprint(paths: Iterable[Path]) -> tuple[Fingerprint, int]:
    """The fingerprint of files that exist, and how many of the paths do not (dangling links)."""
    files = bytes_ = newest = absent = 0
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            absent += 1
            continue
        files += 1
        bytes_ += status.st_size
        newest = max(newest, status.st_mtime_ns)
    return Fingerprint(files, bytes_, newest), absent
