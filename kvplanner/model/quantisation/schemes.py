"""Quantisation configs of every form, read into one scheme: a default format, and rules for single modules.

Sources: the configs of public repositories; byte layouts as in `kvplanner.model.formats`, checked against
published byte totals where there are any (gpt-oss in mxfp4 and Kimi-K2.5 in int4 groups of 32: exact).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model import formats
from kvplanner.model.config.fields import Fields, shown
from kvplanner.model.formats import WeightFormat
from kvplanner.model.quantisation.names import Matcher, parse_name
from kvplanner.model.tensors import TensorKind

LINEAR_KINDS: Final[frozenset[TensorKind]] = frozenset({"attention", "state", "mlp", "experts"})
HEAD_TOO: Final[frozenset[TensorKind]] = LINEAR_KINDS | frozenset[TensorKind]({"head"})
EXPERT_KINDS: Final[frozenset[TensorKind]] = frozenset({"experts"})
# Far above any real list, and low enough that a hostile one costs seconds at most.
_MAX_NAMES: Final = 200_000
_MAX_PATTERNS: Final = 2000
_MAX_EXPRESSIONS: Final = 200


class Rule(NamedTuple):
    """What happens to the modules that a name covers. format None: they stay as they are.

    experts: how many experts of a layer the list named one by one, 0 when it named none.
    """

    matcher: Matcher
    format: WeightFormat | None
    experts: int = 0


class Scheme(NamedTuple):
    """name: as engines call it. default: of the matrices of `kinds` that no rule covers. The first rule wins.

    expert_format: of experts, where they differ from the default. kv_cache: what the checkpoint asks of the cache.
    """

    name: str
    default: WeightFormat | None
    kinds: frozenset[TensorKind] = LINEAR_KINDS
    rules: tuple[Rule, ...] = ()
    expert_format: WeightFormat | None = None
    kv_cache: str | None = None


def scheme_of(text: Fields, top: Fields, side: Mapping[str, object] | None) -> Scheme | None:
    """The scheme of a config, None for an unquantised model.

    side: the content of hf_quant_config.json, which older ModelOpt exports have instead of a config entry.
    Raises NotModelled for an unknown method or format, BadInput for a field that cannot be right.
    """
    config = None
    for fields in (top, text):
        config = config or fields.sub("quantization_config", "compression_config", "quantization")
    expert_dtype = text.text("expert_dtype", allowed=("fp4", "fp8"))
    if side is not None and (config is None or not config.has("quant_method")):
        return _from_side_file(Fields(side, f"{top.where} (hf_quant_config.json)", defaulted=top.defaulted))
    if config is None:
        return None
    method = config.text("quant_method", "quant_algo")
    if method is None:
        return _without_method(config)
    reader = _METHODS.get(method)
    if reader is None:
        raise NotModelled(
            f"is {shown(method)}, known are {', '.join(sorted(_METHODS))}", config.named("quant_method"),
            "Plan from the file headers, or name a known method",
        )  # fmt: skip
    scheme = reader(config)
    if expert_dtype == "fp4" and scheme.expert_format is None:
        return Scheme(scheme.name, scheme.default, scheme.kinds, scheme.rules, formats.MXFP4, scheme.kv_cache)
    return scheme


def _without_method(config: Fields) -> Scheme:
    """MLX ({bits, group_size}) and original AutoAWQ ({w_bit, q_group_size}) spell no method."""
    if config.has("w_bit"):
        return _awq(config)
    if config.has("bits") and config.has("group_size"):
        raise NotModelled("is in MLX's format, which no engine here loads", config.named("bits"),
                          "Plan the model that it was made from")  # fmt: skip
    raise config.missing("quant_method")


def _rules(fields: Fields, name: str, format_: WeightFormat | None) -> tuple[Rule, ...]:
    """Rules from a list of names; a boolean or null stands for no list."""
    return name_rules(fields.texts(name) or (), format_, fields.named(name))


def name_rules(names: Iterable[str], format_: WeightFormat | None, where: str) -> tuple[Rule, ...]:
    """One rule per name; experts that are named one by one become one rule that knows how many there were."""
    counted: dict[Matcher, int] = {}
    for at, name in enumerate(names):
        if at >= _MAX_NAMES:
            raise BadInput(f"has more than {_MAX_NAMES} names", where, f"Expected at most {_MAX_NAMES}")
        matcher = parse_name(name, where)
        single = "experts.0" in matcher.text and matcher.pattern is None and ".0." in f".{matcher.text}."
        counted[matcher] = counted.get(matcher, 0) + single
    patterns = sum(matcher.pattern is not None for matcher in counted)
    expressions = sum(matcher.text.startswith("re:") for matcher in counted) if patterns else 0
    if patterns > _MAX_PATTERNS or expressions > _MAX_EXPRESSIONS:
        raise BadInput(
            f"has {patterns} patterns, of them {expressions} regular expressions", where,
            f"Expected at most {_MAX_PATTERNS} and {_MAX_EXPRESSIONS}",
        )  # fmt: skip
    return tuple(Rule(matcher, format_, count) for matcher, count in counted.items())


def _skips(config: Fields, *names: str) -> tuple[Rule, ...]:
    return tuple(rule for name in names for rule in _rules(config, name, None))


def _fp8(config: Fields) -> Scheme:
    """FP8 in blocks, or with one scale per matrix; V4 exports also map single modules to NVFP4."""
    blocks = config.ints("weight_block_size", low=1, high=1 << 16)
    config.noted("weight_block_size")
    config.noted("activation_scheme")
    static = config.text("activation_scheme", allowed=("dynamic", "static")) == "static"
    if blocks is not None and len(blocks) != 2:
        raise config.bad("weight_block_size", "two block sizes")
    default = formats.fp8_block(*blocks) if blocks else formats.fp8_tensor(static)
    mapped = _mapped(config)
    skips = () if mapped else _skips(config, "modules_to_not_convert", "ignored_layers")
    return Scheme("fp8", default, rules=mapped + skips, kv_cache=_kv_cache(config))


def _fbgemm(config: Fields) -> Scheme:
    return Scheme("fbgemm_fp8", formats.fp8_channel(4), rules=_skips(config, "modules_to_not_convert"))


def _awq(config: Fields) -> Scheme:
    bits = config.need("bits", "w_bit", low=2, high=8)
    group = config.need("group_size", "q_group_size", low=-1, high=1 << 16)
    zero_point = config.flag("zero_point", default=True)
    return Scheme("awq", formats.awq(bits, group, zero_point), rules=_skips(config, "modules_to_not_convert"))


def _gptq(config: Fields) -> Scheme:
    """GPTQ, with GPTQModel's per-module overrides: "+:" changes a module's bits, "-:" leaves it alone."""
    bits = config.need("bits", low=2, high=8)
    group = config.need("group_size", low=-1, high=1 << 16)
    dynamic = config.sub("dynamic")
    rules: list[Rule] = []
    for key in dynamic.values if dynamic is not None else ():
        where = config.named("dynamic")
        if key.startswith("-:"):
            rules += name_rules((f"re:{key[2:]}",), None, where)
            continue
        change = dynamic.sub(key) if dynamic is not None else None
        if change is None:
            raise BadInput(f"has no settings for {key[:60]!r}", where, "Expected an object with bits or group_size")
        own = formats.gptq(change.maybe("bits", low=2, high=8) or bits,
                           change.maybe("group_size", low=-1, high=1 << 16) or group)  # fmt: skip
        rules += name_rules((f"re:{key.removeprefix('+:')}",), own, where)
    kinds = HEAD_TOO if config.flag("lm_head", default=False) else LINEAR_KINDS
    skips = _skips(config, "modules_to_not_convert")
    return Scheme("gptq", formats.gptq(bits, group), kinds, (*rules, *skips))


def _auto_round(config: Fields) -> Scheme:
    """AutoRound: packed integers without an order index; `extra_config` gives single modules other bits."""
    bits = config.need("bits", low=2, high=8)
    group = config.need("group_size", low=-1, high=1 << 16)
    config.expect("data_type", "int")
    extra = config.sub("extra_config")
    rules: list[Rule] = []
    for name in extra.values if extra is not None else ():
        change = extra.sub(name) if extra is not None else None
        own = change.maybe("bits", low=2, high=32) if change is not None else None
        if own is not None and change is not None:
            size = change.maybe("group_size", low=-1, high=1 << 16) or group
            form = formats.auto_round(own, size) if own <= 8 else None
            rules += name_rules((name,), form, config.named("extra_config"))
    return Scheme("auto-round", formats.auto_round(bits, group), rules=tuple(rules))


def _mxfp4(config: Fields) -> Scheme:
    """gpt-oss: experts only."""
    return Scheme("mxfp4", formats.MXFP4, EXPERT_KINDS, _skips(config, "modules_to_not_convert"))


def _bitsandbytes(config: Fields) -> Scheme:
    """4-bit with absmax per 64 values (double-quantised on request), or LLM.int8 with a scale per row."""
    skips = _skips(config, "llm_int8_skip_modules")
    if config.flag("load_in_4bit", "_load_in_4bit", default=False):
        double = config.flag("bnb_4bit_use_double_quant", default=False)
        return Scheme("bitsandbytes", formats.bnb4(double), rules=skips)
    if not config.flag("load_in_8bit", "_load_in_8bit", default=False):
        raise config.missing("load_in_4bit", "load_in_8bit")
    return Scheme("bitsandbytes", formats.BNB8, rules=skips)


def _compressed_tensors(config: Fields) -> Scheme:
    """config_groups: each says bits, kind and strategy for its targets ("Linear", or module names)."""
    groups = config.sub("config_groups")
    if groups is None:
        raise config.missing("config_groups")
    skips = _skips(config, "ignore")
    default: WeightFormat | None = None
    rules: list[Rule] = []
    for key in groups.values:
        group = groups.sub(key)
        if group is None:
            continue
        weights = group.sub("weights")
        if weights is None:
            raise group.missing("weights")
        name = group.text("format") or config.text("format") or ""
        format_ = _weights_format(weights, name, group.has("input_activations"), group)
        targets = group.texts("targets") or ("Linear",)
        if "Linear" in targets:
            default = format_
        rules += name_rules((t for t in targets if t != "Linear"), format_, group.named("targets"))
    if not groups.values:
        raise config.bad("config_groups", "at least one group")
    return Scheme("compressed-tensors", default, rules=(*skips, *rules), kv_cache=_kv_cache(config))


def _weights_format(weights: Fields, packing: str, activations: bool, group: Fields) -> WeightFormat:
    """The format of one group's weights."""
    bits = weights.need("num_bits", low=2, high=16)
    kind = weights.text("type", allowed=("int", "float")) or "int"
    for name in ("type", "group_size", "strategy"):
        weights.noted(name)
    size = weights.maybe("group_size", low=-1, high=1 << 16)
    strategy = weights.text("strategy", allowed=("tensor", "channel", "group", "tensor_group", "block", "token"))
    if kind == "float" and bits == 4:
        return formats.MXFP4 if packing.startswith("mxfp4") or size == 32 else formats.NVFP4
    if kind == "float" and bits == 8:
        return _float8(weights, strategy, size, activations)
    if kind == "int" and bits == 8 and (strategy in (None, "channel", "tensor") or not size or size < 0):
        return formats.INT8_CHANNEL
    if kind == "int":
        symmetric = weights.flag("symmetric", default=True)
        return formats.int_packed(bits, size if size and size > 0 else 0, symmetric)
    raise NotModelled(f"asks for {bits}-bit {kind} weights", group.named("weights"), "Plan from the file headers")


