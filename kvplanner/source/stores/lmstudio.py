"""LM Studio's model folders: PUBLISHER/MODEL/FILE.gguf, or PUBLISHER/MODEL with config.json and safetensors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from kvplanner.errors import BadInput
from kvplanner.reading import expanded, read_whole
from kvplanner.source.stores.found import Candidate, Control
from kvplanner.source.stores.walk import in_folder


def roots(environment: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Where its models may be: the home that ~/.lmstudio-home-pointer names, ~/.lmstudio, the cache of old versions."""
    env = os.environ if environment is None else environment
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    found = [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    try:
        pointed = read_whole(home / ".lmstudio-home-pointer", 4096).decode("utf-8").strip()
    except (BadInput, UnicodeDecodeError):
        pointed = ""
    if pointed and "\0" not in pointed:
        found.insert(0, expanded(pointed) / "models")
    return tuple(dict.fromkeys(found))


def candidates(root: Path, control: Control) -> Iterator[Candidate]:
    """The models of one of its folders; files directly in the root are ignored, as LM Studio does."""
    for publisher in _folders(root):
        for folder in _folders(publisher):
            control.check()
            try:
                files = [entry.name for entry in os.scandir(folder)]
            except OSError:
                continue
            yield from in_folder(folder, files, "LM Studio", f"{publisher.name}/{folder.name}")


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return sorted(Path(entry.path) for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except OSError:
        return []
