"""Where vLLM's own model classes depart from the general rules of sharding, placing and dtype.

Each entry was seen in what the engine (0.33) allocates for that class, or is read from its source
(model_executor/models/*.py). A class that is not listed follows the general rules.
"""

from __future__ import annotations

from typing import Final

from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import TensorGroup

# Routers kept in fp32 whatever the model's dtype.
_FP32_ROUTERS: Final = ("Glm4Moe", "Ernie4_5_Moe", "MiniMaxM2")
# Query and key norms of full width, whole on every rank.
_WHOLE_NORMS: Final = ("Olmo2", "Olmo3", "OlmoHybrid")
# Built on every pipeline stage although only the first or the last uses it.
_EMBEDDING_EVERYWHERE: Final = (
    "Qwen2Moe", "Qwen3Moe", "Qwen3Next", "Qwen3_5", "Gemma", "GptOss", "NemotronH", "GraniteMoeHybrid",
)  # fmt: skip
_HEAD_EVERYWHERE: Final = ("Qwen2Moe", "Qwen3Moe", "Qwen3Next", "GptOss", "NemotronH")
_NORM_EVERYWHERE: Final = ("Qwen2Moe", "Qwen3Moe", "Gemma", "GptOss", "GraniteMoeHybrid")


def fp32_router(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether the engine widens this router to fp32."""
    return group.kind == "router" and len(group.shape) == 2 and spec.architecture.startswith(_FP32_ROUTERS)


def fp32_norm(group: TensorGroup) -> bool:
    """Whether this norm computes and stays in fp32: the key norm of a sparse-attention indexer."""
    return group.kind == "norm" and "indexer" in group.path


def whole_norm(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether a norm that could be split is held whole."""
    return group.kind == "norm" and spec.architecture.startswith(_WHOLE_NORMS)


def on_every_stage(group: TensorGroup, spec: ModelSpec) -> bool:
    """Whether a tensor of the first or last pipeline stage is built on all of them."""
    names = {"embedding": _EMBEDDING_EVERYWHERE, "head": _HEAD_EVERYWHERE, "norm": _NORM_EVERYWHERE}.get(group.kind)
    return names is not None and spec.architecture.startswith(names)