def _float8(weights: Fields, strategy: str | None, size: int | None, activations: bool) -> WeightFormat:
    if strategy == "block":
        blocks = weights.ints("block_structure", low=1, high=1 << 16)
        if blocks is None or len(blocks) != 2:
            raise weights.missing("block_structure")
        return formats.fp8_block(*blocks)
    if size == 32:
        return formats.MXFP8
    return formats.fp8_channel(2) if strategy == "channel" else formats.fp8_tensor(activations)


def _modelopt(config: Fields) -> Scheme:
    """ModelOpt's export inside config.json: quant_algo, exclude_modules or ignore, quantized_layers."""
    algo = config.text("quant_algo")
    if algo is None:
        inner = config.sub("quantization")
        if inner is None:
            raise config.missing("quant_algo")
        return _modelopt(inner)
    skips = _skips(config, "exclude_modules", "ignore")
    if algo == "MIXED_PRECISION":
        if not config.has("quantized_layers"):
            raise config.missing("quantized_layers")
        return Scheme("modelopt_mixed", None, rules=_mapped(config) + skips, kv_cache=_kv_cache(config))
    name = "modelopt_fp4" if "NVFP4" in algo else "modelopt"
    return Scheme(name, _algo_format(algo, config), rules=skips, kv_cache=_kv_cache(config))


