"""Integer weights: AWQ, GPTQ, AutoRound and bitsandbytes.

Sources: the configs of public repositories; what vLLM 0.33 reads of them (model_executor/layers/quantization:
auto_awq.py, auto_gptq.py with utils/gptq_utils.py, inc/).
"""

from __future__ import annotations

import re
from typing import Final

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model import formats
from kvplanner.model.config.fields import Fields, shown
from kvplanner.model.formats import WeightFormat
from kvplanner.model.quantisation.scheme import HEAD_TOO, LINEAR_KINDS, Rule, Scheme, name_rules, skips

# What GPTQModel may set for single modules.
_CHANGES: Final = frozenset({"bits", "group_size", "sym", "desc_act", "mse", "pack_dtype", "damp_percent"})
# A key of AutoRound's extra_config with one of these is an expression that may match anywhere in a name.
_EXPRESSION: Final = re.compile(r"[*+?^$()\[\]{}|\\]")


def awq(config: Fields) -> Scheme:
    """AWQ in the spelling of transformers or of AutoAWQ's first files (w_bit, q_group_size)."""
    bits = config.need("bits", "w_bit", low=2, high=8)
    group = config.need("group_size", "q_group_size", low=-1, high=1 << 16)
    zero_point = config.flag("zero_point", default=True)
    kinds = HEAD_TOO if config.flag("lm_head", default=False) else LINEAR_KINDS
    return Scheme("awq", formats.awq(bits, group, zero_point), kinds, skips(config, "modules_to_not_convert"))


def gptq(config: Fields) -> Scheme:
    """GPTQ, with GPTQModel's per-module overrides.

    "-:" leaves the modules that an expression matches alone; "+:", or no sign, changes their bits. Neither quantises
    what is not quantised anyhow: the head only with `lm_head`, embeddings never ("lm_head": {} changes nothing).
    """
    bits = config.need("bits", low=2, high=8)
    group = config.need("group_size", low=-1, high=1 << 16)
    kinds = HEAD_TOO if config.flag("lm_head", default=False) else LINEAR_KINDS
    dynamic = config.sub("dynamic")
    rules: list[Rule] = []
    for key in dynamic.values if dynamic is not None else ():
        where = config.named("dynamic")
        if key.startswith("-:"):
            rules += name_rules((f"re:{key[2:]}",), None, where)
            continue
        change = dynamic.sub(key) if dynamic is not None else None
        if change is None or (change.values and not _CHANGES.intersection(change.values)):
            raise BadInput(f"has no settings for {key[:60]!r}", where, "Expected an object with bits or group_size")
        own = formats.gptq(change.maybe("bits", low=2, high=8) or bits,
                           change.maybe("group_size", low=-1, high=1 << 16) or group)  # fmt: skip
        rules += name_rules((f"re:{key.removeprefix('+:')}",), own, where, kinds)
    rules += skips(config, "modules_to_not_convert")
    inside = _in_block(config)
    if inside:
        rules += name_rules((f"*{name}" for name in inside), formats.gptq(bits, group),
                            config.named("modules_in_block_to_quantize"), kinds)  # fmt: skip
        return Scheme("gptq", None, kinds, tuple(rules), traits=_order(config, group))
    return Scheme("gptq", formats.gptq(bits, group), kinds, tuple(rules), traits=_order(config, group))


def _order(config: Fields, group: int) -> tuple[str, ...]:
    return ("act-order",) if config.flag("desc_act", default=False) and group > 0 else ()


def _in_block(config: Fields) -> tuple[str, ...]:
    """The modules of a layer that alone are quantised, as GPTQ's makers list them: one by one or in groups."""
    _, value = config.raw("modules_in_block_to_quantize")
    if value is None:
        return ()
    held = value if isinstance(value, list | tuple) else [None]
    names = [name for item in held for name in (item if isinstance(item, list | tuple) else [item])]
    if not all(isinstance(name, str) for name in names):
        raise config.bad("modules_in_block_to_quantize", "a list of names")
    return tuple(str(name) for name in names)


