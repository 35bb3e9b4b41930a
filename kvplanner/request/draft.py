"""The draft model of speculative decoding: whether its layers count, and what it means when it cannot be opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kvplanner.engine.option import OptionValue
from kvplanner.errors import BadInput, PlannerError
from kvplanner.model.model import Model

MODEL_OPTION: Final = "speculative_model"
METHOD_OPTION: Final = "speculative_method"
_FLAG: Final = "--speculative-config"
_NGRAM: Final = ("ngram", "[ngram]")


def wanted(options: Mapping[str, OptionValue]) -> str:
    """The name of the draft model that a plan needs opened, "" for none. Raises BadInput where it must be named."""
    name, method = str(options.get(MODEL_OPTION) or "").strip(), options.get(METHOD_OPTION)
    if method == "draft_model" and not name:
        raise BadInput("method draft_model needs a draft model", _FLAG, 'Add its "model"')
    if method not in (None, "", "draft_model") or name.lower() in _NGRAM:
        return ""
    return name


def open_draft(options: Mapping[str, OptionValue], open_model: Callable[[str], Model]) -> Model | None:
    """The draft model where its layers count, else None.

    Raises BadInput, naming the flag, where it is not named or cannot be opened and the method cannot be told without.
    """
    name = wanted(options)
    if not name:
        return None
    try:
        return open_model(name)
    except PlannerError as error:
        if not options.get(METHOD_OPTION) and "eagle" in name.lower():
            return None  # an EAGLE head is told by its name, and sized by rule
        raise BadInput(
            f"the draft model cannot be opened: {error.what}", f"{_FLAG}.model", error.remedy or "Name another one"
        ) from error
