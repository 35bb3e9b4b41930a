"""History: undo and redo over frozen values, one entry per edit.

Values are frozen, so an entry is the value itself; nothing has to know how to reverse an edit.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")
LIMIT: Final = 500


class Entry(NamedTuple, Generic[T]):
    """A value, what made it ("Change Context length") and which edits may still join it ("" for none)."""

    value: T
    label: str
    key: str


class History(Generic[T]):
    """A list of values with a position in it; the oldest entries fall off beyond `limit`."""

    def __init__(self, value: T, limit: int = LIMIT) -> None:
        self._entries: list[Entry[T]] = [Entry(value, "", "")]
        self._at = 0
        self._clean: int | None = 0
        self._limit = limit

    @property
    def value(self) -> T:
        """The current value."""
        return self._entries[self._at].value

    @property
    def undo_label(self) -> str:
        """What undo would take back, "" when there is nothing."""
        return self._entries[self._at].label

    @property
    def redo_label(self) -> str:
        """What redo would bring back, "" when there is nothing."""
        return self._entries[self._at + 1].label if self._at + 1 < len(self._entries) else ""

    @property
    def undo_count(self) -> int:
        """How many edits can be undone."""
        return self._at

    @property
    def clean(self) -> bool:
        """Whether the current value is the one that was saved."""
        return self._clean == self._at

    def push(self, value: T, label: str, key: str = "") -> None:
        """Make an edit; one with the key of the edit before it joins that edit, until `seal`."""
        joins = bool(key) and self._at > 0 and self._entries[self._at].key == key and self._clean != self._at
        del self._entries[self._at + 1 :]
        if self._clean is not None and self._clean > self._at:
            self._clean = None
        if joins:
            self._entries[self._at] = Entry(value, label, key)
            return
        self._entries.append(Entry(value, label, key))
        self._at += 1
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        excess = len(self._entries) - 1 - self._limit
        if excess <= 0:
            return
        del self._entries[:excess]
        self._entries[0] = self._entries[0]._replace(label="", key="")
        self._at -= excess
        if self._clean is not None:
            self._clean = self._clean - excess if self._clean >= excess else None

    def amend(self, value: T) -> None:
        """Replace the current value without an edit (facts that arrived, not something the user did)."""
        self._entries[self._at] = self._entries[self._at]._replace(value=value)

    def seal(self) -> None:
        """The next edit starts an entry of its own."""
        self._entries[self._at] = self._entries[self._at]._replace(key="")

    def undo(self) -> bool:
        """Go back one edit; False when there is none."""
        if self._at == 0:
            return False
        self.seal()
        self._at -= 1
        self.seal()
        return True

    def redo(self) -> bool:
        """Go forward one edit; False when there is none."""
        if self._at + 1 >= len(self._entries):
            return False
        self._at += 1
        self.seal()
        return True

    def mark_clean(self) -> None:
        """The current value has been saved."""
        self._clean = self._at

    def mark_dirty(self) -> None:
        """No entry is the saved one (a plan restored after a crash)."""
        self._clean = None

    def reset(self, value: T) -> None:
        """Start again from a value, clean, with nothing to undo."""
        self._entries = [Entry(value, "", "")]
        self._at = 0
        self._clean = 0
