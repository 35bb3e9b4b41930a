"""An error's text that goes on over several lines, as a terminal, a page or a person broke it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvplanner.diagnose.lines import Line

# How a line begins that is not the rest of another.
_FRESH: Final = re.compile(
    r"\s*(?:\([A-Za-z]\w*[ )]|\[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b|\[?\d{4}-\d\d-\d\d|"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:|\[pod/|\{\"|time=|File \"|Traceback|[\w.]+(?:Error|Exception): )"
)
_MOST_LINES: Final = 12
_LONGEST: Final = 4096


class Wrapped:
    """The last error that was read, with the lines that may belong to it."""

    def __init__(self) -> None:
        self._line: Line | None = None
        self._texts = "", ""  # broken at a column, in the midst of words, or between them
        self._count = 0

    def begin(self, line: Line) -> None:
        """An error begins here; its text may go on."""
        self._line, self._texts, self._count = line, (line.text, line.text.rstrip()), 1

    def go_on(self, line: Line) -> Iterator[Line]:
        """The error's text with this line's, joined in the ways that it may have been broken; none where it is not."""
        first = self._line
        if first is None or not 0 < line.number - first.number <= 2 or line.origin not in ("", first.origin):
            return
        if _FRESH.match(line.text) or self._count >= _MOST_LINES or len(self._texts[1]) > _LONGEST:
            self._line = None
            return
        self._line = first._replace(number=line.number)
        self._texts = self._texts[0] + line.text, f"{self._texts[1]} {line.text.strip()}"
        self._count += 1
        for text in self._texts:
            yield first._replace(text=text)