def _from_side_file(side: Fields) -> Scheme:
    inner = side.sub("quantization")
    if inner is None:
        raise side.missing("quantization")
    return _modelopt(inner)


def _mapped(config: Fields) -> tuple[Rule, ...]:
    """`quantized_layers`: a format for each named module."""
    layers = config.sub("quantized_layers")
    if layers is None:
        return ()
    by_algo: dict[str, list[str]] = {}
    for name in layers.values:
        entry = layers.sub(name)
        algo = entry.text("quant_algo") if entry is not None else None
        if algo is None:
            raise BadInput(f"has no quant_algo for {name[:60]!r}", config.named("quantized_layers"),
                           "Expected one for each module")  # fmt: skip
        by_algo.setdefault(algo, []).append(name)
    return tuple(
        rule
        for algo, names in by_algo.items()
        for rule in name_rules(names, _algo_format(algo, config), config.named("quantized_layers"))
    )


def _algo_format(algo: str, config: Fields) -> WeightFormat:
    known = {
        "FP8": formats.fp8_tensor(True), "NVFP4": formats.NVFP4, "W4A16_NVFP4": formats.NVFP4,
        "NVFP4_AWQ": formats.NVFP4, "MXFP8": formats.MXFP8, "FP8_PER_CHANNEL_PER_TOKEN": formats.fp8_channel(4),
        "FP8_PB_WO": formats.fp8_block(128, 128), "W4A16_MXFP4": formats.MXFP4, "MXFP4": formats.MXFP4,
        "W4A16_AWQ": formats.awq(4, 128, False),
    }  # fmt: skip
    if algo not in known:
        raise NotModelled(f"is {shown(algo)}, known are {', '.join(sorted(known))}", config.named("quant_algo"),
                          "Plan from the file headers, or name a known one")  # fmt: skip
    return known[algo]


