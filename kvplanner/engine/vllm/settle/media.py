"""What of the towers is used, and limits on images, videos and audio in a prompt (config/multimodal.py, vLLM 0.33)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from kvplanner.engine.option import OptionValue
from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm.settings import Multimodal
from kvplanner.errors import BadInput
from kvplanner.model.spec import ModelSpec
from kvplanner.units import GIB

_FLAG: Final = "--limit-mm-per-prompt"
_MOST_ITEMS: Final = 1 << 20
_KINDS: Final = {"vision": ("image", "video"), "audio": ("audio",)}


def limits(value: OptionValue | None) -> dict[str, int]:
    """Most items by kind, from JSON or the older "image=2,video=1"; {} for no limit. Raises BadInput."""
    text = "" if value is None else str(value).strip()
    if not text:
        return {}
    example = """Write for example '{"image": 2, "video": 0}'"""
    try:
        given = json.loads(text) if text.startswith("{") else dict(part.split("=", 1) for part in text.split(","))
        return {str(kind).strip(): _items(items) for kind, items in given.items()}
    except (ValueError, TypeError, RecursionError):
        raise BadInput(f"{text[:60]!r} is not a list of limits", _FLAG, example) from None


def _items(value: object) -> int:
    """A number of items, alone or as "count" beside sizes to profile with."""
    count = int(str(value.get("count", 999) if isinstance(value, Mapping) else value)[:20])
    if not 0 <= count <= _MOST_ITEMS:
        raise ValueError("not a number of items")
    return count


def takes_none(spec: ModelSpec, given: Mapping[str, int]) -> bool:
    """Whether no kind of item that the model's towers read is taken, so that no encoder is profiled.

    A kind that is not named keeps the model's own limit; images and videos share a tower.
    """
    kinds = {kind for tower in spec.towers for kind in _KINDS.get(tower.kind, ())}
    return bool(kinds) and all(given.get(kind) == 0 for kind in kinds)


def settle_multimodal(spec: ModelSpec, book: Book) -> Multimodal:
    """What of the towers is loaded, split and profiled. Raises BadInput for limits that are not read."""
    given = limits(book.settle("limit_mm_per_prompt", None, "the model's own"))
    none = takes_none(spec, given)
    skips = bool(book.settle("skip_mm_profiling", none, "no items are taken" if none else "off")) or none
    return Multimodal(
        language_model_only=bool(book.settle("language_model_only", False, "off")),
        skip_profiling=skips,
        tower_data_parallel=book.settle("mm_encoder_tp_mode", "weights", "split") == "data",
        ipc_bytes=round(float(book.settle("mm_ipc_gpu_memory_gb", 0.0, "none")) * GIB),
    )
