"""Catalogue models as the oracles ran them: with the public copy of the config, before it was corrected.

The oracles' figures are what an engine's own code makes of those copies, right or wrong; the catalogue's records say
what the repositories hold.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kvplanner.catalog import models
from kvplanner.model.families import read_config
from kvplanner.model.model import Model

# What replaces parts of a record: "config" fields (None: left out), and "side_quant".
COPIES: dict[str, dict[str, Any]] = {
    "mistralai/Ministral-3-3B-Instruct-2512": {"config": {"quantization_config": None}},
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": {
        "side_quant": {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    },
}


@cache
def load(name: str) -> Model:
    """The model of the catalogue, or of the copy of its config that the oracles were given."""
    found = models.load(name)
    if name not in COPIES:
        return found
    facts, copy = models.record(name), COPIES[name]
    config = {k: v for k, v in (facts["config"] | copy.get("config", {})).items() if v is not None}
    spec, inventory = read_config(config, where=name, side_quant=copy.get("side_quant", facts.get("side_quant")))
    spec = spec._replace(assumed_fields=found.spec.assumed_fields)
    return found._replace(spec=spec, inventory=inventory, weight_format=spec.quantization or spec.dtype)
