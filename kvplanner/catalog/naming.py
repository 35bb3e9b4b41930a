"""What a repository's name says: the model that it was made from, and the weight format that it is in.

Publishers put the format last ("-FP8-dynamic", "-quantized.w4a16", "-AWQ-4bit", "-bnb-4bit", "-MLX-8bit"), after the
name of the model. A name that resolves to a model of the catalogue and to a known format can be planned, as that
model in that format, though nobody recorded the repository's own files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from kvplanner.catalog import models
from kvplanner.catalog.models import ModelEntry
from kvplanner.errors import NotModelled
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.model import whatif
from kvplanner.model.formats import (
    DTYPE_BYTES,
    MXFP4,
    WeightFormat,
    auto_round,
    awq,
    fp8_channel,
    fp8_tensor,
    gptq,
    int_packed,
    mlx_packed,
)  # fmt: skip
from kvplanner.model.model import Model
from kvplanner.model.quantisation import elsewhere, published
from kvplanner.model.quantisation.published import Recipe
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory
from kvplanner.record import NamedTuple

PLAIN: Final = "16 bits"
_AS_IT_IS: Final = ""
_END: Final = r"(?:[-_.](?:v\d+|hf|ct|vllm|actorder[-_]?\w*))?$"
_SEP: Final = r"[-_.]"


class Named(NamedTuple):
    """What a name says. key: "FP8", "AWQ 4-bit" ...; `PLAIN`; "" for the model's own format. publisher: before "/"."""

    base: ModelEntry
    key: str
    publisher: str


