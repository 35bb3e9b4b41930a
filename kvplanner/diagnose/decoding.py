"""The text of a log that came packed, in another encoding, or broken into lines of one width.

What PowerShell's redirection writes is UTF-16, what rotates logs packs them, what is copied from a terminal or a
browser has a newline wherever its window ended, the journal gives lines with colours as lists of bytes, and what a
Python program hands on it may show as literals. Everything streams: nothing is unpacked whole.
"""

from __future__ import annotations

import ast
import codecs
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kvplanner.errors import BadInput

Read = Callable[[int], bytes]
_PACKED: Final = ((b"\x1f\x8b", "gzip", "GzipFile"), (b"BZh", "bz2", "BZ2File"), (b"\xfd7zXZ\x00", "lzma", "LZMAFile"))
_MARKS: Final = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_LOOKED_AT: Final = 4096
# Widths of windows: shorter lines are prose, longer ones no window's.
_WIDTHS: Final = range(60, 260)
_LEAST_FULL: Final = 2
_PADDED: Final = (b" ", b"|", "│".encode(), "┃".encode(), "║".encode())
# How a line begins that is not the rest of another: tags, levels, dates, what collectors write.
_FRESH: Final = re.compile(
    rb"\s*(?:\x1b\[[\d;]*m|\[[\d;]+m)?(?:\([A-Za-z]\w*[ )]|\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|"
    rb"\[?\d{4}-\d\d-\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:|\{\"|\[pod/|time=|\d+\.\d\d\.\d{3}\.\d{3} |[a-z_]{4,40}: |"
    rb"(?:\[[\w -]{1,40}\] )?\[\d{4,5}\] |[A-Za-z][\w.-]{0,80} +\| )"
)


# The journal's message, bare or in JSON, as the codes of its bytes; a line that is a literal of bytes.
_LISTED: Final = re.compile(rb"((\"?)MESSAGE\2 ?[:=] ?)\[((?: ?\d{1,3} ?,){4,65536} ?\d{1,3}) ?\]")
_LITERAL: Final = re.compile(
    rb"^[ \t]*b(?:'(?:[^'\\\n]|\\.){0,262144}'|" + rb'"(?:[^"\\\n]|\\.){0,262144}")[ \t,]*\r?$', re.MULTILINE
)
_LONGEST_LITERAL: Final = 4 << 20


class _File:
    """A stream as the unpacking modules want it."""

    def __init__(self, read: Read) -> None:
        self.read = read

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def as_utf8(read: Read, name: str) -> Read:
    """The log's own text, whatever it is packed in. Raises BadInput while it is read, where that is damaged."""
    first = read(_LOOKED_AT)
    whole = _after(first, read)
    for magic, module, opener in _PACKED:
        if first.startswith(magic):
            return as_utf8(_unpacked(whole, module, opener, name), name)
    encoding = next((e for mark, e in _MARKS if first.startswith(mark)), "") or _by_zeros(first)
    return _recoded(whole, encoding) if encoding else whole


def _after(first: bytes, read: Read) -> Read:
    """A stream with a part put before it."""
    left = first

    def both(size: int) -> bytes:
        nonlocal left
        if not left:
            return read(size)
        part, left = left[:size], left[size:]
        return part

    return both


def _unpacked(read: Read, module: str, opener: str, name: str) -> Read:
    from importlib import import_module
    from zlib import error

    made: Any = getattr(import_module(module), opener)
    file = made(fileobj=_File(read)) if opener == "GzipFile" else made(_File(read))
    broken = (OSError, error, ValueError, *((import_module(module).LZMAError,) if module == "lzma" else ()))

    def more(size: int) -> bytes:
        try:
            part: bytes = file.read1(size)
        except EOFError:  # cut off: what was there before is a log all the same
            return b""
        except broken as found:
            raise BadInput(f"cannot be unpacked: {found}", name, "Unpack it, or give the log itself") from None
        return part

    return more


def _by_zeros(first: bytes) -> str:
    """UTF-16 without a mark: every other byte of plain text is zero then."""
    half = len(first) // 2
    if half < 32:
        return ""
    if first[1::2].count(0) > 0.8 * half:
        return "utf-16-le"
    return "utf-16-be" if first[::2].count(0) > 0.8 * half else ""


