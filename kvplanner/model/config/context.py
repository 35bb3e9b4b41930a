"""The context length that vLLM derives from a config (config/model.py and its converters, 0.33).

The smallest of the known length fields (`model_max_length` alone when it is there), times the rope factor for
the rope types whose length does not include it yet. Long-rope files start at their original length; the longer
one is what a user may ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kvplanner.model.config.fields import Fields
from kvplanner.record import NamedTuple

_LENGTHS: Final = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
_ROPE_FIELDS: Final = frozenset({"rope_type", "type", "factor", "rope_theta", "partial_rotary_factor"})
# Lists in rope settings: of factors by frequency, of a head's parts by axis. They change no size.
_ROPE_LISTS: Final = frozenset(
    {"short_factor", "long_factor", "mrope_section", "mrope_sections", "xdrope_section", "alpha", "rope_dims"}
)
# Rope types whose stated length already holds the factor.
_INCLUDED: Final = frozenset(
    {"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "default", "mrope", "proportional"}
)

# Where a config states no length, an engine takes its class's own (configuration classes of transformers 5.24).
_CLASS_LENGTHS: Final[dict[int, tuple[str, ...]]] = {
    512: ("BertModel", "XLMRobertaModel"),
    2048: (
        "LlamaForCausalLM", "LlavaForConditionalGeneration", "Olmo2ForCausalLM", "Olmo3ForCausalLM",
        "GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeHybridForCausalLM", "HunYuanDenseV1ForCausalLM",
        "HunYuanMoEV1ForCausalLM", "Exaone4ForCausalLM", "DeepseekV2ForCausalLM",
    ),
    4096: (
        "ArceeForCausalLM", "DeepseekV3ForCausalLM", "ExaoneForCausalLM", "NemotronHForCausalLM", "OlmoeForCausalLM",
        "Phi3ForCausalLM", "StableLmForCausalLM", "Starcoder2ForCausalLM", "KimiK25ForConditionalGeneration",
    ),
    8192: (
        "CohereForCausalLM", "Cohere2ForCausalLM", "GemmaForCausalLM", "Gemma2ForCausalLM", "FalconH1ForCausalLM",
    ),
    32_768: (
        "Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM",
        "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM",
        "Glm4vForConditionalGeneration", "InternLM3ForCausalLM", "InternVLForConditionalGeneration",
        "MiniCPM3ForCausalLM", "SmolLM3ForCausalLM",
    ),
    65_536: ("ApertusForCausalLM", "OlmoHybridForCausalLM"),
    128_000: (
        "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration", "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM", "Step3p7FlashForCausalLM",
    ),
    131_072: (
        "Ernie4_5ForCausalLM", "Ernie4_5_MoeForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration",
        "Gemma4ForConditionalGeneration", "Glm4ForCausalLM", "Glm4MoeForCausalLM", "GptOssForCausalLM",
        "HYV3ForCausalLM", "Llama4ForConditionalGeneration", "MiMoV2FlashForCausalLM",
        "Mistral3ForConditionalGeneration",
        "MistralForCausalLM", "MistralModel", "MixtralForCausalLM", "MllamaForConditionalGeneration",
        "MuseGlimmerForConditionalGeneration", "PhiMoEForCausalLM", "SolarOpenForCausalLM",
    ),
    163_840: ("DeepseekV32ForCausalLM",),
    196_608: ("MiniMaxM2ForCausalLM",),
    202_752: ("Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM"),
    262_144: ("BailingHybridForCausalLM", "JambaForCausalLM", "Ministral3ForCausalLM"),
    524_288: ("MiniMaxM3SparseForConditionalGeneration", "SeedOssForCausalLM"),
    1_048_576: ("DeepseekV4ForCausalLM", "KimiLinearForCausalLM"),
}  # fmt: skip


class Context(NamedTuple):
    """limit: the most that may be asked for, None when not stated; start: the default where it is less than that.

    stated: the length field alone; yarn: the original length times the factor, for a YaRN model.
    """

    limit: int | None
    start: int | None = None
    stated: int | None = None
    yarn: int | None = None


class Rope(NamedTuple):
    """One rope setting: its type, by what it stretches positions, and the length that it stretches."""

    kind: str
    factor: float | None
    original: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Rope | None:
        """A setting as an option spells it, None for a factor that is no number of a context's size."""
        kind = settings.get("rope_type", settings.get("type", "default"))
        factor, original = settings.get("factor"), settings.get("original_max_position_embeddings")
        if isinstance(original, bool) or not isinstance(original, int) or not 0 < original <= 1 << 40:
            original = None
        if factor is None:
            return cls(str(kind), None, original)
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not abs(factor) <= 1 << 40:
            return None
        return cls(str(kind), factor, original)


