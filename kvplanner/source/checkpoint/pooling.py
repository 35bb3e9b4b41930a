"""The longest sequence of a model that embeds or ranks, where the files beside its config state a shorter one.

Of pooling models vLLM takes no more than the tokenizer's model_max_length, and the max_seq_length that
sentence-transformers writes instead of either (config/model.py and transformers_utils/config.py, 0.33). RoBERTa's
tables have two positions more than a sequence may have tokens, which only those files say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvplanner import jsonfile
from kvplanner.errors import PlannerError
from kvplanner.model.model import Model
from kvplanner.reading import file_size

_SENTENCE: Final = tuple(
    f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta")
)
# Tokenizers without a limit state a number beyond any length.
_NO_LIMIT: Final = 1 << 40


def with_lengths(model: Model, folder: Path) -> Model:
    """The model with the length that its tokenizer or sentence-transformers state; as it is when it generates."""
    spec = model.spec
    if spec.task == "generate" or spec.context_length is None:
        return model
    stated = _length(folder / "tokenizer_config.json", "model_max_length")
    length = min(spec.context_length, stated or spec.context_length)
    source = "tokenizer_config.json"
    for name in _SENTENCE:
        found = _length(folder / name, "max_seq_length")
        if found is not None:
            length, source = found, name
            break
    if length == spec.context_length:
        return model
    said = (
        f"Sequences of up to {length:,} tokens, as {source} states; its config's own limit is {spec.context_length:,}"
    )
    return model._replace(spec=spec._replace(context_length=length), problems=(*model.problems, said))


def _length(path: Path, name: str) -> int | None:
    """A length of a file, None where there is no such file, or none that can be read."""
    if file_size(path) is None:
        return None
    try:
        value = jsonfile.read_object(path).get(name)
    except PlannerError:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _NO_LIMIT else None
