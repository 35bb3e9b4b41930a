"""What is remembered of a model is what would be worked out again."""

from __future__ import annotations

import ast
from pathlib import Path

import kvplanner.engine.vllm.weights as weights_room
from kvplanner.engine.shared.identity import by_identity


def test_the_same_object_is_worked_out_once_for_each_key() -> None:
    seen: list[tuple[object, int]] = []

    @by_identity(2, lambda _, size: size)
    def work(subject: object, size: int) -> tuple[object, int]:
        seen.append((subject, size))
        return subject, size

    one, other = ["a"], ["a"]  # equal, and not the same
    assert work(one, 1) == work(one, 1) == (one, 1)
    assert len(seen) == 1
    assert work(other, 1)[0] is other
    assert work(one, 2) == (one, 2)  # forgets the oldest
    assert work(one, 1) == (one, 1)
    assert len(seen) == 4


def test_what_raises_is_not_remembered() -> None:
    calls = []

    @by_identity(2, lambda _: 0)
    def work(subject: object) -> None:
        calls.append(subject)
        raise ValueError

    for _ in range(2):
        try:
            work("x")
        except ValueError:
            continue
    assert len(calls) == 2


def test_weights_depend_on_no_setting_that_their_key_leaves_out() -> None:
    """`rank._moving` leaves out scheduler, cache and graphs, and of the model part the length: only tables read it."""
    room = Path(weights_room.__path__[0])
    read: dict[str, set[str]] = {}
    for path in sorted(room.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "settings":
                read.setdefault(node.attr, set()).add(path.name)
            inner = node.value if isinstance(node, ast.Attribute) else None
            if isinstance(inner, ast.Attribute) and isinstance(node, ast.Attribute) and inner.attr == "model":
                read.setdefault(f"model.{node.attr}", set()).add(path.name)
    assert not {"scheduler", "cache", "graphs", "attention_backend", "era"} & read.keys(), read
    assert read.get("model.max_model_len", set()) <= {"rotary.py"}
    assert "model.auto_fit" not in read
