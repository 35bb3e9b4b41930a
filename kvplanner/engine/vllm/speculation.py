"""What --speculative-config comes to: the draft method and its tokens (config/speculative.py of vLLM 0.33)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kvplanner.engine.base import OptionValue
from kvplanner.errors import BadInput
from kvplanner.model.spec import ModelSpec

_FLAG: Final = "--speculative-config"
_METHODS: Final = "draft_model, eagle, eagle3 or mtp"
_NGRAM: Final = ("ngram", "[ngram]")
# Their prediction layers are a checkpoint of its own, the "assistant".
_ASSISTED: Final = "gemma4"


class Speculation(NamedTuple):
    """method None: no speculative decoding. inferred: why the method is what it is, "" when it was given."""

    method: str | None
    tokens: int
    inferred: str = ""


def speculation(options: Mapping[str, OptionValue], spec: ModelSpec, draft: ModelSpec | None) -> Speculation:
    """The method and tokens that the options stand for; draft: the draft model's layers when it could be opened.

    Raises BadInput (where = --speculative-config) for what the engine refuses and for a method that cannot be told.
    """
    method, model = str(options.get("speculative_method") or ""), str(options.get("speculative_model") or "")
    given = options.get("num_speculative_tokens")
    inferred = ""
    if not method and model:
        method = method_of(model, draft)
        inferred = f"from the draft model {model}"
    if not method:
        if given:
            raise BadInput(f"{given} tokens are to be drafted, and nothing drafts them", _FLAG,
                           "Add a method, for example mtp or ngram, or a draft model")  # fmt: skip
        return Speculation(None, 0)
    if method == "mtp" and spec.mtp_layers == 0 and not model and not spec.model_type.startswith(_ASSISTED):
        raise BadInput(f"{spec.architecture} has no multi-token-prediction layers for method mtp", _FLAG,
                       "Choose another method, or a checkpoint with such layers")  # fmt: skip
    tokens = 1 if given is None else int(given)
    if tokens < 1:
        raise BadInput(f"num_speculative_tokens={tokens} must be greater than zero", _FLAG, "Give 1 or more")
    return Speculation(method, tokens, inferred)


def method_of(model: str, draft: ModelSpec | None) -> str:
    """The method that the engine takes for a draft model without one: by its name, then by its architecture.

    Raises BadInput where neither tells.
    """
    name, architecture = model.lower(), draft.architecture.lower() if draft else ""
    if name in _NGRAM:
        return "ngram"
    if "eagle3" in name or "eagle3" in architecture:
        return "eagle3"
    if "eagle-" in name or "eagle" in architecture:
        return "eagle"
    if "mtp" in architecture:
        return "mtp"
    if draft is None or "medusa" in architecture or "speculator" in architecture:
        raise BadInput(f"how {model!r} drafts cannot be told", _FLAG, f'Add a "method": {_METHODS}')
    return "draft_model"