def _kv_cache(config: Fields) -> str | None:
    """What the checkpoint asks of the KV cache: "fp8", "nvfp4" or nothing."""
    name, value = config.raw("kv_cache_scheme", "kv_cache_quant_algo")
    if isinstance(value, Mapping):
        bits = value.get("num_bits")
        if bits == 8:
            return "fp8"
        if bits == 4:
            return "nvfp4"
    elif isinstance(value, str) and value.upper() in ("FP8", "NVFP4"):
        return value.lower()
    elif value is None:
        return None
    raise config.bad(name, 'an 8-bit or 4-bit scheme, "FP8" or "NVFP4"')


_METHODS: Final[dict[str, Callable[[Fields], Scheme]]] = {
    "fp8": _fp8, "fbgemm_fp8": _fbgemm, "awq": _awq, "gptq": _gptq, "gptq_marlin": _gptq, "awq_marlin": _awq,
    "auto-round": _auto_round, "intel/auto-round": _auto_round,
    "mxfp4": _mxfp4, "bitsandbytes": _bitsandbytes, "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt, "modelopt_fp4": _modelopt, "modelopt_mixed": _modelopt,
    "FP8": _modelopt, "NVFP4": _modelopt, "MIXED_PRECISION": _modelopt,
}  # fmt: skip
