"""What one prefill chunk works in, outside graphs and inside: no line of the log prints it, so the band is wide.

The tensors of one layer at once (models/*.py, layers/moe/fused_moe_triton): hidden states, projections, feed-forward
widths or the routed copies of experts; and logits in fp32. The engine's own rule of thumb is 1.5 MiB for each token of
a chunk (arg_groups/memory_hook.py), which bounds the band above.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.shared.identity import by_identity
from kvplanner.estimate import Estimate, Input, banded, exact
from kvplanner.model.spec import Attention, Mla, Mlp, ModelSpec, Moe, State
from kvplanner.units import MIB, round_up

_ELEMENT: Final = 2
_RULE_OF_THUMB: Final = 1.5 * MIB
_LOGITS: Final = 4
_PADDING: Final = 64


def step_tokens(settings: Settings) -> int:
    """Tokens of the largest prefill step on a rank."""
    return settings.chunk if settings.chunk > 0 else settings.max_prefill_tokens


@by_identity(64, lambda _, settings: settings.parallel)
def token_bytes(spec: ModelSpec, settings: Settings) -> int:
    """Bytes of one token in the widest layer of a rank."""
    tp, attention = settings.parallel.tp, settings.parallel.attention_tp
    hidden = 3 * spec.hidden_size
    mix = max((_mixer_width(m, attention) for layer in spec.layers for m in layer.mixers), default=0)
    feed = max((_feed_width(m, spec, tp) for layer in spec.layers for m in layer.mlps), default=0)
    return (hidden + max(mix, feed)) * _ELEMENT


def _mixer_width(mixer: object, ranks: int) -> int:
    if isinstance(mixer, Attention):
        return (2 * mixer.heads * mixer.head_size + 2 * mixer.kv_heads * mixer.head_size_v) // ranks
    if isinstance(mixer, Mla):
        heads = mixer.heads // ranks
        return heads * (2 * (mixer.qk_nope + mixer.qk_rope) + 2 * mixer.head_size_v) + mixer.kv_lora_rank
    if isinstance(mixer, State):
        return 4 * max(mixer.heads * mixer.head_size, mixer.channels) // ranks
    return 0


def _feed_width(mlp: Mlp | Moe, spec: ModelSpec, ranks: int) -> int:
    if isinstance(mlp, Mlp):
        return mlp.matrices * mlp.width // ranks
    shared = 3 * mlp.shared_width // ranks
    return mlp.top_k * (mlp.matrices * mlp.width // ranks + (mlp.hidden or spec.hidden_size)) + shared


def logits(spec: ModelSpec, settings: Settings, requests: int) -> int:
    """Bytes of a decoding step's logits in fp32, gathered over ranks."""
    rows = max(min(requests, settings.graphs.decode_max or requests), 1)
    return rows * round_up(spec.vocab_size, _PADDING) * _LOGITS


def eager(spec: ModelSpec, settings: Settings, requests: int) -> Estimate:
    """Bytes that a step takes beside its graphs.

    Where prefill graphs are captured, a chunk runs in their memory and little is left to take.
    """
    tokens, each = step_tokens(settings), token_bytes(spec, settings)
    chunk, rows = tokens * each, logits(spec, settings, requests)
    high = max(chunk + 2 * rows, round(tokens * _RULE_OF_THUMB))
    inputs = (
        Input("tokens of a chunk", tokens, "tokens", "--chunked-prefill-size"),
        Input("bytes of a token", each, "B", "the widest layer of a rank"),
        Input("logits", rows, "B", "rows of a decoding step × vocabulary × 4 bytes"),
    )
    if settings.graphs.prefill_backend != "disabled":
        part = chunk // 4
        formula = "{tokens of a chunk} × {bytes of a token} ÷ 4 + {logits}"
        return banded(part + rows, rows // 2, max(chunk + 2 * rows, part + rows), "analytic", formula, *inputs)
    formula = "{tokens of a chunk} × {bytes of a token} + {logits}"
    return banded(chunk + rows, chunk // 2, high, "analytic", formula, *inputs)


def late(settings: Settings) -> Estimate:
    """Kernels and buffers of the sampler that load with the first requests: 0.05 to 0.6 GiB (assumed)."""
    if settings.parallel.world < 1:
        return exact(0)
    value = 200 * MIB
    return banded(value, 50 * MIB, 600 * MIB, "assumed", "{late kernels}",
                  Input("late kernels", value, "B", "a rule of thumb: no log tells them"))  # fmt: skip