# Names' endings, tried in order; a function makes the key where digits of the name belong to it.
_ENDINGS: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = tuple(
    (re.compile(_SEP + text, re.IGNORECASE), key)
    for text, key in (
        (rf"mlx{_SEP}?(\d)[-_]?bits?{_END}", lambda m: f"MLX {m[1]}-bit"),
        (rf"(\d)[-_]?bit{_SEP}mlx{_END}", lambda m: f"MLX {m[1]}-bit"),
        (r"(?:bf16|f16)[-_.]gguf$", "GGUF F16"),
        (rf"(?:mlx{_SEP})?(?:bf16|fp16|f16|16bit|dequantized|unquantized){_END}", PLAIN),
        (r"(?:unsloth-)?(?:bnb[-_](?:nf)?4bit|bnb[-_]nf4|nf4|4bit[-_]bnb)(?:-smashed)?$", "bitsandbytes 4-bit"),
        (r"bnb[-_]8bit$", "bitsandbytes 8-bit"),
        (rf"(?:(?:int)?([248])(?:bit)?[-_])?auto[-_]?round[-_](?:inc|sym|asym|gptq|awq|best|light)"
         rf"(?:[-_](?:int)?([248])(?:[-_]?bit)?)?{_END}", lambda m: f"AutoRound {m[1] or m[2] or 4}-bit"),
        (rf"gptqmodel(?:[-_](?:int)?([2348])(?:[-_]?bit)?)?{_END}", lambda m: f"GPTQ {m[1] or 4}-bit"),
        (r"qat[-_](?:q4[-_]0(?:[-_.]gguf)?|gguf)$", "GGUF Q4_0"),
        (rf"(?:gptq[-_]?(?:marlin)?{_SEP}?(?:int)?([348])?(?:[-_]?b(?:it)?)?(?:[-_](?:\d+g|g\d+))?){_END}",
         lambda m: f"GPTQ {m[1] or 4}-bit"),
        (rf"(?:int)?([48])(?:bit)?[-_]gptq{_END}", lambda m: f"GPTQ {m[1]}-bit"),
        (rf"awq[-_]?(?:bf16[-_])?(?:gemm[-_]?)?(?:int)?([48])?(?:[-_]?bit)?(?:[-_](?:\d+g|g\d+))?{_END}",
         lambda m: f"AWQ {m[1] or 4}-bit"),
        (rf"(?:int|w)?([48])(?:bit|a16)?[-_]awq{_END}", lambda m: f"AWQ {m[1]}-bit"),
        (rf"(?:int)?([248])(?:bit)?(?:[-_]sym|[-_]asym)?(?:[-_]gptq|[-_]awq)?[-_]inc{_END}",
         lambda m: f"AutoRound {m[1]}-bit"),
        (rf"(?:(?:int)?([248])(?:bit)?[-_])?(?:mixed[-_])?auto[-_]?round(?:[-_](?:int)?([248])(?:bit)?)?(?:-awq|-gptq)?{_END}",
         lambda m: f"AutoRound {m[1] or m[2] or 4}-bit"),
        (rf"(?:quantized[-_.])?w([48])a16(?:[-_](?:g\d+|asym|ct))*{_END}", lambda m: f"INT{m[1]}"),
        (rf"(?:quantized[-_.])?w8a8(?:[-_]int8|[-_]dynamic.*)?{_END}", "INT8"),
        (rf"fp8[-_]dynamic{_END}", "FP8 dynamic"), (rf"(?:dynamic[-_])fp8{_END}", "FP8 dynamic"),
        (rf"fp8[-_]block{_END}", "FP8 block"),
        (rf"fp8(?:[-_]kv|[-_]static.*|[-_]per[-_]?tensor|[-_]e4m3|[-_]w8a8)?{_END}", "FP8"),
        (rf"(?:nvfp4(?:a16)?|fp4)(?:[-_](?:fp8|kv|mlp|qad|ptq|qat).*)?{_END}", "NVFP4"),
        (rf"mxfp4(?:[-_].*)?{_END}", "MXFP4"), (rf"mxfp8{_END}", "MXFP8"),
        (rf"int8(?:[-_](?:dynamic|w8a8|weight-only|wo))?{_END}", "INT8"),
        (rf"(?:w4a16|int4|4bit)(?:[-_](?:g\d+|w4a16))?{_END}", "INT4"),
        (r"(?:i1[-_])?gguf$", "GGUF"), (r"gguf[-_.]((?:iq|q)\d(?:_[a-z0-9]+)*)$", lambda m: f"GGUF {m[1].upper()}"),
        (r"mlx$", "mlx"), (r"(onnx|openvino|sinq)(?:[-_].*)?$", lambda m: m[1].lower()),
        (r"int8[-_]w8a16$", "INT8"),
        (r"(?:ud-)?((?:iq|q)\d(?:_[a-z0-9]+)*)(?:[-_.]gguf)?$", lambda m: f"GGUF {m[1].upper()}"),
        (r"(?:(?:[\d.]+bpw|h\d|\d\.\d+)[-_]*)*exl([23])(?:[-_].*)?$", lambda m: f"exl{m[1]}"),
        (r"(?:[\d.]+bpw)(?:[-_]h\d)?(?:[-_]exl2)?$", "exl2"),
        (r"(hqq|aqlm|eetq|quanto|higgs|vptq|spqr)(?:[-_].*)?$", lambda m: m[1].lower()),
    )
)  # fmt: skip
# llama.cpp and Ollama name a repository's file so.
_TAGGED: Final = re.compile(r"([^/:\s]+/[^/:\s]+?)(?:[-_.]gguf)?:([\w.-]+)", re.IGNORECASE)
# What some put behind the name of an unquantised model, and others leave out.
_BEHIND: Final = re.compile(r"[-_](?:bf16|fp16|hf)$", re.IGNORECASE)
# What is put behind a model whose weights were changed a little, in its shape.
_RETOUCHED: Final = re.compile(
    r"(?:[-_.](?:abliterated|uncensored|heretic|lorablated|derestricted)(?:[-_.]?v?\d+)?)+$", re.IGNORECASE
)
# Organisations whose "-4bit" is MLX's.
_MLX_PUBLISHERS: Final = ("mlx-community", "lmstudio-community", "nexveridian", "inferencerlabs")
_MLX_ENDING: Final = re.compile(r"(?:[-_]mlx)?[-_](\d)[-_]?bit(?:[-_](?:dwq|gs\d+).*)?$", re.IGNORECASE)
# The formats that a key of a name may mean, the likeliest first.
_MEANS: Final[dict[str, tuple[str, ...]]] = {
    "FP8": ("FP8", "FP8 block", "FP8 dynamic"), "FP8 dynamic": ("FP8 dynamic", "FP8"),
    "AWQ 4-bit": ("AWQ 4-bit", "INT4"), "AWQ 8-bit": ("AWQ 8-bit", "INT8"), "INT4": ("INT4", "AutoRound 4-bit"),
}  # fmt: skip
# What a format is where no repository of the catalogue shows one: method, and the format of all matrices.
_USUAL: Final[dict[str, tuple[str, WeightFormat]]] = {
    "AutoRound 4-bit": ("auto-round", auto_round(4, 128)), "AutoRound 2-bit": ("auto-round", auto_round(2, 128)),
    "AutoRound 8-bit": ("auto-round", auto_round(8, 128)), "AWQ 8-bit": ("compressed-tensors", int_packed(8, 32, True)),
    "AWQ 4-bit": ("awq", awq(4, 128, True)), "GPTQ 4-bit": ("gptq", gptq(4, 128)), "GPTQ 8-bit": ("gptq", gptq(8, 128)),
    "GPTQ 3-bit": ("gptq", gptq(3, 128)), "bitsandbytes 8-bit": ("bitsandbytes", WeightFormat("bnb8", 8, "channel", 4)),
    "INT8": ("compressed-tensors", WeightFormat("int8", 8, "channel", 2)),
    "INT4": ("compressed-tensors", int_packed(4, 128, True)),
    **{f"MLX {bits}-bit": ("mlx", mlx_packed(bits, 64)) for bits in (2, 3, 4, 5, 6, 8)},
}  # fmt: skip
# Publishers with a method of their own.
_OWN_METHODS: Final[dict[tuple[str, str], tuple[str, WeightFormat]]] = {
    ("amd", "FP8"): ("quark", fp8_tensor(True)), ("amd", "MXFP4"): ("quark", MXFP4),
    ("pytorch", "INT4"): ("torchao", WeightFormat("int4", 4, "group", 4, group=128)),
    ("pytorch", "FP8"): ("torchao", fp8_channel(4)),
}  # fmt: skip
_ALL_PARTS: Final = ("attention", "state", "mlp", "dense block", "shared experts", "experts")


