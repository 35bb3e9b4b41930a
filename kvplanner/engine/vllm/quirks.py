"""Where vLLM treats an architecture unlike others: one row for each, read by every room of this engine.

An architecture without a row follows the general rules. A row was seen in what the engine (0.33) allocates for that
class, or is read from its source: model_executor/models/*.py, and the file that a field names. A new architecture is
a reader in model/families, at most one row here, and one test.
"""

from __future__ import annotations

from functools import cache
from typing import Final, Literal

from kvplanner.engine.vllm.settings import Version
from kvplanner.model.tensors import TensorKind
from kvplanner.record import NamedTuple


class NoFloat16(NamedTuple):
    """A config type that is not run in float16, and the first release that refuses it (config/model.py)."""

    config_type: str
    since: Version


class Item(NamedTuple):
    """The largest item of an encoder whose limit stands in the processor's settings, not in the config."""

    tokens: int
    patches: int


class Quirks(NamedTuple):
    """What an architecture has of its own.

    Settling: no_float16; largest_item_tokens: a step holds the largest video (0.33); wide_graphs: batches of up to 1024
    are captured; fp8_on_blackwell: its sparse attention has an 8-bit cache there unless another is asked for.
    Cache: image_prefix: image tokens see each other, so that causal kernels need a partner; expanded_latent: cached as
    ordinary heads; inclusive_window: one token more than the window; state_dtype: of the recurrent state where the
    config names none ("" where the config is not asked); assistant: its draft layers are a checkpoint of their own and
    read the model's cache; not_confirmed: why its cache is an estimate.
    Profile run: item; scaled_words: looked-up words are multiplied before the first layer, a kernel whose trial at
    compilation no start shows.
    Weights: fp32_router: routers are widened; plain_decays: decay rates keep the model's dtype; whole_norms: query and
    key norms of full width, whole on every rank; whole_tower: what of its encoder is not split;
    tower_quantised: its encoder and projector are built by the quantisation method too; split_like_words: small
    embeddings padded and split as the vocabulary; split_by_rows: paths split although they could be whole; not_built:
    parts of paths that are stored and not built; own_values: each layer has projections of its own for keys and values;
    second_to_last: the encoder's last layer is not built; unused_head: an embedding model built with its twin's head;
    every_stage: kinds built on all pipeline stages although only the first or the last uses them.
    Rotary tables: rotary_share: of a head, 0 without tables; rotary_axes: positions in three axes, tables four times as
    long, with axes_shortened until a release that no longer does so; rotary_fp32: in 4 bytes; rotary_factor: lengthens
    the table of full layers; two_bases: windowed and full layers have tables of their own.
    """

    no_float16: NoFloat16 | None = None
    largest_item_tokens: int = 0
    wide_graphs: bool = False
    fp8_on_blackwell: bool = False
    image_prefix: bool = False
    expanded_latent: bool = False
    inclusive_window: bool = False
    state_dtype: Literal["", "float32", "convolution"] = ""
    assistant: bool = False
    not_confirmed: str = ""
    item: Item = Item(0, 0)
    scaled_words: bool = False
    fp32_router: bool = False
    plain_decays: bool = False
    whole_norms: bool = False
    whole_tower: Literal["", "mlp", "attention", "all"] = ""
    tower_quantised: bool = False
    split_like_words: tuple[str, ...] = ()
    split_by_rows: tuple[str, ...] = ()
    not_built: tuple[str, ...] = ()
    own_values: bool = False
    second_to_last: bool = False
    unused_head: bool = False
    every_stage: tuple[TensorKind, ...] = ()
    rotary_share: float = 1.0
    rotary_axes: bool = False
    axes_shortened: bool = False
    rotary_fp32: bool = False
    rotary_factor: int = 1
    two_bases: bool = False


_NONE: Final = Quirks()
_ALL_STAGES: Final[tuple[TensorKind, ...]] = ("embedding", "head", "norm")
_INDEX_UNSURE: Final = "the index cache of its block-sparse layers is not modelled exactly"

