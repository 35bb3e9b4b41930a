"""What the reports' loose model names mean: catalogue id, and the weight format where it is not the file's own.

Re-quantised repositories by others are read as the model in that format; where their rules differ from the usual
ones (layers left in 16 bits), the report's own weight figure shows it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from kvplanner.catalog import models
from kvplanner.errors import UnknownName

_QWEN36, _QWEN38 = "Qwen/Qwen3.6-27B", "Qwen/Qwen3.8-27B"
_GEMMA4 = "google/gemma-4-31B-it"

READ_AS: Final[dict[str, tuple[str, str | None]]] = {
    "meta-llama/Meta-Llama-3-8B": ("meta-llama/Meta-Llama-3-8B-Instruct", None),
    "Llama-2-7B": ("meta-llama/Llama-2-7b-hf", None),
    "Llama-2-70B": ("meta-llama/Llama-2-70b-hf", None),
    "Chinese-Alpaca-2 (Llama 2 7B class)": ("meta-llama/Llama-2-7b-hf", None),
    "TheBloke/CodeLlama-13B-Instruct-fp16": ("codellama/CodeLlama-13b-hf", None),
    "meta-llama/Llama-3.2-11B-Vision": ("meta-llama/Llama-3.2-11B-Vision-Instruct", None),
    "meta-llama/Llama-3.1-405B-FP8": ("meta-llama/Llama-3.1-405B-Instruct-FP8", None),
    'DeepSeek-R1-Distill-Llama-70B (as "Deepseek 70b")': ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", None),
    'DeepSeek-R1-Distill-Llama-70B (as "DeepSeek-R1:70B")': ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", None),
    "(Qwen2 1.5B with separate lm_head 151936x1536, e.g. DeepSeek-R1-Distill-Qwen-1.5B)": (
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", None,
    ),
    "allenai olmOCR 7B (Qwen2-VL-7B base)": ("Qwen/Qwen2-VL-7B-Instruct", None),
    "google/gemma-3-1b (size inferred from the weights)": ("google/gemma-3-1b-it", None),
    "google/gemma-4-31b-it": (_GEMMA4, None),
    "RedHatAI/Mistral-Small-3.1-24B-Instruct-2503-quantized.w8a8": (
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503", "INT8",
    ),
    "RedHatAI/Mixtral-8x7B-Instruct-v0.1-FP8": ("mistralai/Mixtral-8x7B-Instruct-v0.1", "FP8"),
    "TechxGenus/DeepSeek-Coder-V2-Lite-Instruct-AWQ": ("deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", "AWQ 4-bit"),
    "MiniMax-M2.7-AWQ": ("MiniMaxAI/MiniMax-M2.7", "AWQ 4-bit"),
    "Qwen2.5-32B FP8": ("Qwen/Qwen2.5-32B-Instruct", "FP8"),
    "Qwen3-30B-A3B FP8": ("Qwen/Qwen3-30B-A3B-FP8", None),
    "Qwen3-8B AWQ + EAGLE-3": ("Qwen/Qwen3-8B-AWQ", None),
    "unsloth/GLM-4.7-Flash-FP8-Dynamic": ("zai-org/GLM-4.7-Flash", "FP8"),
    "Qwen3.5-35B-A3B-GPTQ-4bit": ("Qwen/Qwen3.5-35B-A3B", "GPTQ 4-bit"),
    "qwen3.6-35b-a3b-nvfp4": ("nvidia/Qwen3.6-35B-A3B-NVFP4", None),
    "qwen3.6-27b-autoround-int4": (_QWEN36, "GPTQ 4-bit"),
    "Qwen3.6-27B AutoRound INT4": (_QWEN36, "GPTQ 4-bit"),
    "Qwen3.6-27B-FP8": (_QWEN36, "FP8 block"),
    "Qwen3.6-27B FP8": (_QWEN36, "FP8 block"),
    "Qwen3.6-27B NVFP4": ("nvidia/Qwen3.6-27B-NVFP4", None),
    "Qwen3.8-27B-FP8": (_QWEN38, "FP8 block"),
    "qwen3.8-27b-fp8": (_QWEN38, "FP8 block"),
    "Qwen/Qwen3.8-27B-FP8": (_QWEN38, "FP8 block"),
    "Qwen/Qwen3.8-27B (FP8)": (_QWEN38, "FP8 block"),
    "Qwen/Qwen3.8-27B (BF16)": (_QWEN38, None),
    "qwen3.8-27b-autoround-int4": (_QWEN38, "GPTQ 4-bit"),
    "cyankiwi/gemma-4-31B-it-AWQ-4bit": (_GEMMA4, "GPTQ 4-bit"),
    "Gemma 4 31B AutoRound INT4": (_GEMMA4, "GPTQ 4-bit"),
    "RedHatAI/gemma-4-31B-it-FP8-block": (_GEMMA4, "FP8 block"),
    "Qwen3.5-0.8B": ("Qwen/Qwen3.5-0.8B", None),
}  # fmt: skip


# Words that tell a weight format at the end of a name or in a report's quantisation, in the order to try.
_FORMATS: Final[tuple[tuple[str, str], ...]] = (
    (r"fp8[-_ ]?block", "FP8 block"),
    (r"fp8(?:[-_ ]dynamic)?", "FP8"),
    (r"(?:quantized\.)?w8a8|int8", "INT8"),
    (r"nvfp4|modelopt_fp4", "NVFP4"),
    (r"awq(?:[-_ ]?(?:4bit|int4))?", "AWQ 4-bit"),
    (r"gptq(?:[-_ ]?(?:4bit|int4))?|auto[-_]?round(?:[-_ ]?int4)?|w4a16|int4|4bit", "GPTQ 4-bit"),
)
_WORDLESS: Final = ("not seen", "class", "about ", "inferred", "stage)", " + ", "repo quant", "compose", "set-up")


def resolve(name: str, quantization: str) -> tuple[str, str | None]:
    """(catalogue id, what-if format or None) of a report's model name. Raises UnknownName."""
    if name in READ_AS:
        known, weight_format = READ_AS[name]
        return models.find(known).id, weight_format
    if any(word in name for word in _WORDLESS):
        raise UnknownName(f"{name!r} names no single model", "start-up report")
    try:
        return models.find(_of_its_publisher(name)).id, None
    except UnknownName:
        return _resolve_quantised(name, quantization)


