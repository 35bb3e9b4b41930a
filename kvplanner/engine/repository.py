"""Other ways in which a command names its model: a repository of the Hub, a preset flag."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvplanner.engine.signature import Signature

# A GGUF file's own ending, behind the model's name: "-Q4_K_M.gguf", "-UD-Q4_K_XL-00001-of-00002.gguf".
_TAG: Final = re.compile(
    r"[-_.]((?:UD-)?(?:IQ|Q)\d(?:_[A-Z0-9]+)*|BF16|F16|F32|MXFP4(?:_MOE)?)(?:-\d{5}-of-\d{5})?(?:\.gguf)?$",
    re.IGNORECASE,
)


def presets(found: Signature, words: Sequence[str]) -> Iterator[str]:
    """The words with what preset flags stand for in their places."""
    means = dict(found.presets)
    for word in words:
        yield from means.get(word, (word,))


def of_hub(found: Signature, words: Sequence[str], environment: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """The words without the flags that name a repository, and its name with a tag: "ORG/NAME:Q4_K_M", "" for none.

    A file of it that is named gives the tag.
    """
    if not found.repo_flags:
        return tuple(words), ""
    kept: list[str] = []
    repository = next((environment[name] for name in found.repo_env if environment.get(name)), "")
    file = next((environment[name] for name in found.repo_file_env if environment.get(name)), "")
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in found.repo_flags:
            repository = value if equals else next(rest, "")
        elif name in found.repo_file_flags:
            file = value if equals else next(rest, "")
        else:
            kept.append(word)
    tag = tag_of(file)
    if repository and tag and ":" not in repository:
        repository = f"{repository}:{tag}"
    return tuple(kept), repository


def tag_of(file: str) -> str:
    """The quantisation that a GGUF file's name ends with, "" for none."""
    match = _TAG.search(file)
    return match[1] if match else ""
