"""compressed-tensors: config_groups, each with bits, kind and strategy for its targets.

Sources: public configs of llm-compressor; what vLLM 0.33 reads of them (layers/quantization/compressed_tensors).
Sparse files keep two of four weights: 2:4 with a bit mask (sparse-24-bitmask) or Marlin's own packing (marlin-24),
one bit a weight beside half the values in both.
"""

from __future__ import annotations

from typing import Final

from kvplanner.errors import NotModelled
from kvplanner.model import formats
from kvplanner.model.config.fields import Fields
from kvplanner.model.formats import DTYPE_BYTES, WeightFormat
from kvplanner.model.quantisation.scheme import LINEAR_KINDS, VOCABULARY_TOO, Rule, Scheme, kv_cache, name_rules, skips
from kvplanner.model.tensors import TensorKind

_SPARSE: Final = "2:4 sparse"


def compressed_tensors(config: Fields) -> Scheme:
    """The scheme of all groups. A group for "Linear" is the default; one for names or expressions comes before it."""
    groups = config.sub("config_groups")
    sparse = _sparsity(config)
    if groups is None and not sparse:
        raise config.missing("config_groups")
    default: WeightFormat | None = _sparse(formats.dense("bfloat16")) if sparse and groups is None else None
    kinds: frozenset[TensorKind] = LINEAR_KINDS
    rules: list[Rule] = []
    traits: dict[str, None] = dict.fromkeys((_SPARSE,) if sparse else ())
    for key in groups.values if groups is not None else ():
        group = groups.sub(key) if groups is not None else None
        if group is None:
            continue
        targets = group.texts("targets") or ("Linear",)
        if all(target.endswith("Attention") for target in targets):
            continue  # says how the KV cache is quantised, which kv_cache_scheme says too
        weights = group.sub("weights")
        if weights is None:
            raise group.missing("weights")
        name = group.text("format") or config.text("format") or ""
        format_ = _weights_format(weights, name, group.has("input_activations"), group)
        if sparse or name == "marlin-24":
            format_ = _sparse(format_)
            traits[_SPARSE] = None
        if weights.text("actorder") in ("group", "dynamic"):
            traits["act-order"] = None
        if "Linear" in targets:
            default = format_
        if "Embedding" in targets:
            kinds = VOCABULARY_TOO
        named = (t for t in targets if t not in ("Linear", "Embedding"))
        rules += name_rules(named, format_, group.named("targets"))
    if groups is not None and not groups.values and not sparse:
        raise config.bad("config_groups", "at least one group")
    rules = [*skips(config, "ignore"), *rules]
    return Scheme("compressed-tensors", default, kinds, tuple(rules), kv_cache=kv_cache(config), traits=tuple(traits))


def _sparsity(config: Fields) -> bool:
    """Whether the files hold two of four weights only."""
    sparsity = config.sub("sparsity_config")
    if sparsity is None or not sparsity.values:
        return False
    name = sparsity.text("format") or "dense"
    if name in ("dense", "sparse-24", "identity"):
        return False
    if name != "sparse-24-bitmask":
        raise NotModelled(f"is {name!r}, known are dense and sparse-24-bitmask", sparsity.named("format"),
                          "Plan from the file headers")  # fmt: skip
    return bool(sparsity.texts("targets") or ("Linear",))


def _sparse(base: WeightFormat) -> WeightFormat:
    """Half the values, and one bit for each weight that says where they were; scales as they are."""
    name = f"{base.name}-2:4"
    return base._replace(name=name, bits=base.bits / 2 + 1, layout=base.layout if base.name not in DTYPE_BYTES else
                         "tensor", scale_bytes=base.scale_bytes)  # fmt: skip


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
