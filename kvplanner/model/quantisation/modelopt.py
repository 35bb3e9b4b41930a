"""ModelOpt's exports: one algorithm for the model, or one for each module.

Sources: public hf_quant_config.json files; the algorithms that vLLM 0.33 lists (layers/quantization/modelopt.py), to
which FP8_BLOCK_SCALES is an older name of FP8_PB_WO.
"""

from __future__ import annotations

from typing import Final

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model import formats
from kvplanner.model.config.fields import Fields, shown
from kvplanner.model.formats import WeightFormat
from kvplanner.model.quantisation.scheme import Rule, Scheme, kv_cache, name_rules, skips

_ALGORITHMS: Final[dict[str, WeightFormat]] = {
    "FP8": formats.fp8_tensor(True), "FP8_PER_CHANNEL_PER_TOKEN": formats.fp8_channel(4),
    "FP8_PB_WO": formats.fp8_block(128, 128), "FP8_BLOCK_SCALES": formats.fp8_block(128, 128),
    "NVFP4": formats.NVFP4, "W4A16_NVFP4": formats.NVFP4, "NVFP4_AWQ": formats.NVFP4, "MXFP8": formats.MXFP8,
    "MXFP4": formats.MXFP4, "W4A16_MXFP4": formats.MXFP4, "W4A8_MXFP4_FP8": formats.MXFP4,
    "W4A16_AWQ": formats.awq(4, 128, False), "W4A8_AWQ": formats.awq(4, 128, False),
    "INT8_SQ": formats.INT8_CHANNEL, "W8A16": formats.INT8_CHANNEL,
}  # fmt: skip
# What engines call a checkpoint of one algorithm.
_NAMES: Final = {"NVFP4": "modelopt_fp4", "W4A16_NVFP4": "modelopt_fp4", "NVFP4_AWQ": "modelopt_fp4",
                 "MXFP8": "modelopt_mxfp8"}  # fmt: skip
_UNQUANTISED: Final = ("NONE", "W16A16")


def modelopt(config: Fields) -> Scheme:
    """ModelOpt's export inside config.json: quant_algo, exclude_modules or ignore, quantized_layers."""
    algo = config.text("quant_algo")
    if algo is None:
        inner = config.sub("quantization")
        if inner is None:
            raise config.missing("quant_algo")
        return modelopt(inner)
    algo = algo.upper()
    skip_repetition(config)
    rules = skips(config, "exclude_modules", "ignore")
    if algo == "MIXED_PRECISION":
        if not config.has("quantized_layers"):
            raise config.missing("quantized_layers")
        held = config.sub("quantized_layers")
        wrapped = any(name.startswith("model.language_model.") for name in (held.values if held is not None else ()))
        return Scheme("modelopt_mixed", None, rules=mapped(config) + rules, kv_cache=kv_cache(config),
                      traits=("mixed under a wrapper",) if wrapped else ())  # fmt: skip
    default = _format(algo, config.maybe("group_size", low=1, high=1 << 16), config)
    return Scheme(_NAMES.get(algo, "modelopt"), default, rules=rules, kv_cache=kv_cache(config), traits=(algo,))


def skip_repetition(config: Fields) -> None:
    """Marks what an export says once more in compressed-tensors' words as read."""
    groups = config.sub("config_groups")
    for key in groups.values if groups is not None else ():
        group = groups.sub(key) if groups is not None else None
        if group is not None:
            group.skip("targets")
            if group.sub("weights") is None:
                raise group.missing("weights")


def side_file(side: Fields) -> Scheme:
    """The scheme of hf_quant_config.json, which older exports have instead of an entry in config.json."""
    inner = side.sub("quantization")
    if inner is None:
        raise side.missing("quantization")
    return modelopt(inner)


def mapped(config: Fields) -> tuple[Rule, ...]:
    """`quantized_layers`: a format for each named module."""
    layers = config.sub("quantized_layers")
    if layers is None:
        return ()
    by_format: dict[tuple[str, int | None], list[str]] = {}
    for name in layers.values:
        entry = layers.sub(name)
        algo = entry.text("quant_algo") if entry is not None else None
        if entry is None or algo is None:
            raise BadInput(f"has no quant_algo for {name[:60]!r}", config.named("quantized_layers"),
                           "Expected one for each module")  # fmt: skip
        group = entry.maybe("group_size", low=1, high=1 << 16)
        by_format.setdefault((algo.upper(), group), []).append(name)
    return tuple(
        rule
        for (algo, group), names in by_format.items()
        for rule in name_rules(
            names, None if algo in _UNQUANTISED else _format(algo, group, config), config.named("quantized_layers")
        )
    )


def _format(algo: str, group: int | None, config: Fields) -> WeightFormat:
    """The format of an algorithm; a group size of its own where the algorithm has groups of 16-wide floats."""
    if algo not in _ALGORITHMS:
        raise NotModelled(f"is {shown(algo)}, known are {', '.join(sorted(_ALGORITHMS))}", config.named("quant_algo"),
                          "Plan from the file headers, or name a known one")  # fmt: skip
    found = _ALGORITHMS[algo]
    grouped = group is not None and ("NVFP4" in algo or "AWQ" in algo)
    return found._replace(group=group) if grouped and group is not None else found