def moe_wna16(config: Fields) -> Scheme:
    """vLLM's own wrapper of GPTQ and AWQ checkpoints, whose experts run in 4 or 8 bits with 16-bit activations."""
    bits = config.need("weight_bits", "bits", low=2, high=8)
    group = config.need("group_size", low=-1, high=1 << 16)
    config.skip("full_config")
    awq_like = "awq" in (config.text("linear_quant_method") or "gptq")
    form = formats.awq(bits, group, config.flag("has_zp", default=False)) if awq_like else formats.gptq(bits, group)
    kinds = HEAD_TOO if config.flag("lm_head_quantized", default=False) else LINEAR_KINDS
    return Scheme("awq" if awq_like else "gptq", form, kinds, skips(config, "modules_to_not_convert"))


def auto_round(config: Fields) -> Scheme:
    """AutoRound (Intel Neural Compressor): integers, block FP8, or the MX and NV floats of its `data_type`.

    `extra_config` gives single modules other bits, by name or by expression; 16 bits and more leave them alone.
    """
    default = _round_format(config, config)
    extra = config.sub("extra_config")
    rules: list[Rule] = []
    for name in extra.values if extra is not None else ():
        change = extra.sub(name) if extra is not None else None
        if change is None or change.maybe("bits", low=2, high=32) is None:
            continue
        own = None if change.need("bits", low=2, high=32) > 8 else _round_format(change, config)
        rules += name_rules((f"re:.*{name}" if _EXPRESSION.search(name) else name,), own, config.named("extra_config"))
    blocks = config.raw("block_name_to_quantize", "to_quant_block_names")[1]
    if blocks is not None and "mtp" not in str(blocks):
        rules += name_rules(("mtp",), None, config.named("block_name_to_quantize"))
    return Scheme("auto-round", default, rules=tuple(rules))


def _round_format(own: Fields, whole: Fields) -> WeightFormat:
    """The format that AutoRound's settings name; what a module's own leave out is the whole's."""
    fields = {name: own if own.has(name) else whole for name in ("data_type", "bits", "group_size")}
    kind = fields["data_type"].text("data_type") or "int"
    bits = fields["bits"].need("bits", low=2, high=8)
    if kind in ("fp", "fp8", "fp8_e4m3") and bits == 8:
        blocks = fields["group_size"].raw("group_size")[1]
        if isinstance(blocks, list | tuple):
            sizes = fields["group_size"].ints("group_size", low=1, high=1 << 16) or ()
            if len(sizes) != 2:
                raise fields["group_size"].bad("group_size", "two block sizes")
            return formats.fp8_block(*sizes)
        return formats.fp8_tensor(False) if blocks == 0 else formats.fp8_channel(4)
    group = fields["group_size"].need("group_size", low=-1, high=1 << 16)
    if kind.startswith("mx_fp"):
        return formats.MXFP8 if bits == 8 else formats.MXFP4
    if kind.startswith("nv_fp"):
        return formats.NVFP4
    if kind.startswith("int"):
        return formats.auto_round(bits, group)
    raise NotModelled(f"is {shown(kind)}, known are int, fp, mx_fp and nv_fp", own.named("data_type"),
                      "Plan from the file headers")  # fmt: skip


def bitsandbytes(config: Fields) -> Scheme:
    """4-bit with absmax per 64 values (double-quantised on request), or LLM.int8 with a scale per row."""
    rules = skips(config, "llm_int8_skip_modules")
    if config.flag("load_in_4bit", "_load_in_4bit", default=False):
        double = config.flag("bnb_4bit_use_double_quant", default=False)
        return Scheme("bitsandbytes", formats.bnb4(double), rules=rules, traits=("4-bit",))
    if not config.flag("load_in_8bit", "_load_in_8bit", default=False):
        raise config.missing("load_in_4bit", "load_in_8bit")
    return Scheme("bitsandbytes", formats.BNB8, rules=rules, traits=("8-bit",))
