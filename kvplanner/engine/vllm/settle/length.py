"""The context length that a release derives from a config, and what flags change of it.

0.30 and later never multiply a YaRN model's length: max_position_embeddings holds it already (config/model.py; pull
request 56446 of 2026-09-11, which 0.29 does not have). Before, it was original_max_position_embeddings times the
factor, whatever the config's length.
`--rope-scaling` and `--hf-overrides` are understood as far as they change a length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm.settings import Version
from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.spec import ModelSpec
from kvplanner.record import NamedTuple

YARN_AS_STATED_SINCE: Final[Version] = (30, 0)
_LENGTHS: Final = ("max_position_embeddings", "model_max_length", "n_positions", "seq_length", "max_seq_len")
_ROPES: Final = ("rope_scaling", "rope_parameters")
_NESTED: Final = ("text_config", "language_config", "llm_config")
_HARMLESS: Final = ("rope_theta", "architectures")
# Fields that may be taken out of a config: dual chunk attention changes neither tensors nor cache.
_TAKEN_OUT: Final = ("dual_chunk_attention_config",)


class Length(NamedTuple):
    """limit: the longest that may be asked for, None when the config states none; start: where the default is less.

    why: what decides the limit, for people. assumed: the limit is of a model of the same shape, its own is not known.
    """

    limit: int | None
    start: int | None
    why: str
    assumed: bool = False


def derived(spec: ModelSpec, book: Book, version: Version) -> Length:
    """The model's length in a release. Raises BadInput for flags that are no JSON, NotModelled for other changes."""
    changes = _changes(spec, book)
    if changes:
        return _changed(spec, changes, version)
    if version < YARN_AS_STATED_SINCE and spec.yarn_context_length is not None:
        return Length(spec.yarn_context_length, None, "the original length times the YaRN factor")
    assumed = any(name.endswith("max_position_embeddings") for name in (*spec.assumed_fields, *spec.defaulted))
    why = "assumed: the model's own config was not read" if assumed else "the model's own limit"
    if spec.context_length is None:
        why = "no limit in the config"
    return Length(spec.context_length, spec.default_context_length, why, assumed and spec.context_length is not None)


def _changes(spec: ModelSpec, book: Book) -> dict[str, Any]:
    """What flags change of the config, by field."""
    changes: dict[str, Any] = {}
    overrides = _object(book.settle("hf_overrides", "", "none"), "--hf-overrides")
    for name, value in overrides.items():
        if name in _NESTED and isinstance(value, Mapping):
            changes |= value
        else:
            changes[name] = value
    scaling = _object(book.settle("rope_scaling", "", "none"), "--rope-scaling")
    if scaling:
        changes["rope_scaling"] = scaling
    for name in _TAKEN_OUT:
        if name in changes and changes[name] is None:
            del changes[name]
    for name in changes:
        if name not in (*_LENGTHS, *_ROPES, *_HARMLESS):
            raise NotModelled(f"it changes {name} of the model's config", "--hf-overrides",
                              "Give the changed config.json as the model")  # fmt: skip
    named = changes.pop("architectures", None)
    if named is not None and named != [spec.architecture]:
        raise NotModelled("it changes the model's architecture", "--hf-overrides",
                          "Give the changed config.json as the model")  # fmt: skip
    changes.pop("rope_theta", None)
    return changes


def _object(text: object, flag: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(str(text))
    except ValueError as error:
        raise BadInput(f"{str(text)[:80]!r} is not JSON", flag, "Write it as '{\"name\": value}'") from error
    if value is not None and not isinstance(value, dict):
        raise BadInput("is not a JSON object", flag, "Write it as '{\"name\": value}'")
    return value or {}


def _changed(spec: ModelSpec, changes: Mapping[str, Any], version: Version) -> Length:
    """The length with changed fields."""
    stated = next((changes[name] for name in _LENGTHS if name in changes), spec.stated_context_length)
    if stated is None:
        return Length(None, None, "no limit in the config")
    if not isinstance(stated, int) or isinstance(stated, bool) or stated < 1:
        raise BadInput(f"{str(stated)[:40]!r} is no length", "--hf-overrides", "Give a whole number of tokens")
    rope = next((changes[name] for name in _ROPES if isinstance(changes.get(name), Mapping)), None)
    if rope is None:
        unscaled = spec.context_length == spec.stated_context_length
        if not unscaled:
            raise NotModelled("the config's rope scaling applies to the changed length as well", "--hf-overrides",
                              "Give the changed config.json as the model")  # fmt: skip
        return Length(stated, None, "--hf-overrides")
    return _with_rope(stated, rope, version)


def _with_rope(stated: int, rope: Mapping[str, Any], version: Version) -> Length:
    """The length with rope settings of one's own."""
    from kvplanner.model.config.context import Rope, scaled  # what reads configs: no other plan needs it

    found = Rope.of(rope)
    if found is None:
        raise BadInput("the rope settings hold a factor that is no number", "--rope-scaling", "Correct the factor")
    if found.kind == "yarn" and version < YARN_AS_STATED_SINCE:
        if found.original is None or found.factor is None:
            raise BadInput("YaRN needs factor and original_max_position_embeddings", "--rope-scaling", "Give both")
        return Length(int(found.original * found.factor), None, "the original length times the YaRN factor")
    return Length(scaled(stated, (found,)), None, "the rope settings given")
