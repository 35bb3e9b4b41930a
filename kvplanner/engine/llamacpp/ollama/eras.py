"""What Ollama's releases before 0.30 do otherwise, as data: defaults, which of its two engines runs what, who places.

Read from the tagged sources of Ollama: envconfig/config.go, server/sched.go, llm/memory.go, llm/server.go,
fs/ggml/ggml.go, llama/llama.go and Makefile.sync (the llama.cpp that a release is built with).
"""

from __future__ import annotations

from typing import Final, Literal

from kvplanner.engine.llamacpp.builds import Build, build_of
from kvplanner.errors import BadInput
from kvplanner.record import NamedTuple

Release = tuple[int, int, int]
# "estimate": llm/memory.go counts layers by a rough estimate of everything; "layout": layers are laid out in what is
# free beside a graph, which the own engine measures and llama.cpp's runner estimates.
Placing = Literal["estimate", "layout"]


class Era(NamedTuple):
    """The rules of a release.

    context: tokens where nobody set them, 0 for the tiers of 0.15.5. slots: requests at once that are tried where
    nobody set them. own: architectures that Ollama's own engine runs, others run in llama.cpp. own_places, places: how
    layers are placed for each engine. flash: architectures with flash attention where nobody said; automatic: of
    llama.cpp's runner, whether it decides itself. one_slot: architectures that get one slot. backwards: layers are
    placed from the last. beside: weights are totalled without the cache and with the output. per_layer: the cache is
    counted layer by layer, windows among them. vision: the graph of vision is counted with the last layer.
    build: of llama.cpp that stands in for the vendored one, by its rules. unified: slots share cells.
    batched: a micro-batch is as long as the batch, else at most 512. gpt_oss: what its graph is counted as with some
    layers on GPUs: twice what it is with all, the same, or the one formula there is. spare_largest: the room left for
    one more layer is that of the largest group of tensors.
    """

    first: Release
    context: int
    slots: tuple[int, ...]
    own: frozenset[str]
    own_places: Placing
    places: Placing
    flash: frozenset[str] = frozenset()
    automatic: bool = False
    one_slot: tuple[str, ...] = ("mllama",)
    backwards: bool = True
    beside: bool = True
    per_layer: bool = True
    vision: bool = True
    build: Build = build_of("b6400")
    unified: bool = False
    batched: bool = False
    gpt_oss: Literal["twice", "same", "none"] = "none"
    spare_largest: bool = False


OLDEST: Final[Release] = (0, 5, 0)
# The first release whose GGUF models run in llama-server.
SERVER: Final[Release] = (0, 30, 0)
_OLD: Final = build_of("b3000")
_2025_AUGUST: Final = build_of("b6200")


def _eras() -> tuple[Era, ...]:
    """Every era, the newest first: each says what changed since the one before it."""
    found = [Era(OLDEST, 2048, (4, 1), frozenset(), "estimate", "estimate", backwards=False, beside=False,
                 per_layer=False, vision=False, build=_OLD, unified=True)]  # fmt: skip

    def add(first: Release, own: str = "", flash: str = "", without: str = "", **more: object) -> None:
        last = found[-1]
        found.append(
            last._replace(first=first, own=(last.own | {*own.split()}) - {*without.split()},
                          flash=last.flash | {*flash.split()}, **more)  # type: ignore[arg-type]  # fields of an era, by name
        )  # fmt: skip

    add((0, 6, 0), "gemma3")
    add((0, 6, 3), beside=True, per_layer=True)
    add((0, 6, 5), "mistral3")
    add((0, 6, 7), "llama4", context=4096, slots=(2, 1))
    add((0, 7, 0), "mllama qwen25vl", backwards=True, spare_largest=True)
    add((0, 7, 1), vision=True, spare_largest=False)
    add((0, 9, 5), "gemma3n")
    add((0, 10, 0), slots=(1,))
    add((0, 11, 0), "gpt-oss", gpt_oss="twice")
    add((0, 11, 3), gpt_oss="same")
    add((0, 11, 5), build=_2025_AUGUST, unified=False, gpt_oss="none")
    add((0, 11, 8), flash="gpt-oss")
    add((0, 11, 11), own_places="layout")
    add((0, 12, 0), "qwen3")
    add((0, 12, 2), "qwen3moe")
    add((0, 12, 4), flash="qwen3 qwen3moe", build=build_of("b6400"))
    add((0, 12, 5), without="qwen3")
    add((0, 12, 6), "qwen3", flash="gemma3")
    add((0, 12, 7), "qwen3vl qwen3vlmoe", one_slot=("mllama", "qwen3vl"))
    add((0, 12, 8), flash="qwen3vl qwen3vlmoe")
    add((0, 12, 11), places="layout")
    add((0, 13, 0), "deepseek2")
    add((0, 13, 2), flash="mistral3")
    add((0, 13, 3), batched=True)
    add((0, 13, 4), "olmo3", flash="olmo3", automatic=True)
    add((0, 13, 5), build=build_of("b7400"))
    add((0, 14, 3), "glm4moelite lfm2", flash="glm4moelite lfm2")
    add((0, 15, 5), "qwen3next", flash="qwen3next", context=0, one_slot=("mllama", "qwen3vl", "qwen3next", "lfm2"))
    add((0, 17, 1), "nemotron_h nemotron_h_moe qwen35 qwen35moe lfm2moe",
        flash="nemotron_h nemotron_h_moe qwen35 qwen35moe lfm2moe",
        one_slot=("mllama", "qwen3vl", "qwen35", "qwen3next", "lfm2", "nemotron_h"))  # fmt: skip
    add((0, 20, 0), "gemma4")
    add((0, 20, 4), flash="gemma4")
    return tuple(reversed(found))


ERAS: Final = _eras()


def release(version: str | None) -> Release | None:
    """A release as numbers, None where none was named. Raises BadInput for what is no release."""
    if version is None:
        return None
    parts = version.lstrip("v").split("-")[0].split(".")
    if len(parts) < 2 or not all(part.isdecimal() and len(part) <= 9 for part in parts[:3]):
        raise BadInput(f"{version[:40]!r} is no release of Ollama", "--engine-version", "Write it as 0.30 or 0.12.6")
    numbers = [int(part) for part in parts[:3]]
    if len(numbers) == 2:  # the last release of that minor number, as "newest" is meant
        numbers.append(_LAST_OF_A_MINOR)
    return numbers[0], numbers[1], numbers[2]


_LAST_OF_A_MINOR: Final = 99


def era_of(version: str | None) -> Era | None:
    """The rules of a release before 0.30, None for those since. Raises BadInput for older than 0.5, and no release."""
    found = release(version)
    if found is None or found >= SERVER:
        return None
    if found < OLDEST:
        raise BadInput(
            "releases before 0.5 are not modelled: their estimate and their llama.cpp changed from week to week, and "
            "their logs are too few to check rules on",
            f"--engine-version {(version or '')[:40]}", "Plan for 0.5 or newer, or for llama.cpp's build with "
            "--engine llamacpp --engine-version b3000",
        )  # fmt: skip
    return next(era for era in ERAS if found >= era.first)
