"""Settings of a quantised checkpoint that stand in a file of their own beside config.json.

ModelOpt's older exports have hf_quant_config.json. The first files of AutoGPTQ and AutoAWQ have quantize_config.json or
quant_config.json, and nothing in config.json: vLLM reads those once `--quantization` names the method (0.33,
get_config_filenames in model_executor/layers/quantization/auto_gptq.py and auto_awq.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvplanner import jsonfile
from kvplanner.reading import file_size

_BESIDE: Final = ("quantize_config.json", "quant_config.json")
_STATED: Final = ("quantization_config", "compression_config", "quantization")


def modelopt(folder: Path) -> Mapping[str, object] | None:
    """hf_quant_config.json of ModelOpt exports, when there is one. Raises BadInput for a broken one."""
    side = folder / "hf_quant_config.json"
    return jsonfile.read_object(side) if file_size(side) is not None else None


def completed(config: dict[str, Any], folder: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A config with the settings that AutoGPTQ or AutoAWQ wrote beside it, and what to say of that.

    Raises BadInput for a broken file of settings.
    """
    if any(config.get(name) for name in _STATED):
        return config, ()
    for name in _BESIDE:
        if file_size(folder / name) is None:
            continue
        beside = jsonfile.read_object(folder / name)
        method = _method(beside)
        if method:
            said = f"config.json names no quantisation, {name} does: vLLM needs --quantization {method} to read it"
            return config | {"quantization_config": {"quant_method": method, **beside}}, (said,)
    return config, ()


def _method(beside: Mapping[str, object]) -> str:
    """The method of a file of settings, "" for one that holds other things."""
    stated = beside.get("quant_method")
    if isinstance(stated, str) and stated:
        return stated
    if "w_bit" in beside or "zero_point" in beside:
        return "awq"
    return "gptq" if {"bits", "group_size"} <= beside.keys() else ""