# 12,845,056 pixels in patches of 14 (Qwen2-VL and 2.5), 16,777,216 in patches of 16; four patches a token.
_QWEN: Final = Quirks(item=Item(16_384, 65_536))
_KIMI: Final = Quirks(item=Item(4_096, 16_384))
_ENCODER: Final = Quirks(
    rotary_share=0, split_like_words=("position_embeddings", "token_type_embeddings"), not_built=("pooler", "lora")
)
_GEMMA: Final = Quirks(every_stage=("embedding", "norm"), scaled_words=True)
_GEMMA3: Final = _GEMMA._replace(two_bases=True)
_GEMMA4: Final = _GEMMA._replace(
    assistant=True, whole_tower="all", own_values=True, split_by_rows=("per_layer_model_projection",),
    not_built=("std_bias", "std_scale", "layer_scalar"),
)  # fmt: skip
_GLM4: Final = Quirks(rotary_share=0.5)
_MINIMAX: Final = Quirks(rotary_share=0.5)
_QWEN35: Final = _QWEN._replace(
    state_dtype="convolution", every_stage=("embedding",), rotary_share=0.25, rotary_axes=True,
    axes_shortened=True,
)  # fmt: skip

# A key is an architecture, or with a star the beginning of several; the longest that fits is an architecture's row.
ROWS: Final[dict[str, Quirks]] = {
    "BambaForCausalLM": Quirks(rotary_share=0),
    "Bert*": _ENCODER,
    "ChatGLM*": _GLM4,
    "Cohere2ForCausalLM": Quirks(inclusive_window=True),
    "Cohere2VisionForConditionalGeneration": Quirks(inclusive_window=True),
    "DeepseekV4ForCausalLM": Quirks(
        not_confirmed="its compressed caches are modelled from the engine's rules without a result to compare"
    ),
    "Ernie4_5_Moe*": Quirks(fp32_router=True),
    "Gemma*": _GEMMA,
    "Gemma2ForCausalLM": _GEMMA._replace(no_float16=NoFloat16("gemma2", (9, 1))),
    "Gemma3*": _GEMMA3,
    "Gemma3ForCausalLM": _GEMMA3._replace(no_float16=NoFloat16("gemma3_text", (10, 2))),
    "Gemma3ForConditionalGeneration": _GEMMA3._replace(
        no_float16=NoFloat16("gemma3", (9, 1)), image_prefix=True, rotary_factor=8
    ),
    "Gemma4*": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4._replace(image_prefix=True, largest_item_tokens=2496),
    "Glm4*": _GLM4,
    "Glm4ForCausalLM": _GLM4._replace(no_float16=NoFloat16("glm4", (9, 1))),
    "Glm4Moe*": _GLM4._replace(fp32_router=True),
    "Glm4MoeForCausalLM": _GLM4._replace(fp32_router=True),
    "Glm4v*": _GLM4._replace(rotary_axes=True),
    "GlmFor*": _GLM4,
    "GlmMoeDsa*": Quirks(fp8_on_blackwell=True),
    "GptOss*": Quirks(
        wide_graphs=True, rotary_fp32=True, every_stage=_ALL_STAGES
    ),
    "GraniteMoeHybrid*": Quirks(rotary_share=0, every_stage=("embedding", "norm")),
    "InternVLForConditionalGeneration": Quirks(whole_tower="attention"),
    "Jamba*": Quirks(rotary_share=0),
    "KimiK3*": _KIMI._replace(not_confirmed="its own prefill kernel may hold one more state block per request"),
    "Kimi*": _KIMI,
    "LlamaModel": Quirks(unused_head=True),
    "LlavaForConditionalGeneration": Quirks(second_to_last=True),
    "LlavaNextForConditionalGeneration": Quirks(second_to_last=True),
    "MiMoVL*": Quirks(item=Item(16_384, 65_536)),
    "MiMoV2*": Quirks(fp32_router=True),
    "MiniCPM3*": Quirks(expanded_latent=True),
    "MiniMaxM*": _MINIMAX,
    "MiniMaxForCausalLM": _MINIMAX,
    "MiniMaxM2*": _MINIMAX._replace(fp32_router=True),
    "MiniMaxM3*": _MINIMAX._replace(not_confirmed=_INDEX_UNSURE),
    "MiniMaxText01ForCausalLM": _MINIMAX,
    "MistralModel": Quirks(unused_head=True),
    "Mistral3ForConditionalGeneration": Quirks(tower_quantised=True),
    "Molmo2ForConditionalGeneration": Quirks(image_prefix=True),
    "MuseGlimmer*": Quirks(whole_tower="mlp"),
    "NemotronH*": Quirks(state_dtype="float32", fp32_router=True, rotary_share=0, every_stage=_ALL_STAGES),
    "OlmoHybrid*": Quirks(plain_decays=True, whole_norms=True),
    "Olmo2*": Quirks(whole_norms=True, rotary_share=0),
    "Olmo3*": Quirks(whole_norms=True),
    "Keye*": Quirks(not_built=("vision_model.head",)),
    "PaddleOCR*": Quirks(not_built=("vision_model.head", "packing_position_embedding")),
    "PaliGemmaForConditionalGeneration": Quirks(image_prefix=True),
    "PhiFor*": Quirks(rotary_share=0.4),
    "Phi4*": Quirks(rotary_share=0.75),
    "Plamo2ForCausalLM": Quirks(no_float16=NoFloat16("plamo2", (9, 1))),
    "Qwen*": _QWEN,
    "Qwen2Model": Quirks(unused_head=True),
    "Qwen2Moe*": Quirks(every_stage=_ALL_STAGES),
    "Qwen2VL*": _QWEN._replace(rotary_axes=True),
    "Qwen2_5Omni*": _QWEN._replace(rotary_axes=True),
    "Qwen2_5_VL*": _QWEN._replace(rotary_axes=True),
    "Qwen3Model": Quirks(unused_head=True),
    "Qwen3Moe*": Quirks(every_stage=_ALL_STAGES),
    "Qwen3Next*": Quirks(every_stage=("embedding", "head"), rotary_share=0.25),
    "Qwen3Omni*": _QWEN._replace(rotary_axes=True),
    "Qwen3VL*": _QWEN._replace(rotary_axes=True, axes_shortened=True),
    "Qwen3_5*": _QWEN35,
    "RobertaModel": _ENCODER._replace(rotary_share=1.0),
    "StableLm*": Quirks(rotary_share=0.25),
    "Starcoder2*": Quirks(rotary_share=0),
    "XLMRoberta*": _ENCODER,
    "CLIP*": Quirks(rotary_share=0),
    "FalconFor*": Quirks(not_built=("lm_head",)),
    "JAISLMHeadModel": Quirks(rotary_share=0),
    "ModernBert*": Quirks(two_bases=True),
    "Mpt*": Quirks(rotary_share=0),
    "MPT*": Quirks(rotary_share=0),
    "PersimmonForCausalLM": Quirks(rotary_share=0.5),
    "Phi4MMForCausalLM": Quirks(rotary_share=0.75, not_built=("lora",)),
    "RWForCausalLM": Quirks(not_built=("lm_head",)),
    "Siglip*": Quirks(rotary_share=0),
    "StableLMEpochForCausalLM": Quirks(rotary_share=0.25),
    "Whisper*": Quirks(rotary_share=0),
    "Zamba2*": Quirks(rotary_share=0),
}  # fmt: skip


@cache
def quirks(architecture: str) -> Quirks:
    """What an architecture has of its own: the row of its name, else the longest beginning that fits."""
    exact = ROWS.get(architecture)
    if exact is not None:
        return exact
    starts = (key for key in ROWS if key.endswith("*") and architecture.startswith(key[:-1]))
    return ROWS.get(max(starts, key=len, default=""), _NONE)