def parse(text: str) -> Named | None:
    """What a name says, None where it names no model of the catalogue.

    A tag behind a repository of GGUF files ("ORG/NAME-GGUF:Q4_K_M") is the file's format.
    """
    if tagged := _TAGGED.fullmatch(text.strip()):
        tag = "" if tagged[2].lower() == "latest" else f"-{tagged[2]}"
        return parse(f"{tagged[1]}{tag}-GGUF")
    publisher, _, name = text.strip().rpartition("/")
    apple = publisher.lower() in _MLX_PUBLISHERS
    if apple and (match := _MLX_ENDING.search(name)):
        return _named(name[: match.start()], f"MLX {match[1]}-bit", publisher)
    for pattern, key in _ENDINGS:
        match = pattern.search(name)
        if match is not None and match.start() > 2:
            meant = key if isinstance(key, str) else key(match)
            if apple and meant != PLAIN and not meant.startswith(("MLX", "GGUF")):
                meant = "mlx"
            found = _named(name[: match.start()], meant, publisher)
            if found is not None:
                return found
    return _named(name, _AS_IT_IS, publisher)


def _named(name: str, key: str, publisher: str) -> Named | None:
    """What a name without its ending is, in the format of the ending; of two formats in a row the first is meant."""
    base = _base(name, publisher)
    if base is None:
        return None
    inner = parse(f"{publisher}/{name}") if key != _AS_IT_IS and base.quantization is not None else None
    return inner if inner is not None and inner.key != _AS_IT_IS else Named(base, key, publisher)


def _base(name: str, publisher: str) -> ModelEntry | None:
    """The model of the catalogue that a name without a format names: unquantised and with a record, if there is one."""
    known = _by_squeezed_name()
    found = known.get(_squeezed(name), ()) or known.get(_squeezed(_RETOUCHED.sub("", name)), ())
    return min(found, key=lambda e: _doubt(e, publisher), default=None)


def _doubt(entry: ModelEntry, publisher: str) -> tuple[bool, bool, bool, bool]:
    """How unlikely a model of the right name is the one that was quantised."""
    own = entry.id.lower().startswith(f"{publisher.lower()}/")
    return bool(entry.like), entry.quantization is not None, not own, entry.lower_confidence


@cache
def _by_squeezed_name() -> dict[str, tuple[ModelEntry, ...]]:
    found: dict[str, list[ModelEntry]] = {}
    for entry in models.index():
        for name in {entry.name, _BEHIND.sub("", entry.name)}:
            found.setdefault(_squeezed(name), []).append(entry)
    return {name: tuple(entries) for name, entries in found.items()}


