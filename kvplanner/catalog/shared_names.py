"""What Ollama's library and repositories of GGUF files call models, as a model of the catalogue in a mix.

"qwen3:8b", "llama3.1:70b-instruct-q8_0", "hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M", "ggml-org/gpt-oss-20b-GGUF". The names
of the library stand in resources/models/ollama_library.json with their source.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, Final

from kvplanner.catalog import models
from kvplanner.errors import PlannerError
from kvplanner.files import shipped
from kvplanner.record import NamedTuple

_HOST: Final = re.compile(r"(?:https?://)?(?:hf\.co|huggingface\.co|registry\.ollama\.ai)/", re.IGNORECASE)
_MIX: Final = re.compile(
    r"(?:^|[-_.:])((?:ud-)?i?q\d(?:_(?:k_xl|k_[sml]|k|[01]|xxs|xs|nl|s|m))?|fp16|f16|bf16|mxfp4(?:_moe)?)$",
    re.IGNORECASE,
)
_SPELLED: Final = {"FP16": "F16", "MXFP4_MOE": "MXFP4", "Q4": "Q4_K_M", "Q8": "Q8_0"}
_MADE: Final = re.compile(r"[-_.](?:i1[-_])?gguf$", re.IGNORECASE)
# Models trained for it are published in Q4_0.
_TRAINED: Final = re.compile(r"[-_.]qat$", re.IGNORECASE)
_PART: Final = re.compile(r"(?:-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE)
_LATEST: Final = "latest"
_LONGEST: Final = 300


class Shared(NamedTuple):
    """What such a name stands for: a model of the catalogue, and the mix of its file as a weight format.

    weight_format "": as it is published, whose files keep its own format.
    """

    model: str
    weight_format: str


@cache
def _library() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shipped("models", "ollama_library.json").read_bytes())
    return found


def find(name: str) -> Shared | None:
    """What a name of Ollama's library or of a repository of GGUF files stands for; None where that is not known."""
    plain = _HOST.sub("", name.strip())
    if not plain or len(plain) > _LONGEST or "\\" in plain:
        return None
    stem, _, tag = plain.partition(":")
    return _repository(stem, tag) if "/" in stem.removeprefix("library/") else _of_library(plain)


def _of_library(name: str) -> Shared | None:
    stem, _, tag = name.removeprefix("library/").lower().partition(":")
    known: dict[str, str] = _library()["names"].get(stem, {})
    size, mix = _taken(tag or _LATEST)
    mix = mix or str(known.get("mix", ""))
    words = [size, *(size.rsplit("-", count)[0] for count in range(1, size.count("-") + 1))]
    for word in (*words, *([_LATEST] if not size else [])):
        held = known.get(word, "")
        held = known.get(held, held)  # "latest" names a size
        if held and word != "mix":
            whole = _catalogued(f"{stem}-{size}") if word != size else ""
            return _as(whole or held, mix, own=True)
    found = _catalogued(f"{stem}-{size}" if size not in ("", _LATEST) else stem)
    return _as(found, mix, own=True) if found else None


def of_file(name: str) -> Shared | None:
    """What the name of a GGUF file stands for, the mix at its end: "Qwen3-8B-Q4_K_M.gguf"; None where it has none."""
    plain, mix = _taken(_PART.sub("", name.replace("\\", "/").rpartition("/")[2]))
    found = (_catalogued(plain) or _catalogued(plain.partition("_")[2])) if mix and plain else ""
    return _as(found, mix) if found else None


def _repository(stem: str, tag: str) -> Shared | None:
    """A repository "owner/name-GGUF", perhaps with the mix behind a colon: Q4_K_M where it names none."""
    plain, _ = _taken(_MADE.sub("", stem))
    mix = _taken(tag)[1] or _taken(_MADE.sub("", stem))[1]
    found = _catalogued(plain) or _catalogued(plain.rpartition("/")[2])
    name = plain.rpartition("/")[2]
    if not found and "_" in name:  # some put the owner of the original before it: "Qwen_Qwen3-8B"
        found = _catalogued(name.partition("_")[2])
    return _as(found, mix) if found else None


def _taken(text: str) -> tuple[str, str]:
    """A text without the mix at its end, and the mix."""
    if _TRAINED.search(text):
        return _TRAINED.sub("", text), "Q4_0"
    match = _MIX.search(text)
    if match is None:
        return text, ""
    mix = match[1].upper()
    return text[: match.start()], _SPELLED.get(mix, mix)


def _catalogued(name: str) -> str:
    try:
        return models.find(name).id
    except PlannerError:
        return ""


def _as(model: str, mix: str, *, own: bool = False) -> Shared | None:
    """With a mix that can be planned: the usual one where none is named, which is MXFP4 for models published in it.

    own: the store keeps such a model as it is published.
    """
    from kvplanner.model.whatif import WHATIF_FORMATS

    found = _catalogued(model)
    if found and mix in ("", "MXFP4") and models.find(found).quantization == "mxfp4":
        return Shared(found, "" if own else "GGUF MXFP4")
    mix = mix or str(_library()["mix"])
    name = f"GGUF {mix}"
    return Shared(found, name) if found and name in WHATIF_FORMATS else None
