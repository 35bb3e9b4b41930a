"""Results remembered by what a model is, not by what it equals: hashing a model's tensors costs more than planning it.

Plans made many times, as by a slider or a search for remedies, change options and keep the model. What is remembered
keeps its model alive, so that no other one can take its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from operator import is_
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
D = TypeVar("D", bound=dict[Any, Any])
_KEPT: list[dict[Any, Any]] = []


def remembered(found: D) -> D:
    """A mapping of results, which `forget` empties as well."""
    _KEPT.append(found)
    return found


def make_room(found: dict[Any, Any], most: int) -> None:
    """Drops the oldest results where there are as many as may be kept, for one more; safe while others use them."""
    if len(found) >= most:  # several at once: to find the first of a dict takes long
        for old in [*found][: 1 + most // 8]:
            found.pop(old, None)  # another thread may have taken it


class Key:
    """Values to look results up by, hashed once: nested settings take longer to hash than many a result to find."""

    __slots__ = ("_hash", "parts")

    def __init__(self, *parts: Hashable) -> None:
        self.parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and self._hash == other._hash and self.parts == other.parts)


def of_last(function: F) -> F:
    """Remembers the last result of a pure function, for the very same arguments: those of one plan, one after another.

    Only for values that are replaced rather than changed, and for results that rest on nothing else.
    """
    nothing: tuple[tuple[object, ...], Any] = ((), None)
    last: dict[str, tuple[tuple[object, ...], Any]] = remembered({})

    @wraps(function)
    def looked_up(*args: Any) -> Any:
        known, result = last.get("last", nothing)
        if len(known) == len(args) and all(map(is_, known, args)):
            return result
        result = function(*args)
        last["last"] = args, result
        return result

    return looked_up  # type: ignore[return-value]  # wraps keeps what it takes and gives


def by_identity(size: int, key: Callable[..., Hashable]) -> Callable[[F], F]:
    """Remembers the last `size` results of a pure function by the identity of its first argument and a key of all.

    key: given the same arguments, everything else that the result depends on. What raises is not remembered.
    """

    def decorate(function: F) -> F:
        found: dict[tuple[int, Hashable], tuple[object, Any]] = remembered({})

        @wraps(function)
        def looked_up(subject: object, *args: Any) -> Any:
            at = (id(subject), key(subject, *args))
            known = found.get(at)
            if known is not None:
                return known[1]
            result = function(subject, *args)
            make_room(found, size)
            found[at] = subject, result
            return result

        return looked_up  # type: ignore[return-value]  # wraps keeps what it takes and gives

    return decorate


def forget() -> None:
    """Forgets every result: for whoever replaces what they rest on, such as fitted constants, or closes a window,
    whose models are large. A thread that plans meanwhile finds them anew.
    """
    for found in _KEPT:
        found.clear()
