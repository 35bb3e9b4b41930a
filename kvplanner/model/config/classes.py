"""What the configuration classes of transformers fill in: defaults of nested classes, and base model names.

A saved config leaves out the fields of a nested dictionary that equal its class's defaults. The table is made by
packaging/build_class_defaults.py and read only when a nested dictionary lacks a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kvplanner.files import shipped

_NOTHING: Final[Mapping[str, object]] = {}


@cache
def _table() -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(shipped("architectures", "classes.json").read_bytes())
    return found


def class_of(stated: str, holder: str, name: str) -> str:
    """The class of a dictionary `name` inside a config of type `holder`: the stated one, or the one that is meant.

    Some first releases state the holder's own type in the nested dictionary (Qwen2-VL).
    """
    if stated and stated != holder:
        return stated
    return str(_table()["nested"].get(holder, {}).get(name, stated))


def defaults_of(kind: str) -> Mapping[str, object]:
    """The defaults of a nested class, by its `model_type`; empty when it is not known."""
    found: Mapping[str, object] = _table()["defaults"].get(kind, _NOTHING)
    return found


def base_model(kind: str) -> str:
    """The model class that a config without `architectures` means, "" when there is none.

    vLLM takes transformers' base model of the `model_type` (transformers_utils/config.py, 0.33).
    """
    return str(_table()["bases"].get(kind, ""))


def is_known(name: str) -> bool:
    """Whether any class of the table has a field of this name."""
    return name in _names()


@cache
def _names() -> frozenset[str]:
    return frozenset(name for fields in _table()["defaults"].values() for name in fields)
