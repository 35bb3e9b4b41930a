"""Undo and redo against a plain list of values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvplanner.app.history import History

ACTIONS = st.lists(st.one_of(st.integers(0, 99), st.sampled_from(["undo", "redo", "seal", "clean"])), max_size=60)


@given(ACTIONS)
def test_undo_and_redo_walk_the_values_that_were_pushed(actions: list[int | str]) -> None:
    history = History(-1)
    values, at = [-1], 0
    for action in actions:
        match action:
            case "undo":
                assert history.undo() == (at > 0)
                at = max(0, at - 1)
            case "redo":
                assert history.redo() == (at + 1 < len(values))
                at = min(len(values) - 1, at + 1)
            case "seal":
                history.seal()
            case "clean":
                history.mark_clean()
                assert history.clean
            case int():
                del values[at + 1 :]
                values.append(action)
                at += 1
                history.push(action, f"set {action}")
        assert history.value == values[at]
        assert history.undo_count == at
        assert bool(history.redo_label) == (at + 1 < len(values))


def test_edits_of_one_key_become_one_until_sealed() -> None:
    history = History(0)
    for value in (1, 2, 3):
        history.push(value, "drag", "context")
    assert history.undo_count == 1
    history.seal()
    history.push(4, "drag", "context")
    assert history.undo_count == 2
    history.undo()
    assert history.value == 3
    history.undo()
    assert history.value == 0


def test_a_drag_after_undo_does_not_swallow_the_entry_it_landed_on() -> None:
    history = History(0)
    history.push(1, "drag", "context")
    history.seal()
    history.push(2, "other")
    history.undo()
    history.push(5, "drag", "context")
    history.undo()
    assert history.value == 1


def test_a_drag_never_joins_the_saved_entry() -> None:
    history = History(0)
    history.push(1, "drag", "context")
    history.mark_clean()
    history.push(2, "drag", "context")
    assert not history.clean
    history.undo()
    assert history.clean
    assert history.value == 1


def test_the_saved_mark_is_lost_with_its_branch() -> None:
    history = History(0)
    history.push(1, "a")
    history.mark_clean()
    history.undo()
    history.push(2, "b")
    history.undo()
    history.redo()
    assert not history.clean


def test_the_oldest_entries_fall_off() -> None:
    history = History(0, limit=3)
    for value in range(1, 10):
        history.push(value, str(value))
    assert history.undo_count == 3
    while history.undo():
        pass
    assert history.value == 6
    assert history.undo_label == ""
    assert not history.clean
