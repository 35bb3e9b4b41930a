"""What SGLang does for single architectures: one row each, beside the general rules (0.5.23, paths below srt/).

windows: configs/model_config.py is_hybrid_swa_model. extra_buffer: arg_groups/overrides.py. attention: the files of
arg_groups/model_overrides. media, media_graphs: configs/model_config.py.
"""

from __future__ import annotations

from typing import Final

from kvplanner.record import NamedTuple


class Attention(NamedTuple):
    """The default attention back end by compute capability: 10.x, 9.0, 8.x and less, 12.x; "" for the general rule."""

    sm100: str = ""
    sm90: str = ""
    other: str = ""
    sm120: str = ""


class Quirk(NamedTuple):
    """What is special to an architecture.

    windows: sliding-window layers get a pool of their own. inclusive: the class counts its own window whole (others one
    token less). states: the radix cache keeps recurrent states. extra_buffer: it may track them in a second buffer.
    deepseek: one of the DeepSeek family. media: takes images, audio or video. media_graphs: and still captures prefill
    graphs; media_on_request: only with --enable-multimodal. whole_stages: each pipeline stage builds all layers.
    draft_unread: its config states the layers of its own draft under a name that the budget does not read. alone: the
    class builds no pipeline. page: page size that it forces, 0 for none. window_ratio: another default. max_running:
    requests at once where none is set, None for the general rule.
    """

    windows: bool = False
    inclusive: bool = False
    states: bool = False
    extra_buffer: bool = False
    deepseek: bool = False
    media: bool = False
    media_graphs: bool = False
    media_on_request: bool = False
    whole_stages: bool = False
    draft_unread: bool = False
    alone: bool = False
    attention: Attention = Attention()
    page: int = 0
    window_ratio: float = 0.8
    max_running: int | None = None


_PLAIN: Final = Quirk()
_STATES: Final = Quirk(states=True, extra_buffer=True)
_QWEN_STATES: Final = _STATES._replace(draft_unread=True)
_NEMOTRON: Final = _STATES._replace(attention=Attention("trtllm_mha"), whole_stages=True)
_MEDIA: Final = Quirk(media=True)
_FAMILY: Final = Quirk(deepseek=True)
_TRTLLM_OR_FA3: Final = Attention("trtllm_mha", "fa3", "triton")
_TRTLLM_OR_TRITON: Final = Attention("trtllm_mha", "triton", "triton", "triton")
_FA3_FROM_AMPERE: Final = Attention("trtllm_mha", "fa3", "fa3", "fa3")
_GEMMA4: Final = Quirk(windows=True, attention=_TRTLLM_OR_TRITON)
_STEP: Final = Quirk(windows=True, attention=Attention("fa4", "fa3", "", "fa4"))
_HYBRID_QWEN: Final = _QWEN_STATES._replace(media=True, media_graphs=True)

