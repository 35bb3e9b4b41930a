"""What opening or dropping a path would do, said in a sentence before it is done."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from kvplanner.errors import PlannerError
from kvplanner.reading import is_folder
from kvplanner.record import NamedTuple

What = Literal["plan", "model", "projector", "adapter", "log", "command", "pack", "refused"]
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_MOST_LISTED = 2000
# A log, as rotation may have numbered and packed it: "server.log.1", "server.log.2.gz".
_LOG = re.compile(r"\.(?:log|txt|out|jsonl)(?:[.-]\d{1,8})?(?:\.(?:gz|bz2|xz))?$")
_STARTS = ("dockerfile", "modelfile", ".env")


class Opening(NamedTuple):
    """what: how to open it. sentence: what will happen, or why nothing can."""

    what: What
    sentence: str


def classify(path: Path) -> Opening:
    """What a file or folder is taken for, by its name and, for folders, by what lies in it."""
    name, suffix = path.name, path.suffix.lower()
    if is_folder(path):
        return _folder(path)
    if name.lower().endswith(".kvplan.json"):
        return Opening("plan", f"Open the plan {name}")
    if suffix == ".gguf" and (beside := _beside(path)) is not None:
        return beside
    if suffix in (".gguf", ".safetensors") or (suffix == ".json" and not name.startswith(".")):
        kind = "config" if suffix == ".json" else "model file"
        return Opening("model", f"Read the {kind} {name} and plan that model on the GPUs chosen now")
    if suffix in _PICKLES:
        return Opening("refused", f"{name} is a pickle, which can run code, so it is never opened. "
                       "Drop the folder with config.json, or safetensors or GGUF files")  # fmt: skip
    if _LOG.search(name.lower()):
        return Opening("log", f"Read the start-up log {name}: how far the server came, and why it failed")
    if suffix in (".yaml", ".yml", ".service", ".env", ".sh", ".py") or name.lower() in _STARTS:
        return Opening("command", f"Plan the server that {name} starts on the GPUs chosen now")
    from kvplanner.packfile import SUFFIX  # last: what reads packs takes 4 ms to import

    if suffix == SUFFIX:
        return Opening("pack", f"Check the data pack {name}, and add what it brings")
    return Opening("refused", f"{name} is no plan, config.json, safetensors or GGUF file")


def _beside(path: Path) -> Opening | None:
    """A GGUF file that is loaded beside a model, None for a model and for what cannot be read."""
    from kvplanner.source.gguf import header, model

    try:
        kind = model.kind_of(header.read_metadata(path, recipe=False))
    except PlannerError:
        return None
    if kind == "projector":
        return Opening(kind, f"Load the projector {path.name} beside the model that is planned")
    return (
        Opening(kind, f"Load the adapter {path.name} beside the model that is planned") if kind == "adapter" else None
    )


def _folder(path: Path) -> Opening:
    try:
        names = [entry.name for _, entry in zip(range(_MOST_LISTED), path.iterdir(), strict=False)]
    except OSError as error:
        return Opening("refused", f"{path.name} cannot be read: {error.strerror or error}")
    if "config.json" in names or any(name.endswith((".safetensors", ".gguf")) for name in names):
        return Opening("model", f"Read the model folder {path.name} and plan it on the GPUs chosen now")
    if any(name == "snapshots" for name in names):
        return Opening("model", f"Read the newest snapshot in {path.name} and plan it on the GPUs chosen now")
    return Opening("refused", f"{path.name} holds no config.json, safetensors or GGUF file")


def classify_text(text: str) -> Opening:
    """What a text that is dropped or pasted is taken for."""
    from kvplanner.request.pasted import is_log, starts_server

    if is_log(text):
        return Opening("log", "Read this start-up log: how far the server came, and why it failed")
    if starts_server(text):
        return Opening("command", "Plan what this starts on the GPUs chosen now")
    if "\n" in text.strip():
        return Opening("log", "Read this as a start-up log")
    return Opening("refused", "it is no command that starts a server, and no log")
