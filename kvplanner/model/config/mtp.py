"""Multi-token-prediction blocks: one more decoder layer, a projection that joins two inputs, and their norms.

Sizes and which files hold them: element counts of 48 public files. A config's count alone does not prove that
the weights are there: MiniMax-M2 and Kimi-K2 state blocks that their files do not hold.
"""

from __future__ import annotations

from collections.abc import Callable

from kvplanner.model.config.reading import Body, Mtp, Reading


def one_layer(
    field: str, *, copies: int = 0, default: int = 0, names: tuple[str, ...] = ("layers.{index}", "mtp.layers.{i}")
) -> Callable[[Reading, Body, int, int], Mtp | None]:
    """Blocks shaped like the last decoder layer, counted by `field`.

    copies: vocabulary matrices that each block stores again (2 in DeepSeek-V3 and GLM-4.5: embedding and head).
    default: blocks when the field is absent (Qwen3-Next stores one and states none).
    """

    def read(reading: Reading, last: Body, hidden: int, vocab: int) -> Mtp | None:
        blocks = reading.text.maybe(field, low=0, high=64)
        if blocks is None:
            reading.text.took_default(field)
        blocks = default if blocks is None else blocks
        if not blocks:
            return None
        parts = reading.parts
        extra = parts.linear("eh_proj", "other", hidden, 2 * hidden)
        for name in ("enorm", "hnorm", "shared_head.norm"):
            extra += parts.norm(name, hidden)
        for name in ("embed_tokens", "shared_head.head")[:copies]:
            extra.append(parts.tensor(name, "embedding", (vocab, hidden), "vocab"))
        return Mtp(last.tensors, tuple(extra), blocks, names)

    return read


def stated_only(*fields: str) -> Callable[[Reading, Body, int, int], None]:
    """Blocks that the config states and no public file holds."""

    def read(reading: Reading, last: Body, hidden: int, vocab: int) -> None:
        reading.text.skip(*fields)

    return read
