"""The named tuples that most values are: as typing makes them, without a compiler at work for each field."""

from __future__ import annotations

import builtins
import copy
import pickle
import types
from typing import Any

import pytest

from kvplanner.record import NamedTuple, late, later


class Point(NamedTuple):
    """A place."""

    x: int
    y: int = 2
    name: str = ""

    @property
    def sum(self) -> int:
        """Of both."""
        return self.x + self.y

    def __str__(self) -> str:
        return f"{self.x}/{self.y}"


def test_a_record_is_a_tuple_with_names() -> None:
    point = Point(1)
    assert point == (1, 2, "")
    assert (point.x, point.y, point.sum, str(point)) == (1, 2, 3, "1/2")
    assert point._replace(x=5) == Point(5, name="")
    assert point._asdict() == {"x": 1, "y": 2, "name": ""}
    assert Point._fields == ("x", "y", "name")
    assert Point._field_defaults == {"y": 2, "name": ""}
    assert (Point.__doc__, Point.__module__, Point.__qualname__) == ("A place.", __name__, "Point")
    assert repr(point) == "Point(x=1, y=2, name='')"
    assert hash(point) == hash((1, 2, ""))


def test_a_record_does_what_typing_s_does() -> None:
    point = Point(1, name="a")
    assert Point._make([1, 2, "a"]) == point
    assert pickle.loads(pickle.dumps(point)) == copy.deepcopy(point) == point
    assert isinstance(pickle.loads(pickle.dumps(point)), Point)
    match point:
        case Point(x, y, name):
            assert (x, y, name) == (1, 2, "a")
    assert not hasattr(point, "__dict__")
    assert Point.__match_args__ == Point._fields
    with pytest.raises(TypeError, match="Expected 3 arguments, got 2"):
        Point._make([1, 2])
    with pytest.raises(ValueError, match="unexpected field names: \\['z'\\]"):
        point._replace(z=3)  # type: ignore[call-arg]  # what is refused
    with pytest.raises(AttributeError):
        setattr(point, "x", 3)  # noqa: B010 - what is refused


def test_fields_are_held_to_their_rules() -> None:
    def made(fields: dict[str, str], **defaults: object) -> type:
        return types.new_class("Made", (NamedTuple,), {}, lambda body: body.update(__annotations__=fields, **defaults))

    assert made({})() == ()
    assert made({"only": "int"})(3) == (3,)
    with pytest.raises(TypeError, match="without a default"):
        made({"a": "int", "b": "int"}, a=1)
    with pytest.raises(ValueError, match="underscore"):
        made({"_a": "int"})


def test_annotations_that_are_no_texts_are_refused() -> None:
    """Python 3.14 keeps them as a function then; a record would find no field."""

    def body(space: dict[str, object]) -> None:
        space["__annotate_func__"] = lambda _: {"x": int}

    with pytest.raises(TypeError, match="annotations"):
        types.new_class("Made", (NamedTuple,), {}, body)


def test_methods_may_ask_for_the_class_above() -> None:
    class Longer(NamedTuple):
        """With a cell for its class."""

        value: int

        def __len__(self) -> int:
            return super().__len__() + 1

    assert len(Longer(1)) == 2


def test_a_record_refuses_what_it_has_no_field_for() -> None:
    other: Any = Point
    with pytest.raises(TypeError, match="z"):
        other(1, z=3)
    with pytest.raises(TypeError, match="x"):
        other()


def test_its_annotations_stay_texts() -> None:
    assert Point.__annotations__ == {"x": "int", "y": "int", "name": "str"}


def test_another_base_is_refused() -> None:
    with pytest.raises(TypeError, match="no other base"):
        types.new_class("Wide", (NamedTuple, Point))


def test_no_annotation_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object, **named: object) -> None:
        raise AssertionError(f"compiled: {given}")

    monkeypatch.setattr(builtins, "compile", refused)

    class Made(NamedTuple):
        """Of a type that nobody has."""

        value: Any

    assert Made(1).value == 1


@late("size", "name")
class Thing(NamedTuple):
    size: int
    colour: str = ""
    name: str = "plain"


def test_a_field_is_found_once_and_when_it_is_read() -> None:
    asked: list[int] = []

    def find() -> int:
        asked.append(1)
        return 5

    thing = Thing(later(find), "red")
    other = thing._replace(colour="blue")
    assert not asked
    assert (thing.size, other.size, thing.size, thing.name) == (5, 5, 5, "plain")
    assert len(asked) == 1


def test_it_stands_for_its_value() -> None:
    thing = Thing(later(lambda: 5), "red", later(lambda: "x"))
    assert thing == Thing(5, "red", "x") == thing._replace(size=later(lambda: 5))
    assert Thing(5, "red", "x") == thing
    assert thing != Thing(6, "red", "x")
    assert hash(thing) == hash(Thing(5, "red", "x"))
    assert repr(thing) == "Thing(size=5, colour='red', name='x')"
    assert thing._replace(size=6).size == 6


def test_a_copy_holds_the_value() -> None:
    thing = Thing(later(lambda: 5))
    for made in (pickle.loads(pickle.dumps(thing)), copy.deepcopy(thing)):
        assert made == Thing(5)
        assert type(next(iter(made))) is int


def test_what_fails_fails_again() -> None:
    def find() -> int:
        raise ValueError("no")

    thing = Thing(later(find))
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            thing.size  # noqa: B018 - what is refused
