"""NamedTuple as typing's, for a start that waits for a hundred of them.

`typing.NamedTuple` turns each annotation of a field into a ForwardRef, has every one compiled, and has the constructor
of every class compiled too: nine tenths of what making such a class costs. Nothing here asks for the annotations, which
stay the texts that they are, and constructors of as many fields differ in nothing but names: each number of fields has
its code compiled once. What a class has and does is as collections.namedtuple documents it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import _tuplegetter, namedtuple
    from functools import cache
    from types import FunctionType

    @cache
    def _constructor(count):
        """The constructor of a named tuple with so many fields, under names of no meaning."""
        return namedtuple("Template", [f"field{at}" for at in range(count)]).__new__

    @cache
    def _field(at):
        return _tuplegetter(at, f"Field number {at}")

    def _make(cls, iterable):
        """A tuple of this class from as many values as it has fields."""
        made = tuple.__new__(cls, iterable)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **fields):
        """The same with other values for some fields."""
        values, places = [*self], self._places
        try:
            for name in fields:
                values[places[name]] = fields[name]
        except KeyError:
            unknown = [name for name in fields if name not in places]
            raise ValueError(f"Got unexpected field names: {unknown!r}") from None
        return tuple.__new__(self.__class__, values)

    def _asdict(self):
        """Values by field."""
        return dict(zip(self._fields, self, strict=True))

    def _shown(self):
        values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({values})"

    def _as_plain(self):
        return tuple(self)

    _SHARED = {
        "__slots__": (), "_make": classmethod(_make), "_replace": _replace, "__replace__": _replace, "_asdict": _asdict,
        "__repr__": _shown, "__getnewargs__": _as_plain,
    }  # fmt: skip

    class _Maker(type):
        """Has a class statement end in a named tuple: its annotated names are fields, the rest is taken over."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            if bases != (NamedTuple,):
                raise TypeError(f"{name}: a named tuple has no other base; take typing.NamedTuple for a generic one")
            if "__annotate_func__" in body:  # Python 3.14 evaluates annotations later, unless they are texts
                raise TypeError(f"{name}: its module must have `from __future__ import annotations`")
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name}: a field without a default follows one that has one")
            if wrong := next((field for field in fields if field.startswith("_")), None):
                raise ValueError(f"{name}: a field cannot begin with an underscore: {wrong!r}")
            template = _constructor(len(fields))
            code = template.__code__.replace(co_varnames=(template.__code__.co_varnames[0], *fields))
            new = FunctionType(code, template.__globals__, "__new__", tuple(defaults.values()) or None)
            made = {**_SHARED, "_fields": fields, "_field_defaults": defaults, "__match_args__": fields, "__new__": new,
                    "_places": {field: at for at, field in enumerate(fields)}}  # fmt: skip
            made.update(body)
            made.update((field, _field(at)) for at, field in enumerate(fields))
            made.setdefault("__doc__", f"{name}({', '.join(fields)})")
            return type(name, (tuple,), made)

    class NamedTuple(metaclass=_Maker):
        """The base to write: `class Point(NamedTuple)` with annotated fields."""


__all__ = ["NamedTuple"]
