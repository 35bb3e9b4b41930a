"""The composition root: the terminal, or the window when it is asked for and can be shown.

Nothing else in the package chooses between the two.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

_INTERRUPTED = 130
_HELPER = "--multiprocessing-fork"  # what multiprocessing starts a packaged program with
_OPENABLE = (".kvplan.json", ".gguf", ".safetensors", ".json", ".log", ".txt")


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point `kvplanner`; returns the exit status."""
    if getattr(sys, "frozen", False) and _HELPER in sys.argv:
        # A packaged helper process starts here again and must not open another application.
        from multiprocessing import spawn

        spawn.freeze_support()
    sys.excepthook = _crash
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # while a module was still imported
        return _INTERRUPTED


def _run(words: list[str]) -> int:
    if not words or words[0] == "gui":
        return _window(words[1:])
    if _names_a_file(words[0]):
        return _window(words)
    from kvplanner.cli.main import run

    if words[0] == "report" and _draws(words):
        from kvplanner.ui import pdf

        return run(words, pdf)
    return run(words)


def _draws(words: Sequence[str]) -> bool:
    """Whether a report is to be a PDF, which only Qt makes."""
    from kvplanner.cli import display

    wanted = any(word.lower().endswith(".pdf") for word in words)
    return wanted and not display.missing_packages()


def _names_a_file(word: str) -> bool:
    """Whether a first word is something to open: a file of a known kind, or a path to anything that exists."""
    from kvplanner.reading import is_there

    return (word.lower().endswith(_OPENABLE) or os.sep in word) and is_there(Path(word))


def gui(argv: Sequence[str] | None = None) -> int:
    """The entry point `kvplanner-gui`: the window with the given arguments."""
    words = list(sys.argv[1:] if argv is None else argv)
    return main(["gui", *(words[1:] if words[:1] == ["gui"] else words)])


def _window(words: Sequence[str]) -> int:
    """Shows the window; without a display says so and prints the start model's plan instead."""
    from kvplanner.cli import display
    from kvplanner.cli.main import plan_start_model, run
    from kvplanner.cli.output import BAD_INPUT, note

    if "-h" in words or "--help" in words:
        return run(["gui", "--help"])
    if any(word == "--screenshot" or word.startswith("--screenshot=") for word in words):
        os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    if not display.has_display():
        if words:
            note("there is no display to show a window on. Use kvplanner plan, or gui --screenshot FILE.png")
            return BAD_INPUT
        note(
            "there is no display to show a window on; this is the plan of the start model. kvplanner --help lists more"
        )
        return plan_start_model()
    missing = display.missing_packages()
    if missing:
        note(display.install_hint(missing))
        return BAD_INPUT
    from kvplanner.ui import run as show

    return show(words)


def _crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A defect of kvplanner's own: the traceback, and a status that no verdict has."""
    sys.__excepthook__(kind, error, trace)
    if issubclass(kind, Exception):
        sys.stderr.write("kvplanner: internal error, please report the lines above\n")
        raise SystemExit(70)


if __name__ == "__main__":
    sys.exit(main())
