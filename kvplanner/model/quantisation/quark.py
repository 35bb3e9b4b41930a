"""AMD Quark's exports: a format for the whole model, for kinds of layers and for single ones.

Sources: public configs of amd's repositories; the schemes that vLLM 0.33 recognises (layers/quantization/quark).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.errors import NotModelled
from kvplanner.model import formats
from kvplanner.model.config.fields import Fields, shown
from kvplanner.model.formats import WeightFormat
from kvplanner.model.quantisation.scheme import Rule, Scheme, name_rules, skips

_FLOAT8: Final = ("fp8_e4m3", "fp8_e5m2")
_SIX_BITS: Final = ("fp6_e3m2", "fp6_e2m3")


def quark(config: Fields) -> Scheme:
    """global_quant_config for all matrices, but what `exclude` names and `layer_quant_config` gives another."""
    whole = config.sub("global_quant_config")
    rules: list[Rule] = list(skips(config, "exclude"))
    layers = config.sub("layer_quant_config")
    for name in layers.values if layers is not None else ():
        own = layers.sub(name) if layers is not None else None
        format_ = _of(own) if own is not None else None
        rules += name_rules((name,), format_, config.named("layer_quant_config"))
    types = config.sub("layer_type_quant_config")
    linear = types.sub("Linear") if types is not None and types.has("Linear") else None
    chosen = linear or whole
    return Scheme("quark", _of(chosen) if chosen is not None else None, rules=tuple(rules), kv_cache=_cache(config))


def _of(settings: Fields) -> WeightFormat | None:
    """The format of `weight`, None where weights are not quantised. Two entries are two steps: the first packs."""
    _, value = settings.raw("weight")
    entries = value if isinstance(value, list) else [] if value is None else [value]
    fields = [Fields(e, settings.where, f"{settings.path}weight.") for e in entries if isinstance(e, Mapping)]
    if not fields:
        return None
    if len(fields) == 1:
        return _single(fields[0], static=_static(settings))
    kinds = {_dtype(f): f for f in fields}
    if "fp4" in kinds:
        return formats.NVFP4
    if "int4" in kinds:
        return WeightFormat("int4", 4, "channel", scale_bytes=4, extra_bytes=4)
    raise NotModelled(f"holds {shown(list(kinds))} together", settings.named("weight"), "Plan from the file headers")


def _dtype(fields: Fields) -> str:
    return (fields.text("dtype") or "").lower()


def _single(fields: Fields, static: bool) -> WeightFormat | None:
    dtype, how = _dtype(fields), fields.text("qscheme") or "per_tensor"
    group = fields.maybe("group_size", low=-1, high=1 << 16)
    if dtype in _FLOAT8:
        return _float8(fields, how, group, static)
    if dtype in ("bfloat16", "float16", "float32", ""):
        return None
    if dtype == "fp4":
        return formats.MXFP4 if group in (32, None) else formats.NVFP4
    if dtype in _SIX_BITS:
        return WeightFormat(f"mx{dtype}", 6, "group", scale_bytes=1, group=32)
    if dtype == "int8":
        return WeightFormat("int8", 8, "channel" if how == "per_channel" else "tensor", scale_bytes=4)
    if dtype in ("int4", "uint4"):
        symmetric = fields.flag("symmetric", default=dtype == "int4")
        return formats.quark_int4(group or -1, symmetric)
    raise NotModelled(f"is {shown(dtype)}", fields.named("dtype"), "Plan from the file headers")


def _float8(fields: Fields, how: str, group: int | None, static: bool) -> WeightFormat:
    if how == "per_channel":
        return formats.fp8_channel(4)
    exponents = fields.text("scale_type") == "float8_e8m0fnu" or fields.text("scale_format") == "e8m0"
    if how == "per_block":
        sizes = fields.ints("block_size", low=1, high=1 << 16)
        if sizes is None or len(sizes) != 2:
            raise fields.bad("block_size", "two block sizes")
        block = formats.fp8_block(*sizes)
        return block._replace(scale_bytes=1) if exponents else block
    if how == "per_group":
        return formats.MXFP8._replace(group=group or 32)
    return formats.fp8_tensor(static)


def _static(settings: Fields) -> bool:
    """Whether inputs have scales of their own in the file."""
    inputs = settings.raw("input_tensors")[1]
    if isinstance(inputs, list):
        inputs = inputs[0] if inputs else None
    return isinstance(inputs, Mapping) and inputs.get("is_dynamic") is False


def _cache(config: Fields) -> str | None:
    """FP8 where the outputs of the key and value projections are quantised to it."""
    settings = config.raw("kv_cache_quant_config")[1]
    return "fp8" if isinstance(settings, Mapping) and "fp8" in str(settings).lower() else None
