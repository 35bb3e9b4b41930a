"""What a quantisation config comes down to: a default format, rules for single modules, and what engines must know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kvplanner.errors import BadInput
from kvplanner.model.config.fields import Fields
from kvplanner.model.formats import WeightFormat
from kvplanner.model.quantisation.names import Matcher, parse_name
from kvplanner.model.tensors import TensorKind
from kvplanner.record import NamedTuple

LINEAR_KINDS: Final[frozenset[TensorKind]] = frozenset({"attention", "state", "mlp", "experts"})
HEAD_TOO: Final[frozenset[TensorKind]] = LINEAR_KINDS | frozenset[TensorKind]({"head"})
VOCABULARY_TOO: Final[frozenset[TensorKind]] = HEAD_TOO | frozenset[TensorKind]({"embedding"})
EXPERT_KINDS: Final[frozenset[TensorKind]] = frozenset({"experts"})
# Far above any real list, and low enough that a hostile one costs seconds at most.
_MAX_NAMES: Final = 200_000
_MAX_PATTERNS: Final = 2000
_MAX_EXPRESSIONS: Final = 200


class Rule(NamedTuple):
    """What happens to the modules that a name covers. format None: they stay as they are.

    experts: how many experts of a layer the list named one by one, 0 when it named none.
    kinds: of what kinds a covered module must be, None for any; others are left to the rules and the default after it.
    """

    matcher: Matcher
    format: WeightFormat | None
    experts: int = 0
    kinds: frozenset[TensorKind] | None = None


class Scheme(NamedTuple):
    """name: as engines call it. default: of the matrices of `kinds` that no rule covers. The first rule wins.

    expert_format: of experts, where they differ from the default. kv_cache: what the checkpoint asks of the cache.
    traits: what an engine must support beyond the method itself ("act-order", "2:4 sparse" ...).
    """

    name: str
    default: WeightFormat | None
    kinds: frozenset[TensorKind] = LINEAR_KINDS
    rules: tuple[Rule, ...] = ()
    expert_format: WeightFormat | None = None
    kv_cache: str | None = None
    traits: tuple[str, ...] = ()


def name_rules(
    names: Iterable[str], format_: WeightFormat | None, where: str, kinds: frozenset[TensorKind] | None = None
) -> tuple[Rule, ...]:
    """One rule per name; experts that are named one by one become one rule that knows how many there were.

    Raises BadInput (naming `where`) for more names or patterns than any real list has.
    """
    counted: dict[Matcher, int] = {}
    for at, name in enumerate(names):
        if at >= _MAX_NAMES:
            raise BadInput(f"has more than {_MAX_NAMES} names", where, f"Expected at most {_MAX_NAMES}")
        matcher = parse_name(name, where)
        single = "experts.0" in matcher.text and matcher.pattern is None and ".0." in f".{matcher.text}."
        counted[matcher] = counted.get(matcher, 0) + single
    patterns = sum(matcher.pattern is not None for matcher in counted)
    expressions = sum(matcher.text.startswith("re:") for matcher in counted) if patterns else 0
    if patterns > _MAX_PATTERNS or expressions > _MAX_EXPRESSIONS:
        raise BadInput(
            f"has {patterns} patterns, of them {expressions} regular expressions", where,
            f"Expected at most {_MAX_PATTERNS} and {_MAX_EXPRESSIONS}",
        )  # fmt: skip
    return tuple(Rule(matcher, format_, count, kinds) for matcher, count in counted.items())


def skips(config: Fields, *names: str) -> tuple[Rule, ...]:
    """Rules from lists of module names that stay as they are; null or no list makes none."""
    return tuple(rule for name in names for rule in name_rules(config.texts(name) or (), None, config.named(name)))


def kv_cache(config: Fields) -> str | None:
    """What a checkpoint asks of the KV cache: "fp8", "nvfp4" or nothing.

    A word that engines do not know asks for nothing: "static" in AutoFP8's exports says how the scales that they
    store were found, and vLLM leaves the cache in 16 bits (get_kv_cache_quant_algo_string in its utils/torch_utils.py,
    0.33). Raises BadInput for a scheme of other widths.
    """
    name, value = config.raw("kv_cache_scheme", "kv_cache_quant_algo")
    if isinstance(value, Mapping):
        config.sub(name)
        found = {8: "fp8", 4: "nvfp4"}.get(bits) if isinstance(bits := value.get("num_bits"), int) else None
        if found is not None:
            return found
    elif value is None:
        return None
    elif isinstance(value, str):
        return value.lower() if value.upper() in ("FP8", "NVFP4") else None
    raise config.bad(name, 'an 8-bit or 4-bit scheme, "FP8" or "NVFP4"')
