"""A moving window over a GGUF header: reads forwards in growing pieces, and jumps over what nobody needs."""

from __future__ import annotations

import re
import struct
from functools import cache
from typing import Final, Literal

from kvplanner.errors import BadInput
from kvplanner.reading import ByteSource, LocalFile

ByteOrder = Literal["little", "big"]

HEADER_LIMIT_BYTES: Final = 64 << 20
FIRST_READ: Final = 256 << 10
LARGEST_READ: Final = 4 << 20
# Of a file on this machine: what fits a processor's cache is read sooner than what takes pages of its own.
LOCAL_READ: Final = 64 << 10
# Strings that are stepped over at once where none of them is longer: of vocabularies nine runs in ten are.
RUN: Final = 64
_LONGEST_IN_RUN: Final = 40
_USUAL_LENGTH: Final = 6


class Window:
    """Reads a source from its start; every byte is fetched at most once.

    Raises BadInput when the header wants more bytes than the file or the limit holds.
    """

    def __init__(self, source: ByteSource, order: ByteOrder) -> None:
        self.source = source
        self.order = order
        sign = "<" if order == "little" else ">"
        self._u32 = struct.Struct(sign + "I")
        self._u64 = struct.Struct(sign + "Q")
        self._data = b""
        self._start = 0  # file position of the first byte held
        self._at = 0  # next byte, within the data held
        near = isinstance(source, LocalFile)
        self._next_read, self._largest_read = (LOCAL_READ, LOCAL_READ) if near else (FIRST_READ, LARGEST_READ)

    @property
    def position(self) -> int:
        """Bytes of the file consumed so far."""
        return self._start + self._at

    @property
    def left(self) -> int:
        """Bytes of the file after the position."""
        return self.source.size - self.position

    def take(self, length: int, what: str) -> bytes:
        """The next `length` bytes."""
        self._hold(length, what)
        at = self._at
        self._at = at + length
        return self._data[at : at + length]

    def u32(self, what: str) -> int:
        """The next four bytes as a number."""
        value: int = self._u32.unpack(self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        """The next eight bytes as a number."""
        value: int = self._u64.unpack(self.take(8, what))[0]
        return value

    def skip(self, length: int, what: str) -> None:
        """Steps over bytes without reading them, where they are not held already."""
        self._fits(length, what)
        if self._at + length <= len(self._data):
            self._at += length
        else:
            self._start += self._at + length
            self._data, self._at = b"", 0

    def skip_strings(self, count: int, length_bytes: int, what: str) -> None:
        """Steps over `count` strings with their lengths; some twenty million a second of them."""
        self._fits(count * length_bytes, what)
        length = self._u64 if length_bytes == 8 else self._u32
        # Other lengths than the usual ones are of files that hardly exist any more.
        run = run_of_strings() if count >= RUN and length_bytes == 8 and self.order == "little" else None
        done = 0
        while done < count:
            self._hold(length_bytes, what)
            done += self._walk(count - done, length, run, what)

    def _walk(self, count: int, length: struct.Struct, run: re.Pattern[bytes] | None, what: str) -> int:
        """Steps over the strings held; leaves the position at a length. Returns how many."""
        data, at, step, unpack = self._data, self._at, length.size, length.unpack_from
        last = len(data) - step
        done = 0
        while done < count and at <= last:
            if run is not None and done + RUN <= count and (found := run.match(data, at)) is not None:
                at = found.end()
                done += RUN
                continue
            most = min(RUN, count - done)
            for number in range(most):
                if at > last:
                    most = number
                    break
                at += step + unpack(data, at)[0]
            done += most
        self._at = min(at, len(data))
        self.skip(at - self._at, what)
        return done

    def _hold(self, length: int, what: str) -> None:
        """Makes the next `length` bytes available."""
        missing = self._at + length - len(self._data)
        if missing <= 0:
            return
        self._fits(length, what)
        end = self._start + len(self._data)
        fetch = min(max(missing, self._next_read), self.source.size - end)
        self._next_read = min(self._next_read * 2, self._largest_read)
        fresh = self.source.read(end, fetch)
        self._start += self._at
        self._data = self._data[self._at :] + fresh if self._at < len(self._data) else fresh
        self._at = 0

    def _fits(self, length: int, what: str) -> None:
        if length > self.left:
            raise BadInput(
                f"{what} should take {length:,} bytes, but the file ends {length - self.left:,} bytes earlier",
                self.source.name,
                "It is incomplete or damaged: download it again",
            )
        if self.position + length > HEADER_LIMIT_BYTES:
            raise BadInput(
                f"{what} goes beyond the first {HEADER_LIMIT_BYTES:,} bytes, where every header must end",
                self.source.name,
                "It is damaged, or made to do harm",
            )


@cache
def run_of_strings() -> re.Pattern[bytes]:
    """RUN strings of up to _LONGEST_IN_RUN bytes, each behind its length in 64 bits, the lowest byte first.

    Matches exactly those strings or not at all, and takes half the time of a loop. Usual lengths are tried first.
    """
    lengths = sorted(range(_LONGEST_IN_RUN + 1), key=lambda size: abs(size - _USUAL_LENGTH))
    strings = (rb"\x%02x\0\0\0\0\0\0\0.{%d}" % (size, size) for size in lengths)
    return re.compile(rb"(?s:%s){%d}+" % (b"|".join(strings), RUN))