def scaled(length: int, ropes: Iterable[Rope]) -> int:
    """A stated length times the factors that it does not hold yet."""
    for rope in ropes:
        if rope.kind not in _INCLUDED and rope.factor is not None and rope.factor > 0:
            length = min(int(length * rope.factor), 1 << 40)
    return length


def context_of(text: Fields, top: Fields, architecture: str) -> Context:
    """Both lengths of a config. Raises BadInput for a length that is no whole number."""
    given = [n for n in (text.maybe(name, high=1 << 40) for name in _LENGTHS) if n is not None]
    model_max = text.maybe("model_max_length", high=1 << 62)
    if model_max is not None:
        given = [model_max]
    class_default = next((n for n, names in _CLASS_LENGTHS.items() if architecture in names), None)
    if not given and class_default is not None:
        text.took_default("max_position_embeddings")
        given = [class_default]
    if not given:
        text.took_default("max_position_embeddings")
        return Context(None)
    stated = min(given)
    ropes = list(_ropes(text)) or list(_ropes(top))
    gemma3 = "gemma3" in str(text.values.get("model_type", ""))
    length = stated if gemma3 else scaled(stated, ropes)
    original = text.maybe("original_max_position_embeddings", high=1 << 40)
    if original is not None and any(rope.kind == "longrope" for rope in ropes):
        return Context(length, original if original < length else None, stated)
    return Context(length, None, stated, None if gemma3 else _yarn(ropes))


def _yarn(ropes: Iterable[Rope]) -> int | None:
    """The original length times the factor of a YaRN setting that states both."""
    for rope in ropes:
        if rope.kind == "yarn" and rope.original is not None and rope.factor is not None and rope.factor > 0:
            return min(int(rope.original * rope.factor), 1 << 40)
    return None


def _ropes(fields: Fields) -> Iterator[Rope]:
    """Each rope setting; newer files keep one per kind of layer. Raises BadInput for one that cannot be right."""
    for name in ("rope_parameters", "rope_scaling"):
        settings = fields.sub(name)
        if settings is None:
            continue
        nested = [key for key, value in settings.values.items() if isinstance(value, Mapping)]
        inside = [found for found in map(settings.sub, nested) if found is not None]
        for one in inside or [settings]:
            yield _rope(one, fields, name)
        settings.close_settings(_ROPE_LISTS)


def _rope(one: Fields, holder: Fields, name: str) -> Rope:
    """One setting, its fields read one by one so that a misspelt one is noticed."""
    if one is not holder and one.values and not _ROPE_FIELDS.intersection(one.values):
        raise one.bad("", f"an object with {' or '.join(sorted(_ROPE_FIELDS))}", "holds none of a rope's fields")
    kind, stretch = one.raw("rope_type", "type")[1], one.raw("factor")[1]
    one.raw("original_max_position_embeddings")
    found = Rope.of(one.values)
    if found is None:
        raise holder.bad(name, "an object whose factor is a number")
    if stretch is not None and kind is None:
        raise one.missing("rope_type", "type")
    if found.kind == "yarn" and stretch is None:
        raise one.missing("factor")
    if found.kind == "yarn" and found.original is None:
        one.took_default("original_max_position_embeddings")
    return found
