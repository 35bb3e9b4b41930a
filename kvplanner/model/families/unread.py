"""Architectures of vLLM's registry that have no reader: refused by name, since what their configs leave out costs much.

Names of model_executor/models/registry.py, 0.33, and of releases before it (_PREVIOUSLY_SUPPORTED_MODELS there); their
configs keep sizes in remote code, in several encoders, or in layers that run more than once. A folder's headers say
what they store all the same.
"""

from __future__ import annotations

from typing import Final

# By what keeps a config from telling the tensors.
_MANY_ENCODERS: Final = (
    "AriaForConditionalGeneration", "BagelForConditionalGeneration", "Blip2ForConditionalGeneration",
    "ChameleonForConditionalGeneration", "ColModernVBertForRetrieval", "Emu3ForConditionalGeneration",
    "FireRedASR2ForConditionalGeneration", "FunASRForConditionalGeneration", "FunAudioChatForConditionalGeneration",
    "FuyuForCausalLM", "GlmAsrForConditionalGeneration", "HCXVisionForCausalLM", "InternS1ProForConditionalGeneration",
    "IsaacForConditionalGeneration", "JinaVLForRanking", "KananaVForConditionalGeneration", "MiDashengLMModel",
    "MiniMaxVL01ForConditionalGeneration", "Molmo2ForConditionalGeneration",
    "MoonshotKimiaForCausalLM", "NemotronParseForConditionalGeneration", "OpenPanguVLForConditionalGeneration",
    "PrithviGeoSpatialMAE", "StepVLForConditionalGeneration", "TarsierForConditionalGeneration", "Terratorch",
)  # fmt: skip
_OWN_LAYERS: Final = (
    "ColBERTJinaRobertaModel", "InternLM2VEForCausalLM", "IQuestLoopCoderForCausalLM", "OuroForCausalLM",
    "PanguProMoEV2ForCausalLM", "Plamo2ForCausalLM",
)  # fmt: skip

NAMES: Final = (*_MANY_ENCODERS, *_OWN_LAYERS)


def why(architecture: str) -> str:
    """Why an architecture that vLLM knows is not read, "" for one that it does not know."""
    if architecture in _MANY_ENCODERS:
        return "which vLLM serves: the sizes of its encoders are not modelled here"
    return "which vLLM serves: its layers are not modelled here" if architecture in _OWN_LAYERS else ""
