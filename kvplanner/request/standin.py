"""A model that a command names by a path of another machine, found in the catalogue by the path's last parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from kvplanner.errors import PlannerError, UnknownName
from kvplanner.model.model import Model
from kvplanner.reading import expanded, is_there
from kvplanner.record import NamedTuple

_USUAL: Final = "Q4_K_M"  # what llama.cpp takes of a repository where no tag is given
_CACHED: Final = re.compile(r"models--([^/]+?)--([^/]+)")
_ENDING: Final = re.compile(r"(?:-\d{5}-of-\d{5})?\.(?:gguf|safetensors)$|/config\.json$", re.IGNORECASE)
_ROOTED: Final = re.compile(r"[/~]|\.{1,2}[/\\]|[A-Za-z]:[\\/]|\$")


def is_elsewhere(name: str) -> bool:
    """Whether a text can only be the path of a file or folder, and none lies there on this machine."""
    rooted = _ROOTED.match(name) is not None or bool(_ENDING.search(name))
    return rooted and not is_there(expanded(name))


def file_stem(path: str) -> str:
    """A file's own name without ending and number of its part: what says a model and its mix."""
    return _ENDING.sub("", path.replace("\\", "/").rpartition("/")[2])


class Standing(NamedTuple):
    """The model that stands in for one that is not here: its name, what to say, and the format that it is in."""

    model: str
    said: tuple[str, ...] = ()
    weight_format: str = ""


def of_store(name: str, store: str, opened: Callable[[str], Model]) -> Standing | None:
    """The model that a name of an engine's own store, or of a repository of GGUF files, stands for.

    store: what names of the store begin with here, "" for repositories. The store's own file comes first; where it is
    not here, the catalogue's model in the mix that the name says, or None.
    """
    from kvplanner.catalog import shared_names

    if store:
        try:
            opened(f"{store}{name}")
        except UnknownName:
            pass
        else:
            return Standing(f"{store}{name}")
    elif held := _file_here(name, opened):
        return Standing(held)
    found = shared_names.find(name)
    if found is None:
        return None
    where = "is not in Ollama's store on this machine" if store else "is not fetched here"
    mix = found.weight_format or "its own format"
    said = f"{name} {where}: planned as {found.model} in {mix}, by its name"
    return Standing(found.model, (said,), found.weight_format)


def _file_here(name: str, opened: Callable[[str], Model]) -> str:
    """A repository's file in this machine's caches: of the tag, else of the usual mix; "" for none."""
    for text in (name,) if ":" in name else (f"{name}:{_USUAL}", name):
        try:
            if opened(text).source_kind == "gguf":
                return text
        except PlannerError:
            continue
    return ""


def of_file(path: str) -> Standing | None:
    """The model that the name of a GGUF file of another machine tells together with its mix, None for none."""
    from kvplanner.catalog import shared_names

    found = shared_names.of_file(path)
    if found is None:
        return None
    mix = found.weight_format or "its own format"
    said = f"{path} is not on this machine: planned as {found.model} in {mix}, by its name"
    return Standing(found.model, (said,), found.weight_format)


def stand_in(name: str) -> str:
    """The catalogue's model that a path's last parts name, "" for none: "/models/org/name", "…/models--org--name/…"."""
    from kvplanner.catalog import models

    for part in _parts(name):
        try:
            return models.find(part).id
        except PlannerError:
            continue
    return ""


def _parts(name: str) -> Iterator[str]:
    """What may be a name, the surest first."""
    plain = _ENDING.sub("", name.replace("\\", "/")).rstrip("/")
    cached = _CACHED.search(plain)
    if cached is not None:
        yield f"{cached[1]}/{cached[2]}"
    parts = [part for part in plain.split("/") if part]
    if len(parts) > 1:
        yield "/".join(parts[-2:])
    if parts:
        yield parts[-1]
        yield parts[-1].replace("--", "/", 1)
        yield parts[-1].replace("_", "/", 1)
    # A revision or a plain word stands last: "…/Qwen3-8B/snapshots/0123abcd", "…/Qwen3-8B/hf".
    if len(parts) > 1:
        yield parts[-2]
    if len(parts) > 2 and parts[-2] == "snapshots":
        yield parts[-3]
