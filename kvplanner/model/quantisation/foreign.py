"""Formats that none of the planned engines loads: their sizes, so that a file can be told for what it is.

Sources: the configs of mlx-community's and turboderp's repositories; transformers' list of quantisers (5.x).
"""

from __future__ import annotations

from kvplanner.errors import NotModelled
from kvplanner.model.config.fields import Fields
from kvplanner.model.formats import WeightFormat, mlx_packed
from kvplanner.model.quantisation.elsewhere import why_not
from kvplanner.model.quantisation.scheme import HEAD_TOO, VOCABULARY_TOO, Rule, Scheme, name_rules


def mlx(config: Fields) -> Scheme:
    """MLX: affine integers with a 16-bit scale and bias for each group, embeddings and head too; own bits by module."""
    bits = config.need("bits", low=2, high=8)
    group = config.need("group_size", low=16, high=1 << 16)
    rules: list[Rule] = []
    for name, own in config.values.items():
        if "." not in str(name):
            continue
        if own is False:
            rules += name_rules((name,), None, config.named(name))
        elif own is not None and own is not True:
            change = config.sub(name)
            if change is not None:
                form = mlx_packed(change.maybe("bits", low=2, high=8) or bits,
                                  change.maybe("group_size", low=16, high=1 << 16) or group)  # fmt: skip
                rules += name_rules((name,), form, config.named(name))
    return Scheme("mlx", mlx_packed(bits, group), VOCABULARY_TOO, tuple(rules))


def exllama(config: Fields) -> Scheme:
    """EXL2 and EXL3: so many bits a weight on average, the head in its own; the embedding stays in 16 bits."""
    method = config.text("quant_method") or "exl2"
    bits, head = config.number("bits"), config.number("head_bits")
    if bits is None or not 1 <= bits <= 8 or (head is not None and not 1 <= head <= 16):
        raise config.bad("bits", "1 to 8 bits a weight")
    kinds = HEAD_TOO if head is not None else HEAD_TOO - {"head"}
    rules = name_rules(("lm_head",), WeightFormat(method, head), config.named("head_bits")) if head else ()
    return Scheme(method, WeightFormat(method, bits), kinds, rules)


def unknown(method: str, config: Fields) -> NotModelled:
    """The error for a foreign method without a layout here."""
    return NotModelled(f"is {why_not(method)}", config.named("quant_method"), "Plan the model that it was made from")
