"""The language model inside a multimodal one: whichever decoder its dictionary names."""

from __future__ import annotations

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.config import classes
from kvplanner.model.config.fields import Fields, shown
from kvplanner.model.config.reading import Draft, Reading

# By the `model_type` of the dictionary, where it is not the type whose generating class transformers names.
_TYPES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "ministral3": "Ministral3ForCausalLM",
    "mixtral": "MixtralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5": "Qwen3_5ForCausalLM", "qwen3_5_text": "Qwen3_5ForCausalLM", "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
    "phi": "PhiForCausalLM", "phi3": "Phi3ForCausalLM", "internlm2": "InternLM2ForCausalLM",
    "internlm3": "InternLM3ForCausalLM", "granite": "GraniteForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM", "cohere": "CohereForCausalLM", "cohere2": "Cohere2ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM", "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM", "smollm3": "SmolLM3ForCausalLM", "stablelm": "StableLmForCausalLM",
    "exaone4": "Exaone4ForCausalLM", "gpt_oss": "GptOssForCausalLM", "glm4": "Glm4ForCausalLM",
    "glm": "GlmForCausalLM", "hunyuan_vl_text": "HunYuanDenseV1ForCausalLM",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM", "minicpm": "MiniCPMForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM", "ernie4_5_moe": "Ernie4_5_MoeForCausalLM",
    "hyperclovax": "HyperCLOVAXForCausalLM",
    "nemotron_h": "NemotronHForCausalLM", "opt": "OPTForCausalLM", "kimi_linear": "KimiLinearForCausalLM",
    "qwen2_5_omni_text": "Qwen2ForCausalLM", "qwen3_omni_moe_text": "Qwen3MoeForCausalLM",
    "paddleocr_vl_text": "Ernie4_5ForCausalLM", "qwen2_vl_text": "Qwen2ForCausalLM", "seed_oss": "SeedOssForCausalLM",
    "olmo2": "Olmo2ForCausalLM", "apertus": "ApertusForCausalLM", "qwen3_asr_text": "Qwen3ForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM", "qwen3_vl_moe_text": "Qwen3MoeForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM",
}  # fmt: skip


def wrapped_text(reading: Reading) -> Draft:
    """The decoder that the nested dictionary names, by its own architecture or by its type.

    Raises BadInput when it names none, NotModelled when nothing reads it.
    """
    text = reading.text
    names = text.texts("architectures") if text is not reading.top else None
    own = next((n for n in names or () if n in reading.readers), "")
    name = own or _TYPES.get(text.kind, "") or _generating(reading)
    if not name:
        if not text.kind:
            raise text.missing("model_type")
        if text is reading.top:
            raise _no_text(reading.top)
        raise NotModelled(f"is {shown(text.kind)}, which no reader of language models inside others understands",
                          text.named("model_type"), "A plan from file headers shows the weights")  # fmt: skip
    return reading.as_another(name, text)


def _no_text(top: Fields) -> BadInput:
    """The error for a file without the dictionary of its language model (Ultravox names it by id)."""
    named = top.values.get("text_model_id")
    by_id = f", and the file names its language model by id alone, {named}" if isinstance(named, str) else ""
    remedy = "Put the config.json of the language model in as text_config"
    return BadInput(f"is missing{by_id}", top.named("text_config"), remedy)


def _generating(reading: Reading) -> str:
    """The generating class beside the base class that transformers names for the dictionary's type, "" for none."""
    base = classes.base_model(reading.text.kind)
    name = f"{base.removesuffix('Model').removesuffix('Text')}ForCausalLM"
    return name if base and name in reading.readers else ""