def _recoded(read: Read, encoding: str) -> Read:
    decoder = codecs.getincrementaldecoder(encoding)("replace")

    def more(size: int) -> bytes:
        while part := read(size):
            text = decoder.decode(part).replace("\ufeff", "")
            if text:
                return text.encode("utf-8", "replace")
        return b""

    return more


def width_of(head: bytes) -> int:
    """The width at which all lines were broken, 0 where they were not: several are as long as the longest, and what
    follows them begins no line of its own.
    """
    lines = [line.rstrip(b"\r") for line in head[:1_000_000].split(b"\n")]
    lengths = [_width(line) for line in lines]
    longest = max(lengths, default=0)
    if longest not in _WIDTHS or Counter(lengths)[longest] < _LEAST_FULL:
        return 0
    full = [line for line, length in zip(lines, lengths, strict=True) if length == longest]
    if sum(line.endswith(_PADDED) for line in full) > len(full) // 2:  # a frame around them, or blanks to its width
        return 0
    after = [line for line, before in zip(lines[1:], lengths, strict=False) if before == longest]
    return longest if sum(not _FRESH.match(line) for line in after) > 0.6 * len(after) else 0


def _width(line: bytes) -> int:
    return len(line) if line.isascii() else len(line.decode("utf-8", "replace"))


def spelled_out(head: bytes) -> bool:
    """Whether lines are lists of bytes or literals of Python's."""
    return _LISTED.search(head) is not None or _LITERAL.search(head) is not None


def as_text(read: Read) -> Read:
    """Messages that are lists of bytes, and lines that are literals, as the text that they stand for."""
    carry = b""

    def more(size: int) -> bytes:
        nonlocal carry
        while part := read(size):
            carry += part
            end = carry.rfind(b"\n") + 1
            if end or len(carry) > _LONGEST_LITERAL:
                whole, carry = carry[: end or len(carry)], carry[end or len(carry) :]
                return _as_text(whole)
        last, carry = carry, b""
        return _as_text(last)

    return more


def _as_text(whole: bytes) -> bytes:
    whole = _LISTED.sub(_of_list, whole)
    return _LITERAL.sub(_of_literal, whole)


def _of_list(found: re.Match[bytes]) -> bytes:
    """As JSON holds a text, where it stands in JSON."""
    codes = [int(code) for code in found[3].split(b",")]
    if any(code > 255 for code in codes):
        return found[0]
    text = bytes(codes)
    quoted = json.dumps(text.decode("utf-8", "replace")).encode() if found[2] else text.replace(b"\n", b" ")
    return found[1] + quoted


def _of_literal(found: re.Match[bytes]) -> bytes:
    """One line again: the newlines that it may have within stay written out."""
    try:
        value = ast.literal_eval(found[0].strip().decode("ascii", "replace"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return found[0]
    return value.rstrip(b"\r\n").replace(b"\n", b"\\n") if isinstance(value, bytes) else found[0]


def spaced(read: Read) -> Read:
    """A browser's unbreakable blanks as plain ones."""
    return lambda size: read(size).replace(b"\xc2\xa0", b" ")


def unbroken(read: Read, width: int) -> Read:
    """The lines put together again; the newlines taken out follow, so that lines keep their numbers."""
    carry = b""

    def more(size: int) -> bytes:
        nonlocal carry
        while part := read(size):
            lines = (carry + part).split(b"\n")
            joined, rest = _joined(lines, width)
            carry = b"\n".join(rest)
            if joined:
                return joined
        last, carry = carry, b""
        return b"".join(_joined([*last.split(b"\n"), b""], width)[:1]) if last else b""

    return more


def _joined(lines: list[bytes], width: int) -> tuple[bytes, list[bytes]]:
    """Whole lines as text, and the lines at the end that may go on."""
    out: list[bytes] = []
    piece: list[bytes] = []
    for line in lines[:-1]:
        bare = line.rstrip(b"\r")
        piece.append(bare)
        if _width(bare) < width:
            out.append(b"".join(piece) + b"\n" * len(piece))
            piece = []
    return b"".join(out), [*piece, lines[-1]]
