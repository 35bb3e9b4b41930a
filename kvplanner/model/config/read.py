"""A config.json into a ModelSpec and an Inventory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.config.context import context_of
from kvplanner.model.config.fields import Fields, shown
from kvplanner.model.config.forms import architecture_of_type, as_config
from kvplanner.model.config.parts import Parts, as_mtp
from kvplanner.model.config.reading import Draft, Reader, Reading
from kvplanner.model.formats import DTYPE_BYTES, dense
from kvplanner.model.quantisation.apply import quantised_blocks, quantised_mtp, quantised_outside
from kvplanner.model.quantisation.scheme import Scheme
from kvplanner.model.quantisation.schemes import scheme_of
from kvplanner.model.spec import LayerSpec, ModelSpec
from kvplanner.model.tensors import Inventory, TensorGroup

# Dictionaries that may hold the language model's fields, in the order in which they are looked for.
_NESTED: Final = ("text_config", "language_config", "llm_config")
_LAYER_NAMES: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "hybrid_override_pattern")


def read_with(
    readers: Mapping[str, Reader],
    config: Mapping[str, object],
    where: str,
    side_quant: Mapping[str, object] | None = None,
) -> tuple[ModelSpec, Inventory]:
    """Read a config with the reader of its architecture.

    Raises BadInput for a field that is missing, wrong or contradicts another, NotModelled for an architecture,
    a variant or a structural field that no reader understands.
    """
    if not isinstance(config, Mapping):
        raise BadInput("is no JSON object", where, "A config.json holds one object")
    config = as_config(config, where)
    top = Fields(config, where)
    architecture = _architecture(top, readers)
    text = _text(top)
    dtype = _dtype(top, text)
    reading = Reading(top, text, architecture, dtype, Parts(dense(dtype)), readers=readers)
    model_type = text.text("model_type") or top.text("model_type") or ""
    if not model_type:
        top.took_default("model_type")
    draft = readers[architecture](reading)
    context = context_of(text, top, architecture)
    scheme = scheme_of(text, top, side_quant)
    text.close()
    if top is not text:
        _skip_repeated(top, text)
        top.close()
    _check_draft(draft, where)
    inventory = _inventory(draft, scheme)
    layers, layer_of = _distinct_layers(draft)
    spec = ModelSpec(
        architecture=architecture,
        model_type=model_type,
        hidden_size=draft.hidden,
        vocab_size=draft.vocab,
        layers=layers,
        layer_of=layer_of,
        context_length=context.limit,
        default_context_length=context.start,
        stated_context_length=context.stated,
        yarn_context_length=context.yarn,
        dtype=dtype,
        tied_embeddings=draft.tied,
        quantization=scheme.name if scheme else None,
        kv_cache_dtype=scheme.kv_cache if scheme else None,
        quantization_traits=scheme.traits if scheme else (),
        towers=draft.towers,
        mtp_layers=draft.mtp.blocks if draft.mtp else 0,
        task=draft.task,
        multimodal=bool(draft.towers),
        not_modelled=draft.not_modelled,
        remarks=draft.remarks,
        defaulted=tuple(dict.fromkeys(top.defaulted)),
    )
    return spec, inventory


def _architecture(top: Fields, readers: Mapping[str, Reader]) -> str:
    """The first architecture that has a reader; without any, the base model of the `model_type`."""
    names = top.texts("architectures") or ()
    if not names:
        kind = top.text("model_type") or ""
        implied = architecture_of_type(kind)
        if not implied:
            raise _unnamed(top, kind)
        top.took_default("architectures")
        names = (implied,)
    found = next((name for name in names if name in readers), None)
    if found is None:
        why = getattr(readers, "why_unread", None)
        raise _unreadable(top, names[0], len(readers), why(names[0]) if why is not None else "")
    return found


# Endings of encoders that stand alone: no engine here serves them without a language model.
_ALONE: Final = ("VisionModel", "VisionModelWithProjection", "VisionTransformer", "TextModelWithProjection")
# Configs without architectures whose type means a class that vLLM has to be told of.
_TOLD: Final = {"deepseek_vl_v2": "DeepseekVLV2ForCausalLM", "glm4v": "GLM4VForCausalLM", "ovis": "Ovis"}


def _unreadable(top: Fields, name: str, known: int, why: str) -> NotModelled:
    """The error for an architecture without a reader. why: what is known of it nevertheless."""
    if name.endswith(_ALONE):
        return NotModelled(
            f"is {shown(name)}, an encoder without a language model, which no engine here serves by itself",
            top.named("architectures"),
            "Plan the model that it belongs to",
        )
    unheard = f"which is none of the {known} modelled architectures, and in no registry of vLLM"
    return NotModelled(
        f"is {shown(name)}, {why or unheard}",
        top.named("architectures"),
        "Open the folder with its weights: their headers tell what is stored, and the cache stays unknown",
    )


def _unnamed(top: Fields, kind: str) -> BadInput:
    """The error for a config without architectures, whose type means no class."""
    name = _TOLD.get(kind, "...")
    say = f"""vLLM needs --hf-overrides '{{"architectures": ["{name}"]}}' for it; add the same field to plan it"""
    if not kind:
        return BadInput("is missing, and so is model_type", top.named("architectures"), say)
    return BadInput(f"is missing, and model_type {kind} alone names no class", top.named("architectures"), say)


def _text(top: Fields) -> Fields:
    """The dictionary of the language model: a nested one with a layer count, or the top.

    Where neither has a layer count, a nested one is meant: it leaves everything to its class's defaults.
    """
    flat = any(top.values.get(n) is not None for n in _LAYER_NAMES)
    for name in _NESTED:
        value = top.values.get(name)
        if isinstance(value, Mapping) and (not flat or any(value.get(n) is not None for n in _LAYER_NAMES)):
            found = top.sub(name)
            if found is not None:
                return found
    return top


def _skip_repeated(top: Fields, text: Fields) -> None:
    """Newer saves repeat the text dictionary's fields at the top: fine as long as they agree."""
    for name, value in top.values.items():
        if name in text.values and text.values[name] == value:
            top.skip(name)


