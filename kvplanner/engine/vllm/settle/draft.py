"""Which draft model a plan of speculative decoding needs opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kvplanner.engine.option import OptionValue
from kvplanner.errors import BadInput

if TYPE_CHECKING:
    from kvplanner.engine.draft import DraftWish

_FLAG: Final = "--speculative-config"
_NGRAM: Final = ("ngram", "[ngram]")


def draft_wanted(options: Mapping[str, OptionValue]) -> DraftWish | None:
    """The draft model whose layers count, None for none. Raises BadInput where it must be named."""
    name, method = str(options.get("speculative_model") or "").strip(), options.get("speculative_method")
    if method == "draft_model" and not name:
        raise BadInput("method draft_model needs a draft model", _FLAG, 'Add its "model"')
    if not name or method not in (None, "", "draft_model") or name.lower() in _NGRAM:
        return None
    from kvplanner.engine.draft import DraftWish  # most plans have no draft, and a start none

    # An EAGLE head is known by its name, and sized by rule.
    return DraftWish(name, f"{_FLAG}.model", optional=not method and "eagle" in name.lower())
