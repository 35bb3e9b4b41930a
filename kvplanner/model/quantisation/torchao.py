"""torchao's configs: one for all linear layers, or one by module name.

Sources: torchao's own classes (quantization/quant_api.py and the tensor subclasses, 0.9 to 0.15), the forms that
vLLM 0.33 takes (layers/quantization/torchao.py). Older files name the method in one word ("int8_weight_only").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.errors import NotModelled
from kvplanner.model import formats
from kvplanner.model.config.fields import Fields, shown
from kvplanner.model.formats import WeightFormat
from kvplanner.model.quantisation.scheme import Rule, Scheme, name_rules, skips

# A 16-bit scale and a 16-bit zero for each group of 4-bit weights.
_INT4: Final = WeightFormat("int4", 4, "group", scale_bytes=4, group=128)
# An fp32 scale for each row.
_INT8: Final = WeightFormat("int8", 8, "channel", scale_bytes=4)
_OLD_NAMES: Final = {
    "int4_weight_only": "Int4WeightOnlyConfig", "int8_weight_only": "Int8WeightOnlyConfig",
    "int8_dynamic_activation_int8_weight": "Int8DynamicActivationInt8WeightConfig",
    "float8_weight_only": "Float8WeightOnlyConfig", "autoquant": "",
    "float8_dynamic_activation_float8_weight": "Float8DynamicActivationFloat8WeightConfig",
}  # fmt: skip
_WHOLE_BYTES: Final = (
    "Int8DynamicActivationIntxWeightConfig", "Int8DynamicActivationInt4WeightConfig", "IntxWeightOnlyConfig",
)  # fmt: skip
_BY_MODULE: Final = ("ModuleFqnToConfig", "FqnToConfig")


def torchao(config: Fields) -> Scheme:
    """The scheme of `quant_type`. Raises NotModelled for a class of unknown layout."""
    rules: list[Rule] = list(skips(config, "modules_to_not_convert"))
    _, value = config.raw("quant_type")
    if isinstance(value, str):
        settings = config.raw("quant_type_kwargs")[1]
        known = settings if isinstance(settings, Mapping) else {}
        return Scheme("torchao", _layout(_OLD_NAMES.get(value, value), known, config), rules=tuple(rules))
    kinds = config.sub("quant_type")
    default = kinds.sub("default") if kinds is not None else None
    if default is None:
        raise config.missing("quant_type")
    name, data = _class(default)
    if name not in _BY_MODULE:
        return Scheme("torchao", _layout(name, data, config), rules=tuple(rules))
    found: WeightFormat | None = None
    by_module = data.get("module_fqn_to_config") or data.get("fqn_to_config") or {}
    for module, own in by_module.items() if isinstance(by_module, Mapping) else ():
        form = None
        if isinstance(own, Mapping):
            form = _layout(*_class(Fields(own, config.where, config.path)), config)
        if module == "_default":
            found = form
        else:
            rules += name_rules((str(module),), form, config.named("quant_type"))
    return Scheme("torchao", found, rules=tuple(rules))


def _class(settings: Fields) -> tuple[str, Mapping[str, object]]:
    """A config object's class and what it was made with."""
    data = settings.raw("_data")[1]
    return settings.text("_type") or "", data if isinstance(data, Mapping) else {}


def _layout(name: str, data: Mapping[str, object], config: Fields) -> WeightFormat | None:
    group = data.get("group_size")
    size = group if isinstance(group, int) and group > 0 else None
    if name == "Int4WeightOnlyConfig":
        return _INT4._replace(group=size or 128)
    if name in ("Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"):
        return _INT8
    if name in _WHOLE_BYTES:
        # Held as whole bytes, whatever the bits: an fp32 scale and a byte of zero for each group.
        return WeightFormat("int8", 8, "group", scale_bytes=5, group=size or _granularity(data) or 32)
    if name in ("Float8WeightOnlyConfig", "Float8DynamicActivationFloat8WeightConfig"):
        by_row = "PerRow" in str(data.get("granularity", "")) or name == "Float8WeightOnlyConfig"
        return formats.fp8_channel(4) if by_row else formats.fp8_tensor(False)
    if "NVFP4" in name:
        return formats.NVFP4
    if name.startswith(("MXFP", "MXDynamic")):
        return formats.MXFP4 if "float4" in str(data).lower() else formats.MXFP8
    raise NotModelled(f"is {shown(name)}, whose layout is not known", config.named("quant_type"),
                      "Plan from the file headers")  # fmt: skip


def _granularity(data: Mapping[str, object]) -> int | None:
    """The group size that a PerGroup granularity holds."""
    held = data.get("weight_granularity") or data.get("granularity")
    inner = held.get("_data") if isinstance(held, Mapping) else None
    size = inner.get("group_size") if isinstance(inner, Mapping) else None
    return size if isinstance(size, int) and size > 0 else None
