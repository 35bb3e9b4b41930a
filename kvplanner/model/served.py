"""Which releases of vLLM list which architecture, as their registries say.

resources/architectures/vllm.json holds names and releases, made by packaging/build_vllm_registry.py from
vllm/model_executor/models/registry.py of the releases that it names; it is read only when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kvplanner.files import shipped
from kvplanner.record import NamedTuple

Release = tuple[int, int]
# Names for whatever transformers can run: not of one architecture, and in releases between.
_ANY: Final = "Transformers"
_CONVERTED: Final = ("ForSequenceClassification", "RewardModel", "ForRewardModeling", "EmbeddingModel", "Model")


class Served(NamedTuple):
    """Releases of an architecture, as (minor, patch) of 0.x.

    first: the earliest release read that lists it; absent: the latest one before that was read too and does not, None
    where the earliest of all has it. last: the last that ran it, None while the newest does.
    """

    first: Release
    absent: Release | None
    last: Release | None


@cache
def served() -> Mapping[str, Served]:
    """Every architecture of the registries that were read."""
    import json

    body: dict[str, Any] = json.loads(shipped("architectures", "vllm.json").read_bytes())
    read = [_release(text) for text in body["read"]]
    last = {name: _release(text) for text, names in body["last"].items() for name in names}
    found: dict[str, Served] = {}
    for text, names in body["since"].items():
        first = _release(text)
        absent = max((release for release in read if release < first), default=None)
        found.update((name, Served(first, absent, last.get(name))) for name in names if not name.startswith(_ANY))
    return found


def served_by(architecture: str) -> Served | None:
    """The releases of an architecture; of a conversion that no registry lists (Qwen3ForSequenceClassification) those of
    the decoder that it is made of. None where nothing is known.
    """
    known = served().get(architecture)
    if known is not None:
        return known
    stem = next((architecture.removesuffix(end) for end in _CONVERTED if architecture.endswith(end)), None)
    return served().get(f"{stem}ForCausalLM") if stem else None


def _release(text: str) -> Release:
    minor, _, patch = text.removeprefix("0.").partition(".")
    return int(minor), int(patch or 0)
