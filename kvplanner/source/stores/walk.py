"""Finds models below a folder: depth and entries bounded, every folder once, whatever links there are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvplanner.source.checkpoint.folder import UNOPENED
from kvplanner.source.gguf.header import split_parts
from kvplanner.source.stores.found import Candidate, Control, Store, fingerprint
from kvplanner.units import counted

MAX_DEPTH: Final = 6
MAX_FOLDERS: Final = 50_000
_WEIGHTS: Final = (".safetensors", *UNOPENED)


def candidates(root: Path, store: Store, control: Control, depth: int = MAX_DEPTH) -> Iterator[Candidate]:
    """Model folders and GGUF files below `root`; unreadable folders are passed over."""
    seen: set[tuple[int, int]] = set()
    waiting = [(root, depth)]
    while waiting and len(seen) < MAX_FOLDERS:
        control.check()
        folder, left = waiting.pop()
        try:
            status = folder.stat()
            identity = (status.st_dev, status.st_ino)
            if identity in seen:
                continue
            seen.add(identity)
            files, folders = _entries(folder)
        except OSError:
            continue
        yield from in_folder(folder, files, store)
        if left > 0:
            waiting += [(folder / name, left - 1) for name in sorted(folders, reverse=True)]


def _entries(folder: Path) -> tuple[list[str], list[str]]:
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                (folders if entry.is_dir() else files).append(entry.name)
            except OSError:
                continue
    return files, folders


def in_folder(folder: Path, files: list[str], store: Store, name: str = "") -> Iterator[Candidate]:
    """The models that one folder's files make: a model folder, each GGUF file, each split set."""
    shown = name or folder.name
    weights = [file for file in files if file.endswith(_WEIGHTS)]
    if "config.json" in files and any(file.endswith(".safetensors") for file in weights):
        counted = [file for file in weights if file.endswith(".safetensors") and not file.startswith("consolidated")]
        yield _candidate(folder, [folder / file for file in ["config.json", *counted]], shown, store, "folder")
    elif "config.json" in files and weights:
        yield _candidate(folder, [folder / file for file in ["config.json", *weights]], shown, store, "folder")
    done: set[Path] = set()
    for file in sorted(files):
        path = folder / file
        if not file.lower().endswith(".gguf") or "mmproj" in file.lower() or path in done:
            continue
        parts = split_parts(path) or (path,)
        done.update(parts)
        stem = path.stem.rsplit("-", 3)[0] if len(parts) > 1 else path.stem
        label = f"{name}: {stem}" if name else stem
        yield _candidate(parts[0], list(parts), label, store, "gguf")


def has_tag(file: str, tag: str) -> bool:
    """Whether a GGUF file's name ends with a quantisation ("Q4_K_M"), as llama.cpp looks for it."""
    return re.search(rf"[-_.]{re.escape(tag)}(?:-\d{{5}}-of-\d{{5}})?\.gguf$", file, re.IGNORECASE) is not None


def _candidate(path: Path, files: list[Path], name: str, store: Store, kind: str) -> Candidate:
    mark, absent = fingerprint(files)
    of = f"of {len(files)}"
    missing = counted(absent, f"{of} files is", f"{of} files are")
    problem = f"{missing} missing: the download is incomplete" if absent else ""
    return Candidate(str(path), name, store, "gguf" if kind == "gguf" else "folder", path, mark, problem)