_ROWS: Final[dict[str, Quirk]] = {
    "GptOssForCausalLM": Quirk(windows=True, attention=_TRTLLM_OR_FA3._replace(sm120="triton")),
    "GraniteSWAForCausalLM": Quirk(windows=True),
    "GraniteMoeSWAForCausalLM": Quirk(windows=True),
    "Llama4ForConditionalGeneration": Quirk(windows=True, inclusive=True, media=True, media_on_request=True,
                                            attention=_TRTLLM_OR_FA3._replace(sm120="triton")),
    "MiMoV2ForCausalLM": Quirk(windows=True, media=True, attention=Attention("fa4")),
    "MiMoV2FlashForCausalLM": Quirk(windows=True, attention=Attention("fa4")),
    "Step3p5ForCausalLM": _STEP,
    "Step3p7ForConditionalGeneration": _STEP._replace(media=True),
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4._replace(media=True),
    "Gemma4UnifiedForConditionalGeneration": _GEMMA4._replace(media=True),
    "LagunaForCausalLM": Quirk(windows=True),
    "MellumForCausalLM": Quirk(windows=True),
    "DeepseekV4ForCausalLM": Quirk(windows=True, inclusive=True, page=256, window_ratio=0.1, max_running=256),
    "KimiLinearForCausalLM": _STATES,
    "Qwen3NextForCausalLM": _QWEN_STATES._replace(alone=True),
    "Qwen3_5ForCausalLM": _QWEN_STATES,
    "Qwen3_5MoeForCausalLM": _QWEN_STATES,
    "Qwen3_5ForConditionalGeneration": _HYBRID_QWEN,
    "Qwen3_5MoeForConditionalGeneration": _HYBRID_QWEN,
    "BailingMoeV2_5ForCausalLM": _STATES,
    "BailingMoeV3ForCausalLM": _STATES,
    "BailingMoeV3VLForConditionalGeneration": _STATES._replace(media=True),
    "KimiK3ForConditionalGeneration": _STATES._replace(media=True, media_graphs=True),
    "MiniCPMV4_6ForConditionalGeneration": _STATES._replace(media=True),
    "NemotronHForCausalLM": _NEMOTRON,
    "NemotronHPuzzleForCausalLM": _NEMOTRON,
    "FalconH1ForCausalLM": _STATES._replace(attention=Attention("triton"), alone=True),
    "GraniteMoeHybridForCausalLM": _STATES._replace(attention=Attention("flashinfer")),
    "JetNemotronForCausalLM": Quirk(states=True, attention=Attention("triton")),
    "Lfm2ForCausalLM": Quirk(states=True, attention=Attention("flashinfer"), alone=True),
    "Lfm2MoeForCausalLM": Quirk(states=True, attention=Attention("flashinfer"), alone=True),
    "ZayaForCausalLM": Quirk(states=True),
    "Exaone4ForCausalLM": Quirk(attention=_FA3_FROM_AMPERE),
    "ExaoneMoEForCausalLM": Quirk(attention=_FA3_FROM_AMPERE),
    "Olmo2ForCausalLM": Quirk(attention=_FA3_FROM_AMPERE),
    "DeepseekV3ForCausalLM": _FAMILY,
    "DeepseekV32ForCausalLM": _FAMILY,
    "KimiK25ForConditionalGeneration": Quirk(deepseek=True, media=True, media_graphs=True),
    "MistralLarge3ForCausalLM": _FAMILY,
    "PixtralForConditionalGeneration": Quirk(deepseek=True, media=True),
    "GlmMoeDsaForCausalLM": _FAMILY,
    "LongcatFlashForCausalLM": _FAMILY,
    "MiniMaxM3SparseForConditionalGeneration": Quirk(media=True, media_graphs=True, page=128),
    "MiniMaxM3ForCausalLM": Quirk(page=128),
    "Gemma3ForConditionalGeneration": Quirk(media=True, media_on_request=True),
    "Step3VLForConditionalGeneration": Quirk(media=True, media_on_request=True),
    "Cohere2VisionForConditionalGeneration": Quirk(media=True, media_graphs=True),
    "PaddleOCRVLForConditionalGeneration": Quirk(media=True, media_graphs=True),
    **dict.fromkeys((
        "DeepseekVL2ForCausalLM", "Ernie4_5_VLMoeForConditionalGeneration",
        "Gemma3nForConditionalGeneration", "Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration",
        "GlmOcrForConditionalGeneration", "LlavaLlamaForCausalLM", "LlavaForConditionalGeneration",
        "LlavaQwenForCausalLM", "Lfm2VlForConditionalGeneration", "LightOnOCRForConditionalGeneration", "MiniCPMO",
        "MiniCPMV", "Mistral3ForConditionalGeneration", "MllamaForConditionalGeneration", "NemotronH_Nano_VL_V2",
        "Qwen2AudioForConditionalGeneration", "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration", "Qwen3ASRForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration", "KimiVLForConditionalGeneration", "InternVLChatModel",
        "InternS1ForConditionalGeneration", "Phi4MMForCausalLM", "VoxtralForConditionalGeneration",
        "WhisperForConditionalGeneration", "DotsVLMForCausalLM",
        "DotsOCRForCausalLM", "DeepseekOCRForCausalLM", "MiDashengLMModel", "StepVLForConditionalGeneration",
    ), _MEDIA),
}  # fmt: skip

# Vision configs whose class has no num_hidden_layers: their depth has another name and counts as 24.
DEPTH_NOT_READ: Final = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Qwen3_5", "Qwen3Omni", "Glm4v", "GlmOcr")
# Architectures whose default back end for 10.x depends on how the radix cache keeps states.
PAGED_BY_STRATEGY: Final = ("Qwen3NextForCausalLM", "Qwen3_5MoeForConditionalGeneration",
                            "Qwen3_5ForConditionalGeneration")  # fmt: skip


def quirk(architecture: str) -> Quirk:
    """The row of an architecture; without one, a row that changes nothing."""
    return _ROWS.get(architecture, _PLAIN)
