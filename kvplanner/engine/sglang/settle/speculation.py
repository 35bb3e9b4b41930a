"""Speculative decoding: what an algorithm name stands for, its draft tokens and the draft's layers.

arg_groups/speculative_hook.py (0.5.23).
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.settings import Speculation
from kvplanner.model.spec import ModelSpec

RUNNING: Final = 48  # requests at once, where none is set
# Other names of one algorithm.
_ALIASES: Final = {"NEXTN": "EAGLE", "MTP": "EAGLE"}
# Steps, candidates and draft tokens where none is set (_auto_choose_speculative_params).
_DEFAULT: Final = (3, 1, 4)
_WIDE: Final = (5, 4, 8)
_WIDE_FOR: Final = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
_WITH_CACHE: Final = ("EAGLE", "EAGLE3", "STANDALONE")


def speculation(
    spec: ModelSpec, draft: ModelSpec | None, *, algorithm: str, steps: int | None, topk: int | None,
    draft_tokens: int | None,
) -> Speculation:  # fmt: skip
    """The speculation that flags ask for; one without an algorithm where they ask for none."""
    if not algorithm:
        return Speculation()
    name = _ALIASES.get(algorithm.upper(), algorithm.upper())
    auto = _WIDE if spec.architecture in _WIDE_FOR and name != "STANDALONE" else _DEFAULT
    if steps is None:
        steps, topk, draft_tokens = auto
    topk = 1 if topk is None else topk
    if topk == 1 or draft_tokens is None:
        draft_tokens = steps + 1
    layers = draft.num_layers if draft is not None else spec.mtp_layers
    return Speculation(name, steps, topk, draft_tokens, layers if name in _WITH_CACHE else 0)
