"""Module names in skip lists and quantisation maps, matched against tensor groups.

A name may be a whole path ("model.layers.0.mlp.gate"), one word ("lm_head"), a glob ("*.self_attn*") or a
regular expression ("re:.*self_attn.*"). Prefixes such as "model.language_model." make no difference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Final

from kvplanner.errors import BadInput, NotModelled
from kvplanner.record import NamedTuple

_PREFIXES: Final = frozenset({"model", "language_model", "backbone", "transformer", "encoder", "thinker"})
ANY_LAYER: Final = -1
_EXPERT: Final = r"\bexperts\.\d+(?=\.|$|\*)"
_UNBOUNDED: Final = r"[*+]|\{\d*,\}"
MAX_NAME: Final = 400
_MOST_DIGITS: Final = 6


class Matcher(NamedTuple):
    """One name, ready to compare.

    layer: the one it names, ANY_LAYER for "layers.*", None for a name that says nothing of layers.
    outside: the whole path of something beside the layers ("model.transformer.ff_out" is Molmo's head, and a layer's
    own ff_out is another module).
    """

    text: str
    layer: int | None
    pattern: re.Pattern[str] | None
    outside: bool = False


def parse_name(text: str, where: str) -> Matcher:
    """A name of a list. Raises BadInput for one that is too long or no valid expression."""
    if not 0 < len(text) <= MAX_NAME:
        raise BadInput(f"holds a name of {len(text)} characters", where, f"Expected 1 to {MAX_NAME}")
    if text.startswith("re:"):
        return Matcher(text, None, _expression(text[3:], where))
    # Lists of some models hold five hundred names: no regular expression where splitting does.
    short = path = text.removesuffix(".weight")
    head, dot, rest = short.partition(".")
    while dot and head in _PREFIXES:
        short = rest
        head, dot, rest = short.partition(".")
    if "experts." in short:
        short = re.sub(_EXPERT, "experts.0", short)
    if head == "layers" and dot:
        number, _, rest = short[len("layers.") :].partition(".")
        if number == "*" or (number.isdecimal() and len(number) <= _MOST_DIGITS):
            layer = ANY_LAYER if number == "*" else int(number)
            return Matcher(rest, layer, _glob(rest) if "*" in rest or "?" in rest else None)
    if "*" in short or "?" in short or "[" in short:
        return Matcher(short, None, _glob(short))
    return Matcher(short, None, None, outside=short != path and "." not in short and short != "layers")


@lru_cache(maxsize=2048)
def _glob(text: str) -> re.Pattern[str]:
    """The glob itself, or the glob as the path of a parent module. Runs of stars cost no more than one."""
    text = re.sub(r"\*+", "*", text)
    if text.count("*") > 8:
        raise NotModelled(f"the pattern {text[:60]!r} has more than 8 stars", "", "Give the names in full")
    return re.compile(f"(?:{translate(text)})|(?:{translate(text + '.*')})")


@lru_cache(maxsize=512)
def _expression(text: str, where: str) -> re.Pattern[str]:
    """A regular expression of an untrusted file: at most three open repeats and none nested, so that it ends soon."""
    text = re.sub(r"(\.\*){2,}", ".*", text)
    if len(re.findall(_UNBOUNDED, re.sub(r"\\.", "", text))) > 3 or re.search(r"\)[*+{]", text):
        raise NotModelled(f"holds the expression {text[:60]!r}, which may take forever", where, "Use plain names")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput(f"holds {text[:60]!r}, which is no regular expression ({error})", where, "Correct it") from error


def covers(matcher: Matcher, layer: str, names: Sequence[str]) -> bool:
    """Whether a name covers a module.

    layer: "layers.7." or "" outside the layers; names: the module's path below it, in every spelling.
    """
    if matcher.text.startswith("re:") and matcher.pattern is not None:
        return any(
            matcher.pattern.match(start + layer + name) is not None
            for name in names
            for start in ("model.", "language_model.model.", "")
        )
    if (matcher.layer == ANY_LAYER and not layer) or (matcher.outside and layer.startswith("layers.")):
        return False
    full = names if matcher.layer is not None else [layer + name for name in names]
    if matcher.pattern is not None:
        return any(matcher.pattern.match(name) is not None for name in full)
    if not matcher.text:
        return True
    if matcher.layer is None and "." not in matcher.text:
        return any(matcher.text in name.split(".") for name in full)
    return any(name == matcher.text or name.startswith(matcher.text + ".") for name in full)