def _squeezed(name: str) -> str:
    """A name without its punctuation, and without the maker that some put before Llama."""
    return re.sub(r"[^a-z0-9.]", "", name.lower()).removeprefix("meta").replace("_", "")


def recipe_for(named_as: Named, spec: ModelSpec, known: Sequence[Recipe] | None = None) -> Recipe | None:
    """How the name's publisher would quantise the model, None where nothing is known of the format."""
    traits = published.traits_of(spec)
    found = published.alike(_MEANS.get(named_as.key, (named_as.key,)), spec, traits, named_as.publisher, known)
    if named_as.key.startswith("MLX"):
        # MLX quantises all models alike; some publishers take wider groups.
        found = [recipe for recipe in found if recipe.publisher.lower() == named_as.publisher.lower()]
    own = _OWN_METHODS.get((named_as.publisher.lower(), named_as.key))
    if found and own is None:
        return found[0]
    usual = own or _USUAL.get(named_as.key)
    if usual is None:
        return None
    method, form = usual
    parts: dict[str, WeightFormat | None] = dict.fromkeys(_ALL_PARTS, form)
    if method == "mlx":
        parts |= {"head": form, "embedding": form}
    return Recipe(named_as.key, named_as.publisher, spec.architecture, traits, method, None, parts, None,
                  False if method == "mlx" else None, 0, ())  # fmt: skip


def as_recipe(model: Model, recipe: Recipe, known: Sequence[Recipe] | None = None) -> tuple[ModelSpec, Inventory, int]:
    """A model quantised by a recipe: its spec, its tensors, and the bytes of a second copy of a tied head."""
    assert model.inventory is not None
    inventory = published.quantised(published.plain(model.inventory, model.spec), recipe.parts)
    spec = model.spec._replace(quantization=recipe.method, kv_cache_dtype=recipe.kv_cache, quantization_traits=())
    if recipe.predicts is False:
        outside = tuple(group for group in inventory.outside if group.place != "mtp")
        spec, inventory = spec._replace(mtp_layers=0), inventory._replace(outside=outside)
    copies = spec.tied_embeddings and published.stored_twice(recipe, known)
    return spec, inventory, copy_bytes(spec) if copies else 0


def copy_bytes(spec: ModelSpec) -> int:
    """Bytes of a second copy of a tied head, 0 where the head is the model's own."""
    return DTYPE_BYTES.get(spec.dtype, 2) * spec.vocab_size * spec.hidden_size if spec.tied_embeddings else 0


def size_of(named_as: Named, known: Sequence[Recipe]) -> int | None:
    """Bytes that the name's repository would store by known recipes, None where they tell nothing."""
    base = models.load(named_as.base.id)
    if base.inventory is None:
        return None
    recipe = recipe_for(named_as, base.spec, known)
    if recipe is None:
        return None
    _, inventory, copies = as_recipe(base, recipe, known)
    return inventory.stored_bytes() + copies


def derive(text: str) -> Model | None:
    """The model that a name means though no record has it, None where the name says nothing.

    Raises NotModelled for a format that is known and cannot be planned.
    """
    named_as = parse(text)
    if named_as is None:
        return None
    base = models.load(named_as.base.id)
    if named_as.publisher.lower() in _MLX_PUBLISHERS and named_as.key in (_AS_IT_IS, PLAIN):
        base = _without_mtp(base)
    named = base._replace(id=text.strip())
    if named_as.key == _AS_IT_IS:
        return named._replace(
            problems=(f"Not in the catalogue: planned as {base.id}, whose name it has", *base.problems)
        )
    why = elsewhere.why_not(named_as.key)
    if why:
        raise NotModelled(f"its name says {why}", text.strip(), f"Plan {base.id}, or another repository of it")
    if base.inventory is None:
        return None
    if named_as.key == PLAIN:
        return _unquantised(named, base)
    return _gguf(named, named_as, base) if named_as.key.startswith("GGUF") else _quantised(named, named_as, base)


def _without_mtp(base: Model) -> Model:
    """A model as MLX saves it anew: its files in 16 bits hold no MTP block (seven of seven published sizes)."""
    if base.inventory is None or not base.spec.mtp_layers:
        return base
    inventory = base.inventory._replace(outside=tuple(g for g in base.inventory.outside if g.place != "mtp"))
    size = inventory.stored_bytes()
    counted = Input("counted", size, "B", f"{base.id} without its multi-token-prediction block, which MLX leaves out")
    return base._replace(
        spec=base.spec._replace(mtp_layers=0), inventory=inventory,
        stored=banded(size, size, size, "analytic", "{counted}", counted),
        problems=("MLX leaves the multi-token-prediction block out", *base.problems),
    )  # fmt: skip


