"""Quantisation configs of every form, and where they stand; the readers load only for models that have one."""

from __future__ import annotations

from collections.abc import Mapping

from kvplanner.model import formats
from kvplanner.model.config.fields import Fields
from kvplanner.model.quantisation.scheme import Scheme


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
        from kvplanner.model.quantisation.methods import side_file

        return side_file(side, top)
    if config is None or not config.values:
        return None
    from kvplanner.model.quantisation.methods import read_scheme

    scheme = read_scheme(config)
    if expert_dtype == "fp4" and scheme.expert_format is None:
        return scheme._replace(expert_format=formats.MXFP4)
    return scheme
