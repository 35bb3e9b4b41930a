"""llama.cpp's own download cache: GGUF files side by side. Builds since 2026 use the Hub's cache instead."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from kvplanner.reading import expanded
from kvplanner.source.stores.found import Candidate, Control
from kvplanner.source.stores.walk import has_tag, in_folder


def root(environment: Mapping[str, str] | None = None) -> Path:
    """LLAMA_CACHE, else the platform's cache folder for llama.cpp."""
    env = os.environ if environment is None else environment
    if env.get("LLAMA_CACHE"):
        return expanded(env["LLAMA_CACHE"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llama.cpp"
    if sys.platform == "win32" and env.get("LOCALAPPDATA"):
        return Path(env["LOCALAPPDATA"]) / "llama.cpp"
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llama.cpp"


def candidates(cache: Path, control: Control) -> Iterator[Candidate]:
    """The models of the cache."""
    control.check()
    try:
        files = [entry.name for entry in os.scandir(cache)]
    except OSError:
        return
    yield from (candidate for candidate in in_folder(cache, files, "llama.cpp") if candidate.kind == "gguf")


def find_file(repository: str, tag: str, environment: Mapping[str, str] | None = None) -> Path | None:
    """The cached file of "org/name" whose name has the tag: ORG_NAME_FILE.gguf; the first part of a split one."""
    cache, begin = root(environment), f"{repository.replace('/', '_')}_".lower()
    try:
        names = sorted(entry.name for entry in os.scandir(cache))
    except OSError:
        return None
    mine = (name for name in names if name.lower().startswith(begin) and "mmproj" not in name.lower())
    return next((cache / name for name in mine if has_tag(name, tag)), None)