def _unquantised(named: Model, base: Model) -> Model:
    """The model with every matrix in 16 bits."""
    assert base.inventory is not None
    if base.spec.quantization is None:
        return named._replace(problems=(f"Not in the catalogue: planned as {base.id}, in 16 bits", *base.problems))
    inventory = published.plain(base.inventory, base.spec)
    size = inventory.stored_bytes()
    return named._replace(
        spec=base.spec._replace(quantization=None, kv_cache_dtype=None, quantization_traits=()), inventory=inventory,
        weight_format=base.spec.dtype,
        stored=banded(size, size, size, "analytic", "{counted}", Input("counted", size, "B", f"{base.id} in 16 bits")),
        problems=(f"Not in the catalogue: planned as {base.id}, in 16 bits", *base.problems),
    )  # fmt: skip


def _quantised(named: Model, named_as: Named, base: Model) -> Model:
    """The model by its publisher's recipe."""
    assert base.inventory is not None
    recipe = recipe_for(named_as, base.spec)
    if recipe is None:
        raise NotModelled(f"its name says {named_as.key}, of which no repository is known", named.id,
                          f"Plan {base.id}, or its own config.json")  # fmt: skip
    spec, inventory, copies = as_recipe(base, recipe)
    size = inventory.stored_bytes() + copies
    near = published.is_near(recipe, base.spec, named_as.publisher)
    low, high = published.spread(named_as.key, near)
    unsure = 0 if near else copy_bytes(spec)  # whether a tied head is stored twice differs from model to model
    shown = f", as in {recipe.ids[0]}" if recipe.ids else ""
    own = recipe.publisher.lower() == named_as.publisher.lower() and bool(recipe.ids)
    whose = f"{recipe.publisher}'s recipe{shown}" if own else f"the usual recipe{shown}"
    told = f"Nobody recorded its own files: planned as {base.id} in {named_as.key} by {whose}"
    counted = Input("counted", size, "B", f"{base.id} in {named_as.key} by {whose}")
    return named._replace(
        spec=spec._replace(assumed_fields=(*spec.assumed_fields, "quantization_config")), inventory=inventory,
        weight_format=recipe.method, source_detail=f"by its name: {base.id} in {named_as.key} by {whose}",
        stored=banded(
            size, int(size * min(low, 1)) - (unsure if copies else 0),
            int(size * max(high, 1)) + (0 if copies else unsure), "assumed", "{counted}", counted,
        ),
        problems=(told, *base.problems),
    )  # fmt: skip


def _gguf(named: Model, named_as: Named, base: Model) -> Model:
    """The model by llama.cpp's recipe of the name, or of the type that llama.cpp takes where none is named."""
    assert base.inventory is not None
    if base.spec.quantization == "mxfp4":
        # Experts that were trained in MXFP4 stay so in every GGUF file; of the rest the type hardly counts.
        return named._replace(
            source_detail=f"by its name: {base.id}, whose experts are MXFP4 in every GGUF file",
            problems=(f"Nobody recorded its own files: planned as {base.id}", *base.problems),
        )
    kind = named_as.key if named_as.key in whatif.WHATIF_FORMATS else "GGUF Q4_K_M"
    if named_as.key not in ("GGUF", kind):
        return _no_recipe(named, named_as)
    chosen = "" if named_as.key == kind else ", the type that llama.cpp takes where none is named"
    stored: Estimate = whatif.stored(base.inventory, base.spec, kind)
    return named._replace(
        spec=whatif.respec(base.spec, kind), inventory=whatif.reformat(base.inventory, base.spec, kind), stored=stored,
        weight_format=kind, source_detail=f"by its name: {base.id} as {kind}",
        problems=(f"Nobody recorded its own files: planned as {base.id} in {kind}{chosen}", *base.problems),
    )  # fmt: skip


def _no_recipe(named: Model, named_as: Named) -> Model:
    raise NotModelled(f"its name says {named_as.key}, whose recipe is not known", named.id,
                      "Open the GGUF file itself: its header says everything")  # fmt: skip
