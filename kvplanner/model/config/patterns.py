"""Which layer is what: every form in which configs say it, as one list of words per model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvplanner.errors import BadInput
from kvplanner.model.config.fields import Fields, need_length

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
CHUNKED: Final = "chunked_attention"
LINEAR: Final = "linear_attention"
DENSE: Final = "dense"
SPARSE: Final = "sparse"

Pattern = Callable[[Fields, int], tuple[str, ...]]


def all_full(fields: Fields, layers: int) -> tuple[str, ...]:
    """Every layer sees everything; a list that says so is checked."""
    given = fields.texts("layer_types", allowed=(FULL, "attention"))
    if given is not None:
        need_length(fields, "layer_types", given, layers)
    return (FULL,) * layers


def listed(fields: Fields, layers: int, *allowed: str) -> tuple[str, ...] | None:
    """`layer_types` as given, None when absent."""
    given = fields.texts("layer_types", allowed=allowed)
    if given is not None:
        need_length(fields, "layer_types", given, layers)
    return given


def optional_window(fields: Fields, layers: int) -> tuple[str, ...]:
    """Qwen2, Qwen3: sliding from layer `max_window_layers` on, only when `use_sliding_window` is true."""
    fields.skip("sliding_window", "max_window_layers")
    on = fields.flag("use_sliding_window", default=False)
    given = listed(fields, layers, FULL, SLIDING)
    if given is not None:
        return given
    if not on or not fields.has("sliding_window"):
        return (FULL,) * layers
    start = fields.need("max_window_layers", low=0)
    return tuple(FULL if i < start else SLIDING for i in range(layers))


def window_everywhere(fields: Fields, layers: int) -> tuple[str, ...]:
    """Mistral, Phi-3, StarCoder2: every layer slides when `sliding_window` is given and not null."""
    fields.noted("sliding_window")
    given = listed(fields, layers, FULL, SLIDING)
    if given is not None:
        return given
    return (SLIDING if fields.has("sliding_window") else FULL,) * layers


def mistral_window(fields: Fields, layers: int) -> tuple[str, ...]:
    """Mistral: as above, but a file that leaves the field out means its class default; null means none."""
    if "sliding_window" not in fields.values:
        fields.took_default("sliding_window")
        return listed(fields, layers, FULL, SLIDING) or (SLIDING,) * layers
    return window_everywhere(fields, layers)


def every(
    n: int, first: str = SLIDING, names: tuple[str, ...] = ("sliding_window_pattern", "_sliding_window_pattern")
) -> Pattern:
    """Full attention in each n-th layer, `first` elsewhere; `layer_types` or a pattern field of `names` wins."""

    def pattern(fields: Fields, layers: int) -> tuple[str, ...]:
        step = fields.maybe(*names, high=4096) or n
        given = listed(fields, layers, FULL, first)
        if given is not None:
            return given
        fields.took_default("layer_types")
        return tuple(FULL if (i + 1) % step == 0 else first for i in range(layers))

    return pattern


def full_first(n: int) -> Pattern:
    """Full attention in the first of each n layers, sliding in the others; `layer_types` wins."""

    def pattern(fields: Fields, layers: int) -> tuple[str, ...]:
        given = listed(fields, layers, FULL, SLIDING)
        if given is not None:
            return given
        fields.took_default("layer_types")
        return tuple(SLIDING if i % n else FULL for i in range(layers))

    return pattern


def alternating(fields: Fields, layers: int) -> tuple[str, ...]:
    """Gemma 2, gpt-oss: sliding on even layers, full on odd ones; `layer_types` wins."""
    given = listed(fields, layers, FULL, SLIDING)
    if given is None:
        fields.took_default("layer_types")
        given = tuple(SLIDING if i % 2 == 0 else FULL for i in range(layers))
    return given


def lettered(fields: Fields, layers: int) -> tuple[str, ...]:
    """EXAONE 4: `sliding_window_pattern` as letters ("LLLG") or a number; no window means all full."""
    name, value = fields.raw("sliding_window_pattern")
    given = listed(fields, layers, FULL, SLIDING)
    if given is not None:
        return given
    if not fields.has("sliding_window"):
        return (FULL,) * layers
    if isinstance(value, str) and value and set(value) <= {"L", "G"}:
        return tuple(SLIDING if value[i % len(value)] == "L" else FULL for i in range(layers))
    step = fields.need(name or "sliding_window_pattern", high=1 << 16)
    return tuple(FULL if (i + 1) % step == 0 else SLIDING for i in range(layers))


def window_of(fields: Fields, pattern: tuple[str, ...], default: int | None = None) -> int | None:
    """The window of the sliding layers, None when there are none. Raises BadInput when it is not stated."""
    if SLIDING not in pattern:
        fields.skip("sliding_window")
        return None
    window = fields.maybe("sliding_window")
    if window is None and default is not None:
        fields.took_default("sliding_window")
        return default
    return window if window is not None else fields.need("sliding_window")


# --- feed-forward kinds ---------------------------------------------------------------------------


def all_dense(fields: Fields, layers: int) -> tuple[str, ...]:
    """No experts."""
    return (DENSE,) * layers


def all_sparse(fields: Fields, layers: int) -> tuple[str, ...]:
    """Experts in every layer."""
    return (SPARSE,) * layers


def after_first(default: int | None = None, name: str = "first_k_dense_replace") -> Pattern:
    """DeepSeek, GLM, Kimi: the first k layers are dense; `mlp_layer_types` or a 0/1 list wins."""

    def pattern(fields: Fields, layers: int) -> tuple[str, ...]:
        typed = fields.texts("mlp_layer_types", allowed=(DENSE, SPARSE))
        per_layer = _frequency(fields, layers)
        k = fields.maybe(name, low=0, high=1 << 16)
        if typed is not None:
            need_length(fields, "mlp_layer_types", typed, layers)
            if k is not None and typed != _first_dense(k, layers):
                raise BadInput(
                    f"is {k}, but mlp_layer_types makes other layers dense",
                    fields.named(name),
                    "Check that the file is the model's own config.json",
                )
            return typed
        if isinstance(per_layer, tuple):
            return per_layer
        if k is None:
            if default is None:
                raise fields.missing(name, "mlp_layer_types")
            fields.took_default(name)
            k = default
        return tuple(SPARSE if i >= k and i % per_layer == 0 else DENSE for i in range(layers))

    return pattern


def _first_dense(k: int, layers: int) -> tuple[str, ...]:
    return tuple(DENSE if i < k else SPARSE for i in range(layers))


def _frequency(fields: Fields, layers: int) -> tuple[str, ...] | int:
    """`moe_layer_freq`: an interval, or one 0/1 per layer."""
    name, value = fields.raw("moe_layer_freq")
    if not name:
        return 1
    if isinstance(value, list | tuple):
        flags = fields.ints(name, high=1) or ()
        need_length(fields, name, flags, layers)
        return tuple(SPARSE if flag else DENSE for flag in flags)
    return fields.need(name)


def qwen_sparse(fields: Fields, layers: int) -> tuple[str, ...]:
    """Qwen2/3 MoE: experts in each `decoder_sparse_step`-th layer that `mlp_only_layers` does not name."""
    step = fields.get("decoder_sparse_step", default=1, high=1 << 16)
    only = frozenset(fields.ints("mlp_only_layers") or ())
    return tuple(SPARSE if i not in only and (i + 1) % step == 0 else DENSE for i in range(layers))


def interval(fields: Fields, layers: int) -> tuple[str, ...]:
    """ERNIE 4.5: experts from a first to a last layer, in each n-th of them."""
    first = fields.get("moe_layer_start_index", default=1, low=0, high=1 << 16)
    last = fields.maybe("moe_layer_end_index", low=-1, high=1 << 16)
    last = layers - 1 if last is None or last < 0 else last
    step = fields.get("moe_layer_interval", default=1, high=1 << 16)
    return tuple(SPARSE if first <= i <= last and (i + 1) % step == 0 else DENSE for i in range(layers))


def full_listed(fields: Fields, layers: int) -> tuple[str, ...]:
    """MiniMax-M2: `attn_type_list` holds ones; anything else would be another model."""
    kinds = fields.ints("attn_type_list", low=1, high=1)
    if kinds is not None:
        need_length(fields, "attn_type_list", kinds, layers)
    fields.skip("sliding_window")
    return (FULL,) * layers
