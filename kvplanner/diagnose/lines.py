"""The lines of a log that may say something, out of any number that do not: streamed, in bounded memory.

Files are untrusted: lines of any length, escape sequences and binary are read as text of bounded length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from kvplanner.diagnose.worn import Worn
from kvplanner.record import NamedTuple

BLOCK_BYTES: Final = 1 << 20
# A record with vLLM's whole configuration takes some 20 kB; nothing of interest is longer.
LONGEST_LINE: Final = 256 << 10
_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
# containerd's own format: P marks a part of a line that goes on.
_PART: Final = re.compile(rb"[0-9T:.+-]{19,40}Z? std(?:out|err) ([PF]) ")
_DIGITS: Final = b"0123456789"
# Lines that are remembered for holding nothing of interest; blocks that are searched without them where each is new.
_MOST_SEEN: Final = 20_000
# No start has as many ranks, so that further lines that are the one before once more say nothing new.
_MOST_ALIKE: Final = 4096
_IDLE_BLOCKS: Final = 15
# Under which names collectors put a line, in lower case, and how deep inside other objects.
_MESSAGES: Final = ("message", "msg", "log", "textpayload", "line", "body")
_DEEPEST: Final = 3
# So many newlines that are written out make a line a string literal that holds several.
_LEAST_ESCAPED: Final = 5
_WRITTEN: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\x(1b)")
# Whose line it is, by what is put before it: docker compose, kubectl logs --prefix, llama-server as it hands on what
# its models print, systemd's journal.
_SOURCE: Final = re.compile(
    r"(?:\[[\w -]{1,40}\] )?\[(?P<port>\d{4,5})\] |"
    r"(?P<compose>[A-Za-z][\w.-]{0,80}) +\| |\[pod/(?P<pod>[^\]\s]{1,200})\] |"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,80} (?P<unit>[\w.@-]{1,80})\[\d+\]: "
)


class Line(NamedTuple):
    """What one process wrote of a line. number: from 1. text: without colours and controls.

    origin: the process's tag, "" for none. source: the container, pod or unit that a collector names before it.
    cut: it is a log's last and has no end: what stands last in it may go on.
    """

    number: int
    text: str
    origin: str = ""
    source: str = ""
    cut: bool = False


class Anchors:
    """Texts of which a line of interest holds one."""

    def __init__(self, texts: tuple[bytes, ...]) -> None:
        self.texts = texts
        self._plain = tuple((text, text.translate(None, _DIGITS)) for text in texts)
        self._seen: set[int] = set()  # by their hash: lines may be long
        self._idle = 0

    def places(self, data: bytes, end: int) -> Places:
        """Where they stand in a block, up to `end`."""
        return Places(data, end, self._possible(data, end))

    def rest(self, data: bytes, position: int, end: int) -> Places:
        """Where they stand in what is left of a block."""
        return Places(data, end, self.texts, position)

    def _possible(self, data: bytes, end: int) -> tuple[bytes, ...]:
        """Those that the block may hold: a server repeats its lines with other numbers, and lines that differ in
        digits alone from one that held none need no second look.
        """
        if self._idle:
            self._idle -= 1
            return self.texts
        lines = set(data[:end].translate(None, _DIGITS).split(b"\n"))
        new = [line for line in lines if hash(line) not in self._seen]
        text = b"\n".join(new)
        if len(text) > end // 2:  # each line is another: looking at all of it is as fast
            self._idle = _IDLE_BLOCKS
        found = tuple(whole for whole, plain in self._plain if plain in text)
        if not found and len(self._seen) + len(new) < _MOST_SEEN:
            self._seen.update(map(hash, new))
        return found


class Places:
    """The next place of any of some texts: each is searched for by itself, which is many times faster than together."""

    def __init__(self, data: bytes, end: int, texts: tuple[bytes, ...], start: int = 0) -> None:
        self._data, self._end = data, end
        self._next = {text: at for text in texts if (at := data.find(text, start, end)) >= 0}

    def after(self, position: int) -> int:
        """The first place from a position on, -1 for none."""
        for text, at in list(self._next.items()):
            if at < position:
                at = self._data.find(text, position, self._end)
                if at < 0:
                    del self._next[text]
                else:
                    self._next[text] = at
        return min(self._next.values(), default=-1)


class Watch(NamedTuple):
    """What the reader of lines wants to see next, asked anew as it goes on.

    anchors(): what counts changes once a server runs. restarts: texts with which a server begins anew. over(): what
    was read so far ends with the next of them, so that of many starts in a row the last ones alone are looked at.
    skipped(): takes how many of them were left out. repeated(): takes how many more lines are the one before again,
    where so many were that they say nothing new, and the number of the last of them. begins: texts of which every
    line that begins a start holds one. starts(): how many there were.
    """

    anchors: Callable[[], Anchors]
    restarts: tuple[bytes, ...] = ()
    over: Callable[[], bool] = bool
    skipped: Callable[[int], object] = int
    repeated: Callable[[int, int], object] = lambda more, number: None
    begins: tuple[bytes, ...] = ()
    starts: Callable[[], int] = int


def interesting(read: Callable[[int], bytes], watch: Watch, tags: re.Pattern[str], number: int = 1) -> Iterator[Line]:
    """The lines that hold an anchor, in order. read: gives up to so many bytes, b"" at the end. number: of the first.

    Lines end at \\n or \\r; what a collector wrapped into JSON or cut into parts is put together again.
    """
    carry = before = b""
    alike, worn, starts = 0, Worn(), watch.starts()
    while True:
        block = read(BLOCK_BYTES)
        data = carry + block
        if not data:
            return
        end = len(data) if not block else _last_end(data)
        if end == 0 and len(data) <= LONGEST_LINE and block:
            carry = data
            continue
        end = end or len(data)
        position = counted = 0
        data, end = worn.thinned(data, end, watch.begins)
        anchors = watch.anchors()
        places = anchors.places(data, end)
        while (at := places.after(position)) >= 0:
            start, stop = _around(data, at, end)
            if watch.restarts and watch.over():
                start, stop = _last_starts(data, start, stop, end, watch)
            number += data.count(b"\n", counted, start)
            counted = start
            whole, stop = _joined(data, start, stop, end)
            yield from _lines(whole, number, tags, cut=not block and stop == len(data))
            position = max(stop, at + 1)
            alike = alike + 1 if whole == before else 0
            before = whole
            if not alike and (more := worn.count(data[start:stop])):
                watch.repeated(more, number)
            if alike >= _MOST_ALIKE:
                position = _past_alike(data, start, stop, end, watch, number)
            if watch.starts() != starts:
                worn.clear()
                starts = watch.starts()
            if (now := watch.anchors()) is not anchors:  # a server began anew, or runs now
                anchors, places = now, now.rest(data, position, end)
        number += data.count(b"\n", counted, end)
        carry = data[end:] if block else b""
        if not block:
            return


def _past_alike(data: bytes, start: int, stop: int, end: int, watch: Watch, number: int) -> int:
    """Behind the lines that are this one once more."""
    line, position = data[start : stop + 1], stop + 1
    while data.startswith(line, position, end) and line.endswith(b"\n"):
        position += len(line)
    more = (position - stop - 1) // max(1, len(line))
    watch.repeated(more, number + more)
    return max(stop, position - 1)


def _last_starts(data: bytes, start: int, stop: int, end: int, watch: Watch) -> tuple[int, int]:
    """The line itself, or where many starts follow that are over when the next begins, that of the last but one.

    Whatever stands before it is forgotten when the last one begins, as long as the last but one comes to an end.
    """
    marks = watch.restarts
    if not any(data.find(mark, start, stop) >= 0 for mark in marks):
        return start, stop
    last = max(data.rfind(mark, stop, end) for mark in marks)
    before = max(data.rfind(mark, stop, last) for mark in marks) if last > 0 else -1
    if before < 0:
        return start, stop
    watch.skipped(sum(data.count(mark, start, before) for mark in marks))
    return _around(data, before, end)


def _last_end(data: bytes) -> int:
    """Where the last whole line ends; one that goes on as another part is not whole."""
    end = data.rfind(b"\n") + 1
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        part = _PART.match(data, start, min(start + 64, end))
        if part is None or part[1] == b"F" or len(data) - start > LONGEST_LINE:
            return end
        end = start
    return 0


def _around(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The line around a position. Carriage returns are looked for within the line alone, which has few."""
    start = data.rfind(b"\n", 0, at) + 1
    start = max(start, data.rfind(b"\r", start, at) + 1)
    stop = data.find(b"\n", at, end)
    stop = end if stop < 0 else stop
    back = data.find(b"\r", at, stop)
    return start, stop if back < 0 else back


