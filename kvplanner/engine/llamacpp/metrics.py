"""What llama-server says of itself: its metrics page (--metrics), and its slots (GET /slots, unless --no-slots).

tools/server of llama.cpp, 2023 to 2026. The metrics page had the cache's fill until June 2025; since then the slots
alone tell how many tokens they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvplanner.engine.serving import Held, MetricNames

_MOST: Final = 1 << 40
_SLOTS: Final = ("-np", "--parallel")
_SHARED: Final = ("-kvu", "--kv-unified")
_OWN: Final = ("-no-kvu", "--no-kv-unified")


def of_slots(page: object, command: Sequence[str]) -> Held | None:
    """The cells that slots hold: of the prompt what was found and what was computed, and each token since then.

    Slots of a shared cache each say the whole of it, others their own part.
    """
    if not isinstance(page, list) or not all(isinstance(slot, Mapping) and "n_ctx" in slot for slot in page):
        return None
    used = sum(min(_held(slot), _count(slot, "n_ctx")) for slot in page)
    sizes = [_count(slot, "n_ctx") for slot in page]
    shared = _shares(command) if len(page) > 1 else False
    tokens = None if shared is None else max(sizes, default=0) if shared else sum(sizes)
    busy = sum(slot.get("is_processing") is True for slot in page)
    said = f"{busy} of {len(page)} slots work"
    if tokens is None:
        said += f" · ≈ {used:,} tokens held, {max(sizes, default=0):,} a slot at most"
    return Held(tokens, used if tokens is not None else None, busy, (), said)


def _held(slot: Mapping[str, object]) -> int:
    made = slot.get("next_token")
    last = made[0] if isinstance(made, list) and made else made
    decoded = _count(last, "n_decoded") if isinstance(last, Mapping) else 0
    if "n_prompt_tokens_cache" in slot:
        return _count(slot, "n_prompt_tokens_cache") + _count(slot, "n_prompt_tokens_processed") + decoded
    return _count(slot, "n_past") or _count(slot, "n_prompt_tokens") + decoded


def _count(slot: Mapping[str, object], name: str) -> int:
    value = slot.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else 0


def _shares(command: Sequence[str]) -> bool | None:
    """Whether slots share one cache, None where nothing is known of the command: they do where nobody counts them."""
    if not command:
        return None
    names = [word.partition("=")[0] for word in command]
    for name in reversed(names):
        if name in _SHARED or name in _OWN:
            return name in _SHARED
    return not any(name in _SLOTS for name in names)


METRICS: Final = MetricNames(
    engine="llamacpp",
    title="llama-server",
    prefix="llamacpp:",
    share=("llamacpp:kv_cache_usage_ratio",),
    used=("llamacpp:kv_cache_tokens",),
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
    state=("/slots", of_slots),
)