def _of_its_publisher(name: str) -> str:
    """A bare name that several repositories have means the one of the publisher who has most models of that family."""
    same = [entry.id for entry in models.index() if entry.id.rpartition("/")[2] == name]
    if len(same) < 2:
        return name
    family = name.split("-")[0]
    owners = Counter(entry.id.split("/")[0] for entry in models.index() if f"/{family}-" in entry.id)
    return max(same, key=lambda known: owners[known.split("/")[0]])


def _resolve_quantised(name: str, quantization: str) -> tuple[str, str | None]:
    """A model that someone stored in another format: its name without the format's words, in that format."""
    plain = re.sub(r"\s*\(.*?\)", "", name).strip().rpartition("/")[2]
    told = f"{plain} {quantization}".lower()
    weight_format = next((title for words, title in _FORMATS if re.search(rf"(?<![a-z0-9])(?:{words})\b", told)), None)
    for words, _ in _FORMATS:
        plain = re.sub(rf"[-_. ](?:{words})\b", "", plain, flags=re.IGNORECASE)
    plain = re.sub(r"[-_ ](?:bf16|fp16)$", "", plain, flags=re.IGNORECASE)
    for candidate in (plain, f"{plain}-Instruct", f"{plain}-it"):
        try:
            entry = models.find(candidate)
        except UnknownName:
            continue
        return entry.id, None if entry.quantization else weight_format
    raise UnknownName(f"{name!r} is in no catalogue", "start-up report")
