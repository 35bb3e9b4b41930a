"""What llama.cpp calls the architectures of models that are planned without a GGUF file, and what it loads of them."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.whatif import as_format
from kvplanner.errors import NotModelled
from kvplanner.model.formats import MXFP4, WeightFormat, dense, ggml
from kvplanner.model.model import Model
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory, TensorGroup

# config.json's model_type → general.architecture (conversion/ of llama.cpp, October 2026).
_NAMES: Final[dict[str, str]] = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "mistral3": "mistral3", "llama4": "llama4",
    "llama4_text": "llama4", "qwen2": "qwen2", "qwen2_moe": "qwen2moe", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
    "qwen2_vl": "qwen2vl", "qwen2_5_vl": "qwen2vl", "qwen3_vl": "qwen3vl", "qwen3_vl_text": "qwen3vl",
    "qwen3_vl_moe": "qwen3vlmoe", "qwen3_next": "qwen3next", "qwen3_5": "qwen35", "qwen3_5_text": "qwen35",
    "qwen3_5_moe": "qwen35moe", "qwen3_5_moe_text": "qwen35moe", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3": "gemma3", "gemma3_text": "gemma3", "gemma3n": "gemma3n", "gemma3n_text": "gemma3n", "gemma4": "gemma4",
    "gemma4_text": "gemma4", "phi": "phi2", "phi3": "phi3", "phimoe": "phimoe", "gpt_oss": "gpt-oss",
    "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "deepseek_v32": "deepseek32", "kimi_k2": "deepseek2",
    "glm4": "glm4", "glm4_moe": "glm4moe", "glm_moe_dsa": "glm-dsa", "cohere": "command-r", "cohere2": "cohere2",
    "falcon": "falcon", "falcon_h1": "falcon-h1", "mamba": "mamba", "mamba2": "mamba2", "jamba": "jamba",
    "granite": "granite", "granitemoe": "granitemoe", "granitemoehybrid": "granitehybrid", "nemotron": "nemotron",
    "nemotron_h": "nemotron_h", "olmo2": "olmo2", "olmoe": "olmoe", "exaone": "exaone", "exaone4": "exaone4",
    "lfm2": "lfm2", "lfm2_moe": "lfm2moe", "smollm3": "smollm3", "seed_oss": "seed_oss", "minimax_m2": "minimax-m2",
    "kimi_linear": "kimi-linear", "hunyuan_v1_dense": "hunyuan-dense", "hunyuan_v1_moe": "hunyuan-moe",
    "ernie4_5": "ernie4_5", "ernie4_5_moe": "ernie4_5-moe", "bailing_moe": "bailingmoe", "olmo3": "olmo2",
    "qwen3_vl_moe_text": "qwen3vlmoe", "ministral3": "mistral3", "glm4v_text": "glm4", "glm4_moe_lite": "deepseek2",
    "solar_open": "glm4moe", "falcon_mamba": "mamba", "internlm3": "llama", "mimo_v2_flash": "mimo2",
    "nemotron-nas": "deci", "minimax_m1": "minimax-01", "minimax_m3": "minimax-m3", "minimax_m3_vl": "minimax-m3",
    "deepseek_v4": "deepseek4", "muse_glimmer_text": "muse-glimmer", "step3p7": "step35", "phi3_v": "phi3",
    "nomic_bert": "nomic-bert", "xlm-roberta": "bert", "bailing_hybrid": "bailingmoe3",
}  # fmt: skip
# Without a file and without a wish: what most people load.
DEFAULT_FORMAT: Final = "GGUF Q4_K_M"
ORIGINAL: Final = "GGUF MXFP4 (as published)"
_EIGHT_BITS: Final = ggml("Q8_0")


def gguf_architecture(model_type: str) -> str:
    """The architecture's name in GGUF, the model type itself where none is known."""
    return _NAMES.get(model_type, model_type)


def as_gguf(model: Model, *, rest: WeightFormat = _EIGHT_BITS) -> tuple[Model, str]:
    """The model as llama.cpp would load it, and what was assumed for that, "" for a GGUF file or a chosen mix.

    rest: what a model of experts in MXFP4 has beside them in the files that people load.

    Raises NotModelled where its tensors are not known, or where it is kept in a format that no GGUF file has.
    """
    if model.inventory is None:
        raise NotModelled(f"the tensors of {model.spec.architecture} are not known", model.id, "Open its GGUF file")
    if model.spec.quantization == "gguf":
        return model._replace(spec=renamed(model)), ""
    if model.spec.quantization == "mxfp4":
        spec = renamed(model)._replace(quantization="gguf")
        changed = model._replace(spec=spec, inventory=_published(model.inventory, rest), weight_format=ORIGINAL)
        said = rest.name if rest is _EIGHT_BITS else "16 bits"
        return (
            changed,
            f"No GGUF file is named: experts in MXFP4 and all else in {said}, as the published files have it",
        )
    found = as_format(model, DEFAULT_FORMAT)
    return found._replace(spec=renamed(found)), f"No GGUF file is named: planned as if in {DEFAULT_FORMAT[5:]}"


def renamed(model: Model) -> ModelSpec:
    """The spec with the name that llama.cpp has for its architecture."""
    return model.spec._replace(model_type=gguf_architecture(model.spec.model_type))


def _published(inventory: Inventory, rest: WeightFormat) -> Inventory:
    """gpt-oss as its GGUF files store it: MXFP4 experts, `rest` for other matrices, 32-bit vectors and routers."""

    def change(group: TensorGroup) -> TensorGroup:
        if len(group.shape) != 2 or group.kind in ("norm", "router") or group.path.endswith(".bias"):
            return group._replace(format=dense("float32"))
        return group._replace(format=MXFP4 if group.kind == "experts" else rest)

    blocks = tuple(tuple(change(group) for group in block) for block in inventory.blocks)
    return inventory._replace(blocks=blocks, outside=tuple(change(group) for group in inventory.outside))
