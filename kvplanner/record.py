"""NamedTuple as typing's, for a start that waits for a hundred of them.

`typing.NamedTuple` turns each annotation of a field into a ForwardRef, and so has every one compiled: two thirds of
what making such a class costs. Nothing here asks for those, so here the annotations stay the texts that they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple

    # What collections.namedtuple has made itself, and what only a class statement leaves behind.
    _MADE = frozenset({"__annotations__", "__module__", "__dict__", "__weakref__"})

    class _Maker(type):
        """Has a class statement end in a named tuple: its annotated names are fields, the rest is taken over."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            if bases != (NamedTuple,):
                raise TypeError(f"{name}: a named tuple has no other base; take typing.NamedTuple for a generic one")
            fields = body.get("__annotations__", {})
            made = namedtuple(
                name,
                fields,
                defaults=[body[field] for field in fields if field in body],
                module=body["__module__"],
            )
            made.__annotations__ = fields
            for key, value in body.items():
                if key not in fields and key not in _MADE:
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Maker):
        """The base to write: `class Point(NamedTuple)` with annotated fields."""


__all__ = ["NamedTuple"]