def _dtype(top: Fields, text: Fields) -> str:
    """The dtype of unquantised tensors: either level, either spelling; bfloat16 when none says."""
    for fields in (text, top):
        for name in ("dtype", "torch_dtype"):
            found = fields.text(name)
            if found is not None:
                short = found.removeprefix("torch.")
                if short not in DTYPE_BYTES:
                    raise fields.bad(name, f"one of {', '.join(DTYPE_BYTES)}")
                return short
    top.took_default("torch_dtype")
    return "bfloat16"


def _check_draft(draft: Draft, where: str) -> None:
    if not draft.body_of:
        raise BadInput("has no decoder layers", where, "Expected at least one")


def _distinct_layers(draft: Draft) -> tuple[tuple[LayerSpec, ...], tuple[int, ...]]:
    """Distinct LayerSpecs: bodies may differ in tensors alone."""
    index: dict[LayerSpec, int] = {}
    of_body = [index.setdefault(b.spec, len(index)) for b in draft.bodies]
    return tuple(index), tuple(of_body[i] for i in draft.body_of)


def _inventory(draft: Draft, scheme: Scheme | None) -> Inventory:
    """The draft's tensors, quantised as the scheme says."""
    index: dict[tuple[TensorGroup, ...], int] = {}
    of_body = [index.setdefault(body.tensors, len(index)) for body in draft.bodies]
    blocks, block_of = tuple(index), tuple(of_body[i] for i in draft.body_of)
    outside: list[TensorGroup] = draft.outside
    mtp = list(draft.mtp.body) if draft.mtp else []
    if scheme is not None:
        blocks, block_of = quantised_blocks(scheme, draft.bodies, draft.body_of)
        outside = quantised_outside(scheme, outside)
        mtp = quantised_mtp(scheme, draft.mtp, len(draft.body_of)) if draft.mtp else []
    if draft.mtp:
        outside = outside + as_mtp([*mtp, *draft.mtp.extra], draft.mtp.blocks)
    return Inventory(blocks, block_of, tuple(outside))