def _joined(data: bytes, start: int, stop: int, end: int) -> tuple[bytes, int]:
    """The line, with the parts that a container's runtime cut it into."""
    part = _PART.match(data, start, min(start + 64, stop))
    if part is None:
        return data[start : min(stop, start + LONGEST_LINE)], stop
    pieces = [data[part.end() : stop]]
    while part is not None and part[1] == b"P" and stop < end and sum(map(len, pieces)) < LONGEST_LINE:
        following = stop + 1
        _, stop = _around(data, following, end)
        part = _PART.match(data, following, min(following + 64, stop))
        pieces.append(data[part.end() if part else following : stop])
    return b"".join(pieces)[:LONGEST_LINE], stop


def _lines(raw: bytes, number: int, tags: re.Pattern[str], *, cut: bool = False) -> Iterator[Line]:
    text = raw.decode("utf-8", "replace")
    for message, process in _unwrapped(text):
        lines = message.splitlines() or [""]
        open_ = cut and text.endswith(lines[-1][-8:])  # a collector's object is whole where it could be read
        for place, line in enumerate(lines, 1):
            clean = _CONTROL.sub("", _ANSI.sub("", line)) if "\x1b" in line or _CONTROL.search(line) else line
            if not clean.strip():
                continue
            named = _SOURCE.match(clean)
            source = str(named[named.lastgroup]) if named is not None and named.lastgroup else ""
            for origin, piece in _pieces(clean, tags):
                last = open_ and place == len(lines) and clean.endswith(piece)
                yield Line(number, piece, origin or process, source, last)


