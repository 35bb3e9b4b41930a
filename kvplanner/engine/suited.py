"""The engine to plan a model's files with where nobody named one, or where the one at hand does not load them."""

from __future__ import annotations

from kvplanner.engine.registry import engine
from kvplanner.engine.signature import signatures
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model

# Of Model.source_kind: files that are quantised by a method of their own, whatever their config says.
_METHODS = {"gguf": "gguf", "ollama": "gguf"}


def suited(model: Model, current: str, version: str | None = None, machine: Machine | None = None) -> str:
    """The name of the engine: the current one where it loads the model's files, else the one that they are made for."""
    method = _METHODS.get(model.source_kind, "")
    if not method or not engine(current).cannot_load(method, version, machine):
        return current
    of_store = (found.engine for found in signatures() if found.store.rstrip(":") == model.source_kind)
    usual = (found.engine for found in signatures() if method in found.usual)
    return next((name for names in (of_store, usual) for name in names), current)


def suited_name(text: str) -> str:
    """The engine that a model's name asks for by its looks ("a.gguf", "ollama:qwen3:8b"), "" where it asks for none."""
    plain = text.strip().lower()
    return next(
        (found.engine for found in signatures()
         if (found.store and plain.startswith(found.store)) or plain.endswith(found.files or ("\n",))), ""
    )  # fmt: skip
