"""What a sweep runs over: one setting and its values, read from words such as "context=4k..128k" or "tp=1,2,4".

A setting is named by what it means in any engine (context, users, tp ...) or by the engine's own flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.option import Option, OptionValue, Role
from kvplanner.engine.protocol import Engine
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.values import parse_value
from kvplanner.errors import BadInput, UnknownName
from kvplanner.record import NamedTuple
from kvplanner.solve.change import GPUS, WEIGHT_FORMAT
from kvplanner.units import parse_count

USERS: Final = "users"
RELEASE: Final = "release"
# Settings that are no option of an engine, by the words that name them.
_OWN: Final = {
    USERS: USERS, "load": USERS, RELEASE: RELEASE, "version": RELEASE, "engine-version": RELEASE,
    "format": WEIGHT_FORMAT, "weight-format": WEIGHT_FORMAT, GPUS: GPUS, "gpu": GPUS,
}  # fmt: skip
ROLES: Final[dict[str, Role]] = {
    "context": "context", "max-requests": "max_requests", "step-tokens": "step_tokens",
    "batched-tokens": "step_tokens", "tp": "tensor_parallel", "pp": "pipeline_parallel", "dp": "data_parallel",
    "ep": "expert_parallel", "utilisation": "budget_share", "utilization": "budget_share", "kv-dtype": "kv_dtype",
    "kv-bytes": "kv_bytes", "eager": "eager",
}  # fmt: skip
MOST_POINTS: Final = 4096
_MOST_USERS: Final = 1 << 20
_MOST_GPUS: Final = 64
_RANGE: Final = ".."
# From here on a range of whole numbers is divided evenly in ratio, not in difference.
_WIDE: Final = 4
# Inner points keep this many binary digits: steps of less than a hundredth, and numbers that can be read.
_DIGITS: Final = 8
_EXAMPLE: Final = "Write for example --over context=4k..128k, --over tp=1,2,4 or --over release"


class Axis(NamedTuple):
    """name: an engine's option, or USERS, RELEASE, WEIGHT_FORMAT, GPUS. flag: as a command line spells it."""

    name: str
    flag: str
    values: tuple[OptionValue, ...]


def axis(request: PlanRequest, text: str, points: int) -> Axis:
    """What `text` names, with its values: a list, a range of `points` steps, or all that the setting may have.

    Raises UnknownName for a setting that the engine does not have, BadInput for values that it cannot have and where
    users are to be changed of no load.
    """
    name, equals, span = (part.strip() for part in text.partition("="))
    if not name or (equals and not span):
        raise BadInput(f"{text[:60]!r} names no setting and values", "--over", _EXAMPLE)
    if not 1 <= points <= MOST_POINTS:
        raise BadInput(f"{points:,} points cannot be made", "--points", f"Give 1 to {MOST_POINTS:,}")
    chosen = engine(request.engine)
    plain = name.lstrip("-").replace("_", "-").lower()
    own = _OWN.get(plain)
    option = None if own else _option(chosen, request.version, plain, name)
    if option is not None:
        values = _of_option(option, chosen.allowed(option.name, request.model), span, points)
        return Axis(option.name, option.spelled, _distinct(values))
    if own == USERS:
        return Axis(USERS, "--load", _distinct(_users(request, span, points)))
    if own == RELEASE:
        return Axis(RELEASE, "--engine-version", _distinct(_releases(chosen, span)))
    if own == GPUS:
        return Axis(GPUS, "--gpu", _distinct(_gpu_counts(request, span, points)))
    return Axis(WEIGHT_FORMAT, "--weight-format", _distinct(_formats(request, chosen, span)))


def _option(chosen: Engine, version: str | None, plain: str, name: str) -> Option:
    """The option that a role's word or the engine's flag names. Raises UnknownName."""
    role = ROLES.get(plain)
    by_role = role_option(chosen, version, role) if role else None
    if by_role is not None:
        return by_role
    options = chosen.options(version)
    wanted = {f"--{plain}", f"-{name.lstrip('-')}"}
    found = next((o for o in options if wanted & {*o.flags, o.spelled, f"--{o.name.replace('_', '-')}"}), None)
    if found is not None:
        return found
    from difflib import get_close_matches

    roles = [word for word, meant in ROLES.items() if role_option(chosen, version, meant) is not None]
    words = (*_OWN, *roles, *(o.spelled for o in options))
    near = tuple(get_close_matches(plain, words, n=3, cutoff=0.5)) or (USERS, RELEASE, *roles[:3])
    raise UnknownName(f"{chosen.title} has no setting {name[:60]!r}", "--over", near, _EXAMPLE)


def _distinct(values: Sequence[OptionValue]) -> tuple[OptionValue, ...]:
    """Each value once, in the order in which they are given."""
    found = tuple(dict.fromkeys(values))
    if len(found) > MOST_POINTS:
        raise BadInput(f"{len(found):,} values are too many", "--over", f"Give {MOST_POINTS:,} at most")
    return found


def _ends(span: str) -> tuple[str, str] | None:
    low, dots, high = (part.strip() for part in span.partition(_RANGE))
    if not dots:
        return None
    if not low or not high:
        raise BadInput(f"{span[:60]!r} has an open end", "--over", _EXAMPLE)
    return low, high


def _words(span: str) -> list[str]:
    found = [part.strip() for part in span.split(",") if part.strip()]
    if not found:
        raise BadInput(f"{span[:60]!r} holds no value", "--over", _EXAMPLE)
    return found


