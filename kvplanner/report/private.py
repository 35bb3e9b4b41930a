"""What a report leaves out: paths of this machine, names of models that only it has, GPU identities."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kvplanner.errors import PlannerError
from kvplanner.model.model import Model

# A path of two parts or more, of POSIX or Windows; not the slash within a name such as "org/model" or a fraction.
_PATH: Final = re.compile(r"(?<![\w./:~$-])(?:~|[A-Za-z]:[\\/])?(?:[\\/][^\\/\s:,;()'\"<>|]+){2,}[\\/]?")
_WINDOWS: Final = re.compile(r"(?<!\w)[A-Za-z]:\\[^\s:,;()'\"<>|]+")
_IDENTITY: Final = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F-]{8,}\b")
_PUBLIC: Final = frozenset({"catalogue", "hub"})

T = TypeVar("T")


def public_name(model: Model) -> str:
    """What to call a model before strangers: its name where the catalogue has it, else what it is."""
    if model.source_kind in _PUBLIC:
        return model.id
    from kvplanner.catalog import models

    try:
        return models.find(model.id.replace("\\", "/").rstrip("/").rpartition("/")[2]).id
    except PlannerError:
        size = f", {model.parameters / 1e9:,.2f} B parameters" if model.parameters else ""
        return f"{model.spec.architecture}{size}"


def hider(*models: Model | None) -> Callable[[str], str]:
    """A function that leaves out of a text what is private, the names of these models among it."""
    names: dict[str, str] = {}
    for model in models:
        if model is None or (public := public_name(model)) == model.id:
            continue
        names |= {name: public for name in (model.source_detail, model.id, _last(model.id)) if len(name) > 2}

    def hide(text: str) -> str:
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, names[name])
        text = _WINDOWS.sub(lambda found: _last(found[0]), text)
        return _IDENTITY.sub("a GPU", _PATH.sub(lambda found: _last(found[0]), text))

    return hide


def _last(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def applied(hide: Callable[[str], str], value: T) -> T:
    """A frozen value of texts, tuples and named tuples with every text in it gone over."""
    found: Any = value
    if isinstance(found, str):
        found = hide(found)
    elif isinstance(found, tuple) and hasattr(found, "_make"):
        found = type(found)._make(applied(hide, item) for item in found)
    elif isinstance(found, tuple):
        found = tuple(applied(hide, item) for item in found)
    return found  # type: ignore[no-any-return]  # of the kind that was given
