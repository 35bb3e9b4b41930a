"""Models on this machine: the Hub's cache, Ollama's, LM Studio's and llama.cpp's stores, and folders of the user's.

A search runs in a background job: it looks at names and sizes first, opens only what changed since the last one,
and keeps what it found for the next start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kvplanner.record import NamedTuple
from kvplanner.source.hub import cache as hub_cache
from kvplanner.source.stores import llamacpp as llamacpp_cache
from kvplanner.source.stores import lmstudio, memory, ollama, walk
from kvplanner.source.stores.describe import describe
from kvplanner.source.stores.found import Candidate, Control, Fingerprint, Found, Unwatched


class Places(NamedTuple):
    """Where to look. An empty tuple leaves a store out."""

    hub_caches: tuple[Path, ...] = ()
    ollama: tuple[Path, ...] = ()
    lmstudio: tuple[Path, ...] = ()
    llamacpp: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


def places(folders: tuple[Path, ...] = (), environment: Mapping[str, str] | None = None) -> Places:
    """The usual places of this machine as its environment names them, and `folders` of the user's own."""
    env = os.environ if environment is None else environment
    return Places((hub_cache.root(env),), ollama.roots(env), lmstudio.roots(env), (llamacpp_cache.root(env),), folders)


def remembered(folder: Path | None) -> tuple[Found, ...]:
    """What the last search kept in `folder`; at once, and without looking at the disk's models."""
    return _sorted(found for _, found in memory.load(folder).values() if found is not None)


def scan(
    where: Places | None = None,
    *,
    remember_in: Path | None = None,
    control: Control | None = None,
    on_found: Callable[[Found], None] | None = None,
) -> tuple[Found, ...]:
    """Searches this machine, sorted by name.

    remember_in: the folder of the memory, read before and written after a complete search.
    control: told the progress, and raises to end the search; on_found: called with each model as it is found.
    Unreadable places are passed over; a model that cannot be opened is found with its problem.
    """
    watch = control or Unwatched()
    before = memory.load(remember_in)
    watch.progress(None, "Looking for models")
    waiting = {candidate.key: candidate for candidate in _candidates(where or places(), watch)}
    entries: list[tuple[str, Fingerprint, Found | None]] = []
    for number, candidate in enumerate(waiting.values()):
        watch.progress(number / len(waiting), candidate.name)
        held = before.get(candidate.key)
        # A problem seen from outside (a missing part) is not in the fingerprint of the files that exist.
        if (
            held is not None
            and held[0] == candidate.fingerprint
            and (held[1] is None or not candidate.problem or held[1].problem == candidate.problem)
        ):
            found = held[1]
        else:
            found = describe(candidate)
        entries.append((candidate.key, candidate.fingerprint, found))
        if found is not None and on_found is not None:
            on_found(found)
    memory.save(remember_in, entries)
    watch.progress(1.0, "")
    return _sorted(found for _, _, found in entries if found is not None)


def _candidates(where: Places, control: Control) -> Iterator[Candidate]:
    for path in where.hub_caches:
        yield from hub_cache.candidates(path, control)
    for path in where.ollama:
        yield from ollama.candidates(path, control)
    for path in where.lmstudio:
        yield from lmstudio.candidates(path, control)
    for path in where.llamacpp:
        yield from llamacpp_cache.candidates(path, control)
    for path in where.folders:
        yield from walk.candidates(path, "folder", control)


def _sorted(models: Iterator[Found]) -> tuple[Found, ...]:
    return tuple(sorted(models, key=lambda found: (found.name.lower(), found.key)))
