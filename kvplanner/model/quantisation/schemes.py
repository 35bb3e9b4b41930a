"""Quantisation configs of every form, and where they stand; the readers load only for models that have one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.model import formats
from kvplanner.model.config.fields import FREE, Fields
from kvplanner.model.quantisation.scheme import Scheme

# Objects and lists in quantisation settings that say nothing of what is stored: how activations are quantised as the
# model runs, what made the file, how it was calibrated, which kernels may run it. FREE: with whatever is in them.
HARMLESS: Final = frozenset(
    {
        "input_activations", "output_activations", "observer_kwargs", "producer", "dataset", "tokenizer",
        "softmax_quant_spec", "input_tensors", "output_tensors", "bias", "supported_types", "quant_block_list",
        "module_name_preceding_first_block", "ranges", "tp_plan", *FREE,
    }
)  # fmt: skip


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
        from kvplanner.model.quantisation.methods import close_without_method, side_file

        if config is not None:
            close_without_method(config, HARMLESS)
        return side_file(side, top, HARMLESS)
    if config is None or not config.values:
        return None
    from kvplanner.model.quantisation.methods import read_scheme

    scheme = read_scheme(config)
    config.close_settings(HARMLESS)
    if expert_dtype == "fp4" and scheme.expert_format is None:
        return scheme._replace(expert_format=formats.MXFP4)
    return scheme
