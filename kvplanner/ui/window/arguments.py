"""The window's own command line: `gui [FILE]`, `gui --screenshot OUT.png ...`, and plan arguments for either."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from kvplanner.errors import BadInput
from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    from kvplanner.request.words import PlanWords

# Of a window, so that one fits 1,024 × 640 pixels at 150 %, and of a picture's side.
SMALLEST: Final = (680, 420)
LARGEST: Final = 8192


class WindowArguments(NamedTuple):
    """screenshot None: show a window. words: what to plan, None for nothing asked. tab: "" for the first. log: a
    start-up log to read, where one was named in the model's place.
    """

    screenshot: Path | None
    size: tuple[int, int] | None
    theme: Literal["", "light", "dark", "contrast"]
    tab: str
    safe_mode: bool
    words: PlanWords | None
    scale: float = 1.0
    log: Path | None = None


def _parser() -> Any:
    import argparse

    from kvplanner.request.flags import add_plan_words

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise BadInput(message.removeprefix("argument "), "gui", "kvplanner gui --help lists what it takes")

    parser = Parser(prog="kvplanner gui", allow_abbrev=False, add_help=False)
    add_plan_words(parser)
    parser.add_argument("--screenshot", type=Path)
    parser.add_argument("--size", default="")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--theme", choices=("light", "dark", "contrast"), default="")
    parser.add_argument("--tab", default="")
    parser.add_argument("--safe-mode", action="store_true")
    return parser


def parse(argv: Sequence[str]) -> WindowArguments:
    """Read the arguments after `gui`. Raises BadInput."""
    if not argv:
        return WindowArguments(None, None, "", "", safe_mode=False, words=None)
    from kvplanner.request.flags import split_flags
    from kvplanner.request.words import PlanWords, words_of

    words, flags = split_flags(argv)
    found = _parser().parse_args(words)
    if not 0.5 <= found.scale <= 4:
        raise BadInput(f"a scale of {found.scale:g} makes no picture", "--scale", "Give 0.5 to 4")
    plan = words_of(found, flags)
    log = _log(plan.model)
    plan = plan._replace(model="") if log is not None else plan
    size = _size(found.size) if found.size else None
    asked = plan if plan != PlanWords() else None
    return WindowArguments(found.screenshot, size, found.theme, found.tab, found.safe_mode, asked, found.scale, log)


def _log(name: str) -> Path | None:
    """The start-up log that stands where a model might."""
    from kvplanner.app.opening import classify

    path = Path(name)
    return path if name and classify(path).what == "log" else None


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if not width.isdecimal() or not height.isdecimal() or len(text) > 20:
        raise BadInput(f"{text[:40]!r} is not a size", "--size", "Write for example 1280x800")
    size = int(width), int(height)
    if size[0] < SMALLEST[0] or size[1] < SMALLEST[1] or max(size) > LARGEST:
        least, most = f"{SMALLEST[0]}x{SMALLEST[1]}", f"{LARGEST}x{LARGEST}"
        raise BadInput(f"{text[:40]} is out of range", "--size", f"Give {least} to {most}")
    return size
