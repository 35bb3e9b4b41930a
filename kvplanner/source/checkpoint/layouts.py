"""Folders and files that stand for a model without being one: Git LFS pointers, the Hub's cache, training runs.

Layouts: git-lfs' pointer files (docs/spec.md, version 1); huggingface_hub 2.4's cache; transformers' Trainer, which
saves checkpoint-STEP folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kvplanner.errors import BadInput
from kvplanner.reading import file_size, first_line, is_file, read_whole
from kvplanner.units import format_parameters

_POINTER_BYTES: Final = 1024
_POINTER: Final = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[a-z0-9.-]+ [^\n]*\n)*?size (\d{1,18})\s*\n?", re.ASCII
)
_CHECKPOINT: Final = re.compile(r"checkpoint-(\d{1,12})")
_MOST_NAMED: Final = 6
# Folders that hold anybody's files: their names say nothing about a model.
_ANYWHERE: Final = frozenset({
    "downloads", "desktop", "documents", "tmp", "temp", "home", "root", "models", "model", "configs", "config", "data",
    "content", "workspace", "app", "",
})  # fmt: skip
_HUB_NAME: Final = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
GET_THEM: Final = "Run git lfs pull in the clone, or download the files"


def pointer_size(path: Path) -> int | None:
    """The size that a Git LFS pointer stands for, None for any other file."""
    size = file_size(path)
    if size is None or size > _POINTER_BYTES:
        return None
    try:
        match = _POINTER.match(read_whole(path, _POINTER_BYTES))
    except BadInput:
        return None
    return int(match[1]) if match else None


def refuse_pointer(path: Path) -> None:
    """Raises BadInput for a file that is only a Git LFS pointer."""
    size = pointer_size(path)
    if size is not None:
        raise BadInput(f"is a Git LFS pointer to {size:,} bytes, not the file itself", str(path), GET_THEM)


def inside(path: Path) -> tuple[Path, str]:
    """The folder of the model that a folder stands for, and what to say of that: the folder itself and "" for one.

    Raises BadInput where it stands for several models, naming them.
    """
    names = _folders(path)
    if "snapshots" in names and path.name.startswith("models--"):
        return _snapshot(path)
    cached = sorted(name for name in names if name.startswith("models--"))
    if cached:
        ids = [name.removeprefix("models--").replace("--", "/", 1) for name in cached]
        raise BadInput(f"is a Hub cache of {len(ids)} models, not a model", str(path), f"Name one: {_listed(ids)}")
    if path.name == "snapshots" and path.parent.name.startswith("models--"):
        return _snapshot(path.parent)
    steps = {int(match[1]): name for name in names if (match := _CHECKPOINT.fullmatch(name))}
    if steps and not _holds_a_model(path):
        last = steps[max(steps)]
        return path / last, f"Of {len(steps)} checkpoints in {path.name}, {last} is planned"
    return path, ""


def _snapshot(repository: Path) -> tuple[Path, str]:
    """The snapshot of a cached repository that its main branch names, else the only one."""
    held = sorted(_folders(repository / "snapshots"))
    main = first_line(repository / "refs" / "main")
    if main in held:
        return repository / "snapshots" / main, ""
    if len(held) == 1:
        return repository / "snapshots" / held[0], ""
    if not held:
        raise BadInput("is a cached repository without a snapshot", str(repository), "Download the model again")
    raise BadInput(f"holds {len(held)} snapshots, and no branch names one", str(repository / "snapshots"),
                   f"Name one: {_listed(held)}")  # fmt: skip


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _folders(path: Path) -> set[str]:
    try:
        with os.scandir(path) as entries:
            return {entry.name for _, entry in zip(range(20_000), entries, strict=False) if entry.is_dir()}
    except OSError:
        return set()


def _holds_a_model(path: Path) -> bool:
    return any(is_file(path / name) for name in ("config.json", "params.json", "adapter_config.json")) or any(
        path.glob("*.safetensors")
    )


def name_of(path: Path, config: Mapping[str, object], architecture: str, parameters: int) -> str:
    """What to call a model of which a config alone is there: by its place, and by its content where that says nothing.

    The file's own name, when it is not config.json; then the folder's, unless it is one for anything; then the name in
    the config, which is that of the model it was made from; then the architecture with the size.
    """
    if path.name not in ("config.json", "params.json"):
        return path.stem
    folder = path.absolute().parent.name
    if folder.lower() not in _ANYWHERE:
        return folder
    own = config.get("_name_or_path")
    if isinstance(own, str) and _HUB_NAME.fullmatch(own) and not own.startswith((".", "/")):
        return own
    return f"{architecture}, {format_parameters(parameters)}"