def _of_option(option: Option, allowed: Sequence[int], span: str, points: int) -> Sequence[OptionValue]:
    ends = _ends(span) if span else None
    if ends is not None:
        if option.type not in ("int", "tokens", "float", "bytes"):
            raise BadInput(f"{option.spelled} has no range", "--over", f"List values: {', '.join(option.choices[:4])}")
        low, high = (parse_value(option, end) for end in ends)
        return _between(low, high, points, allowed)
    if span:
        return [parse_value(option, word) for word in _words(span)]
    if option.type == "bool":
        return [False, True]
    found: Sequence[OptionValue] = option.choices or allowed
    if not found:
        raise BadInput(f"{option.spelled} may have any number", "--over", "Give values or a range, such as "
                       f"--over {option.spelled.lstrip('-')}=4k..128k")  # fmt: skip
    return found


def _between(low: OptionValue, high: OptionValue, points: int, allowed: Sequence[int] = ()) -> list[OptionValue]:
    """Values from end to end: those that are allowed, every one where they are few, else `points` of them."""
    if isinstance(low, bool | str) or isinstance(high, bool | str) or low > high:
        raise BadInput(f"{low} to {high} is no range", "--over", "Give the lower end first")
    if isinstance(low, float) or isinstance(high, float):
        hundredths = range(round(low * 100), round(high * 100) + 1)
        if len(hundredths) <= points and all(abs(end * 100 - round(end * 100)) < 1e-6 for end in (low, high)):
            return [part / 100 for part in hundredths]
        return [round(low + (high - low) * part / max(points - 1, 1), 4) for part in range(points)]
    inside = [value for value in allowed if low <= value <= high]
    if inside and len(inside) <= points:
        return [*inside]
    return [*whole_steps(low, high, points)]


def whole_steps(low: int, high: int, points: int) -> list[int]:
    """Whole numbers from low to high, both among them, ascending: every one where there are no more than `points`.

    A wide range is divided evenly in ratio, and its inner numbers keep few binary digits.
    """
    if high - low < points:
        return list(range(low, high + 1))
    if points == 1:
        return [low]
    if low < 1 or high < low * _WIDE:
        return sorted({low + (high - low) * part // (points - 1) for part in range(points)})
    rate = log(high / low) / (points - 1)
    found = [low]
    for part in range(1, points - 1):
        value = _plain(round(low * exp(rate * part)))
        found.append(min(max(value, found[-1] + 1), high - (points - 1 - part)))
    return [*found, high]


def _plain(value: int) -> int:
    grain = 1 << max(value.bit_length() - _DIGITS, 0)
    return (value + grain // 2) // grain * grain


def _count(text: str, most: int) -> int:
    try:
        value = parse_count(text)
    except ValueError as error:
        raise BadInput(str(error), "--over", _EXAMPLE) from None
    if not 1 <= value <= most:
        raise BadInput(f"{value:,} is out of range", "--over", f"Give 1 to {most:,}")
    return value


def _counts(span: str, points: int, most: int) -> list[OptionValue]:
    ends = _ends(span)
    if ends is not None:
        return _between(_count(ends[0], most), _count(ends[1], most), points)
    return [_count(word, most) for word in _words(span)]


def _users(request: PlanRequest, span: str, points: int) -> list[OptionValue]:
    if request.load is None:
        raise BadInput("a request's tokens are needed", "--over users", "Say them with --load 1@1500+500")
    return _counts(span or "1..256", points, _MOST_USERS)


def _gpu_counts(request: PlanRequest, span: str, points: int) -> list[OptionValue]:
    devices = request.machine.devices
    if not devices or any(device.gpu.id != devices[0].gpu.id for device in devices):
        raise BadInput("the GPUs are not alike", "--over gpus", "Name one kind with --gpu")
    return _counts(span or "1,2,4,8", points, _MOST_GPUS)


def _releases(chosen: Engine, span: str) -> list[OptionValue]:
    """Releases from old to new; a range takes the known ones between its ends."""
    known = list(reversed(chosen.versions))
    ends = _ends(span) if span else None
    if ends is None:
        return [*(_words(span) if span else known)]
    unknown = [end for end in ends if end not in known]
    if unknown:
        raise UnknownName(f"{unknown[0]!r} is no release with rules of its own", "--over release", tuple(known[-6:]),
                          "Give one of them as an end, or a list of releases")  # fmt: skip
    first, last = (known.index(end) for end in ends)
    if first > last:
        raise BadInput(f"{span[:60]!r} is no range", "--over release", "Give the older release first")
    return [*known[first : last + 1]]


def _formats(request: PlanRequest, chosen: Engine, span: str) -> list[OptionValue]:
    """Weight formats as they are named; without names, the model's own and all that can be planned for it."""
    from kvplanner.engine.whatif import refused
    from kvplanner.model.whatif import WHATIF_FORMATS

    own = request.model.weight_format
    if span:
        names = {"".join(c for c in name.lower() if c.isalnum()): name for name in (own, *WHATIF_FORMATS)}
        return [_format(word, names) for word in _words(span)]
    why_not = refused(request.model, chosen, request.version, request.machine)
    return [own, *(name for name in WHATIF_FORMATS if name != own and name not in why_not)]


def _format(word: str, names: dict[str, str]) -> str:
    plain = "".join(c for c in word.lower() if c.isalnum())
    if not plain:
        raise BadInput(f"{word[:40]!r} is no weight format", "--over format", "Name one, for example fp8")
    exact = names.get(plain) or names.get(f"gguf{plain}")
    near = [name for key, name in names.items() if key.startswith(plain)]
    if exact or len(near) == 1:
        return exact or near[0]
    raise UnknownName(f"{word[:40]!r} is no weight format", "--over format", tuple(near or names.values())[:8],
                      "Name one of them")  # fmt: skip
