"""NamedTuple as typing's, for a start that waits for a hundred of them; and fields that are worked out when read.

`typing.NamedTuple` turns each annotation of a field into a ForwardRef, has every one compiled, and has the constructor
of every class compiled too: nine tenths of what making such a class costs. Nothing here asks for the annotations, which
stay the texts that they are, and constructors of as many fields differ in nothing but names: each number of fields has
its code compiled once. What a class has and does is as collections.namedtuple documents it.

A field that `late` names may be given as `later(find)`: most of what a search plans and throws away is never read.
Whoever reads the field, compares it or copies it gets the value. `find` must be pure: it rests on frozen values alone,
and may run later, on another thread, or twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

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


T = TypeVar("T")


class Later:
    """A value, or how to find it."""

    __slots__ = ("_find", "_found")

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find: Callable[[], Any] | None = find
        self._found: Any = None

    def __call__(self) -> Any:
        """The value."""
        find = self._find
        if find is not None:
            self._found = find()
            self._find = None  # what it rests on may go
        return self._found

    def __eq__(self, other: object) -> bool:
        return bool(self() == (other() if isinstance(other, Later) else other))

    def __hash__(self) -> int:
        return hash(self())

    def __repr__(self) -> str:
        return repr(self())

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy holds the value."""
        return _known, (self(),)


def _known(value: T) -> T:
    return value


if TYPE_CHECKING:

    def later(find: Callable[[], T]) -> T:
        """A value that `find` gives when it is asked for: for a field that `late` names."""
        ...

else:
    later = Later


def late(*names: str) -> Callable[[type[T]], type[T]]:
    """Lets fields of a named tuple be given by `later`."""

    def decorate(kind: type[T]) -> type[T]:
        fields: tuple[str, ...] = getattr(kind, "_fields")  # noqa: B009 - not of its type
        for name in names:
            setattr(kind, name, _read(fields.index(name)))
        return kind

    return decorate


def _read(at: int) -> Any:
    def read(self: tuple[Any, ...]) -> Any:
        value = self[at]
        return value() if value.__class__ is Later else value

    return property(read)


__all__ = ["Later", "NamedTuple", "late", "later"]