def _pieces(text: str, tags: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """What each process wrote of a line: a progress bar ends without a newline, and another may write behind it.

    Of tags in a row the last is the engine's own: Ray puts one before it.
    """
    begin, origin = 0, ""
    for tag in tags.finditer(text):
        if text[begin : tag.start()].strip():
            yield origin, text[begin : tag.start()]
        begin, origin = tag.end(), tag["tag"].strip()
    if text[begin:].strip():
        yield origin, text[begin:]


def _unwrapped(text: str) -> Iterator[tuple[str, str]]:
    """The message inside a collector's JSON object with the process that it names, else the text itself."""
    start, end = text.find("{"), text.rstrip(", \t]").endswith("}")
    found: object = None
    if start >= 0 and end and '"' in text[start : start + 3]:
        with suppress(ValueError, RecursionError):
            found = json.loads(text[start : text.rindex("}") + 1])
    message = _message(found) if isinstance(found, dict) else None
    if message is None or not isinstance(found, dict):
        yield _unescaped(text), ""
        return
    process = found.get("processName")
    origin = process if isinstance(process, str) else ""
    yield message, origin
    if isinstance(found.get("exc_info"), str):
        yield found["exc_info"], origin


def _message(found: dict[str, object], depth: int = 0) -> str | None:
    """What an object of a collector's says: under one of the usual names, or in an object inside it."""
    named = {name.lower(): value for name, value in found.items() if name.lower() in _MESSAGES}
    for name in _MESSAGES:
        value = named.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(b, int) and 0 <= b < 256 for b in value):
            return bytes(value).decode("utf-8", "replace")  # the journal's way with colours
    if depth < _DEEPEST:
        for inner in found.values():
            if isinstance(inner, dict) and (message := _message(inner, depth + 1)) is not None:
                return message
    return None


def _unescaped(text: str) -> str:
    """What a page or a string literal made of a line, undone: entities, doubled quotes, and newlines written out."""
    if "&quot;" in text or "&#39;" in text or "&#x27;" in text or "&lt;" in text:
        from html import unescape

        text = unescape(text)
    if text.count("\\n") >= _LEAST_ESCAPED:
        text = text.replace("\\r", "").replace("\\n", "\n").replace('\\"', '"')
    if '\\"' in text:
        text = text.replace('\\"', '"')
    if ('""' in text or '","' in text) and text.rstrip().endswith('"'):
        text = text.rstrip()[:-1].replace('""', '"')
    return _WRITTEN.sub(lambda found: chr(int(found[1] or found[2], 16)), text) if "\\" in text else text
