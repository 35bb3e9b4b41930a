"""What a person calls a model, opened: a catalogue id, a folder, a file, a store's name or the Hub's."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from kvplanner.errors import BadInput, UnknownName
from kvplanner.model.model import Model
from kvplanner.printable import printable
from kvplanner.reading import expanded, is_file, is_folder, is_there, open_file, unreadable
from kvplanner.source.stores.found import Control

_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_SUFFIXES: Final = (".json", ".safetensors", ".gguf", *_PICKLES)
# The page of a model on the Hub, as pasted from a browser.
_PAGE: Final = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([^/\s?#]+/[^/\s?#]+)(?:[/?#]\S*)?")

# A file of a repository by its quantisation, as llama.cpp and Ollama name it.
_TAGGED: Final = re.compile(r"([^/:\s]+/[^/:\s]+):([\w.-]+)")


def open_model(text: str, *, allow_network: bool = False, control: Control | None = None) -> Model:
    """The model that `text` names.

    Accepts a catalogue id, a folder, config.json, *.safetensors, *.gguf, "ollama:NAME", "hub:ORG/NAME[@REVISION]" and
    "ORG/NAME:Q4_K_M", a GGUF file by its tag;
    the address of a model's page on the Hub stands for its id, and opens nothing online.
    A folder or file wins over a catalogue id of the same spelling, as it does for the engines.
    allow_network: "hub:" may go online; everything else never does. control: told the progress of that, and raises
    to end it. The model's names are printable. Raises UnknownName (with near names), BadInput, NotModelled, HubError.
    """
    model = _named(text, allow_network, control)
    detail, problems = printable(model.source_detail), tuple(map(printable, model.problems))
    return model._replace(id=printable(model.id), source_detail=detail, problems=problems)


def _named(text: str, allow_network: bool, control: Control | None) -> Model:
    pasted = _PAGE.fullmatch(text.strip())
    name = pasted[1] if pasted else text.strip()
    if not name or "\0" in name or len(name) > 4096:
        raise BadInput("is not the name of a model", repr(text[:100]), "Name a catalogue id, a folder or a file")
    if name.startswith("ollama:"):
        from kvplanner.source.stores import ollama

        return ollama.open_model(name.removeprefix("ollama:"))
    if name.startswith("hub:"):
        from kvplanner.source.hub import open as hub

        return hub.open_model(name.removeprefix("hub:"), allow_network=allow_network, control=control)
    path = expanded(name)
    if looks_like_path(name) or _is_model(path):
        return open_path(path)
    return _by_name(name, path)


def looks_like_path(name: str) -> bool:
    """Whether a text can only be meant as a path."""
    starts = (".", "~", "/", os.sep, os.altsep or os.sep)
    return name.startswith(starts) or name.lower().endswith(_SUFFIXES) or (len(name) > 2 and name[1:3] in (":\\", ":/"))


def local_path(text: str, model: Model) -> str:
    """Where the model that `text` named lies on this machine, as its server opens it; "" for one known by name."""
    path = expanded(text)
    if model.source_kind == "catalogue" or not (looks_like_path(text) or is_there(path)):
        return ""
    found = Path(path).resolve()
    return str(found.parent if found.suffix in (".json", ".safetensors") else found)


def open_path(path: Path) -> Model:
    """The model in a folder or file, told by content where the suffix does not. Raises BadInput, NotModelled."""
    try:
        if path.is_dir():
            from kvplanner.source.checkpoint import opening

            return opening.open_folder(path)
    except OSError as error:
        raise unreadable(str(path), error) from error
    suffix = path.suffix.lower()
    if suffix in _PICKLES:
        raise BadInput(
            "a pickle file can run code when it is opened, so it is never opened", str(path),
            "Name the folder with its config.json, or a safetensors or GGUF file",
        )  # fmt: skip
    if suffix == ".json":
        return _open_json(path)
    if suffix == ".gguf":
        from kvplanner.source.checkpoint import layouts

        layouts.refuse_pointer(path)
    if suffix == ".gguf" or _starts(path, b"GGUF"):
        from kvplanner.source.gguf import model as gguf_model

        return gguf_model.open_gguf(path)
    if suffix == ".safetensors":
        from kvplanner.source.checkpoint import opening

        return opening.open_safetensors(path)
    raise BadInput("not a kind of file that is known", str(path), "Known: config.json, *.safetensors, *.gguf, a folder")


def _open_json(path: Path) -> Model:
    from kvplanner.source.checkpoint import opening

    if path.name.endswith(".safetensors.index.json"):
        return opening.open_folder(path.parent)
    return opening.open_config(path)


def _starts(path: Path, magic: bytes) -> bool:
    with open_file(path) as file:
        return file.size >= len(magic) and file.read(0, len(magic)) == magic


def _is_model(path: Path) -> bool:
    try:
        return is_folder(path) and (
            is_file(path / "config.json") or any(path.glob("*.safetensors")) or any(path.glob("*.gguf"))
        )
    except OSError:
        return False


def _by_name(name: str, path: Path) -> Model:
    """The model of this name, or what is wrong with the file or folder that is called so."""
    from kvplanner.catalog import models

    try:
        return models.load(models.find(name).id)
    except UnknownName as error:
        cached = _cached(name)
        if cached is not None:
            return cached
        if is_there(path):
            return open_path(path)
        from kvplanner.catalog import naming  # names that say a base and a format are seldom typed

        derived = naming.derive(name)
        if derived is not None:
            return derived
        asks = f", hub:{name} asks the Hub" if name.count("/") == 1 and " " not in name else ""
        if name.count(":") == 1 and "/" not in name:
            asks = f", ollama:{name} opens Ollama's"
        remedy = f"kvplanner models QUERY searches the bundled ones{asks}"
        raise UnknownName(error.what, error.where, error.near, remedy) from None


def _cached(name: str) -> Model | None:
    """The model of this Hub id, or of the file that its tag names, in the local caches; None when it is not there."""
    from kvplanner.source.hub import cache as hub_cache
    from kvplanner.source.stores import llamacpp

    tagged = _TAGGED.fullmatch(name)
    if tagged is not None:
        file = hub_cache.find_file(tagged[1], tagged[2]) or llamacpp.find_file(tagged[1], tagged[2])
        return open_path(file)._replace(id=name) if file is not None else None
    folder = hub_cache.find(name)
    return open_path(folder) if folder is not None else None
