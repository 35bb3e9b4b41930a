"""Lines that a log repeats with other numbers until they say nothing new: a worker that fails at every request."""

from __future__ import annotations

from collections import Counter
from typing import Final

# Digits and the letters of hexadecimal: two lines that differ in these alone differ in a time, a count or an id. And
# what ends lines on Windows.
_NUMBERS: Final = b"0123456789abcdef\r"
# No start has as many ranks, devices or layers, so that a further line of the same kind says nothing new.
_MOST_OF_A_KIND: Final = 4096
_MOST_KINDS: Final = 20_000


class Worn:
    """Counts the lines of interest of one start by what they are without their numbers, and thins blocks out.

    Kinds are remembered by their hash, which Python salts: memory is bounded and no file can provoke a collision.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._worn: set[int] = set()
        self._left_out: Counter[int] = Counter()

    def clear(self) -> None:
        """A server began anew: its lines are all new."""
        self._counts.clear()
        self._worn.clear()
        self._left_out.clear()

    def count(self, line: bytes) -> int:
        """A line was read. Gives how many of its kind the block held before it and are left out."""
        kind = hash(line.translate(None, _NUMBERS))
        if kind in self._worn:
            return self._left_out.pop(kind, 0)
        if len(self._counts) >= _MOST_KINDS and kind not in self._counts:
            self._counts.clear()
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] >= _MOST_OF_A_KIND:
            self._worn.add(kind)
        return 0

    def thinned(self, data: bytes, end: int, restarts: tuple[bytes, ...]) -> tuple[bytes, int]:
        """A block and where its whole lines end, with lines of a kind that is worn out made empty but the last of each.

        Numbers of lines stay as they are. What stands from the first text of a new start on stays whole.
        """
        self._left_out.clear()
        if not self._worn:
            return data, end
        first = min((at for text in restarts if (at := data.find(text, 0, end)) >= 0), default=-1)
        until = end if first < 0 else data.rfind(b"\n", 0, first) + 1
        before = data[:until]
        lines, worn = before.split(b"\n"), self._worn
        kinds = [hash(line) for line in before.translate(None, _NUMBERS).split(b"\n")]
        places = [place for place, kind in enumerate(kinds) if kind in worn]
        last = {kinds[place]: place for place in places}
        for place in places:
            if last[kinds[place]] != place:
                lines[place] = b""
                self._left_out[kinds[place]] += 1
        thin = b"\n".join(lines)
        return thin + data[until:], len(thin) + end - until
