"""Results remembered by what a model is, not by what it equals: hashing a model's tensors costs more than planning it.

Plans made many times, as by a slider or a search for remedies, change options and keep the model. What is remembered
keeps its model alive, so that no other one can take its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_KEPT: list[dict[Any, Any]] = []


def by_identity(size: int, key: Callable[..., Hashable]) -> Callable[[F], F]:
    """Remembers the last `size` results of a pure function by the identity of its first argument and a key of all.

    key: given the same arguments, everything else that the result depends on. What raises is not remembered.
    """

    def decorate(function: F) -> F:
        found: dict[tuple[int, Hashable], tuple[object, Any]] = {}
        _KEPT.append(found)

        @wraps(function)
        def remembered(subject: object, *args: Any) -> Any:
            at = (id(subject), key(subject, *args))
            known = found.get(at)
            if known is not None:
                return known[1]
            result = function(subject, *args)
            while len(found) >= size:
                found.pop(next(iter(found), at), None)  # the oldest; another thread may have taken it
            found[at] = subject, result
            return result

        return remembered  # type: ignore[return-value]

    return decorate


def forget() -> None:
    """Forgets every result: for whoever replaces what they rest on, such as fitted constants."""
    for found in _KEPT:
        found.clear()
