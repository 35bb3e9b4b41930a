"""Write resources/architectures/classes.json: what the configuration classes of transformers fill in by themselves.

A saved config leaves out what equals its nested class's default, so a reader needs those defaults: of every class
that another one nests, and which class a nested dictionary without `model_type` means. Run it in an environment
that has the transformers release of the newest engine:

    python packaging/build_class_defaults.py
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).resolve().parent.parent / "resources" / "architectures" / "classes.json"
# Fields that change neither tensors nor caches.
_LEFT_OUT: Final = re.compile(
    r"token|_ids?$|^id2label|^label2id|dropout|droput|initializer|_eps$|epsilon|_std$|_coef|_loss|_act$|activation"
    r"|^architectures$|^dtype$|_version$|^_|^chunk_size_feed|^output_|^return_|rope_|^problem|^transformers|^is_enc"
    r"|^use_cache$|init_(value|scale|factor)|jitter|^hidden_act|^name_or_path"
)


def kept(value: object, depth: int = 0) -> bool:
    """Whether a default may matter: numbers, words, flags and short lists of them."""
    if isinstance(value, list | tuple):
        return depth == 0 and len(value) <= 128 and all(kept(item, 1) for item in value)
    return value is not None and isinstance(value, bool | int | float | str)


# Sizes that are halved to see which other defaults follow from them.
_HALVED: Final = (
    "num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "num_layers", "num_heads",
    "d_model", "embed_dim", "depth", "encoder_layers", "encoder_attention_heads",
)  # fmt: skip


def defaults_of(class_: Any) -> dict[str, object]:
    """A class's own defaults, as a saved config would state them; those that follow from another field left out."""
    plain = class_().to_dict()
    derived: set[str] = set()
    for name in _HALVED:
        if isinstance(plain.get(name), int):
            try:
                other = class_(**{name: plain[name] // 2}).to_dict()
            except Exception:  # noqa: BLE001  # sizes that do not fit each other
                continue
            derived |= {key for key in plain if key != name and other.get(key) != plain[key]}
    return {
        name: value
        for name, value in sorted(plain.items())
        if name not in ("model_type", "layer_types") and name not in derived and not _LEFT_OUT.search(name)
        and kept(value)
    }  # fmt: skip


def gather() -> dict[str, object]:
    """The whole file's content."""
    transformers = import_module("transformers")
    mapping = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    names = import_module("transformers.models.auto.modeling_auto").MODEL_MAPPING_NAMES

    nested: dict[str, dict[str, str]] = {}
    defaults: dict[str, dict[str, object]] = {}
    for kind in sorted(mapping):
        try:
            config = mapping[kind]()
        except Exception:  # noqa: BLE001  # a class that needs arguments has no defaults
            continue
        if {"num_hidden_layers", "vocab_size"} <= set(config.to_dict()):
            defaults.setdefault(kind, defaults_of(type(config)))
        holders = [(kind, config)]
        while holders:
            name, holder = holders.pop()
            for sub in getattr(holder, "sub_configs", None) or {}:
                inner: Any = getattr(holder, sub, None)
                if not getattr(inner, "model_type", ""):
                    continue
                nested.setdefault(name, {})[sub] = inner.model_type
                if inner.model_type not in defaults:
                    defaults[inner.model_type] = defaults_of(type(inner))
                holders.append((inner.model_type, inner))
    bases = {k: v for k, v in sorted(names.items()) if isinstance(v, str)}
    return {"source": f"transformers {transformers.__version__}", "bases": bases, "nested": nested,
            "defaults": dict(sorted(defaults.items()))}  # fmt: skip


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(gather(), indent=0, sort_keys=True) + "\n", encoding="utf-8")
