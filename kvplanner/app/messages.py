"""Messages: how any layer tells the user something without knowing a widget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from PySide6.QtCore import QObject, Signal

from kvplanner.errors import PlannerError
from kvplanner.record import NamedTuple

Level = Literal["info", "success", "warning", "error"]
_COMMAND: Final = r"\bkvplanner (models|gpus)(?: QUERY)?\b"
_PLAN: Final = r"Example: kvplanner plan [^\n]*|: kvplanner plan MODEL -- …"
_FLAG: Final = r"(?<=example )--gpu (?=\w)|(?<=Example: )--gpu (?=\w)"
_NAME_IT: Final = "Choose Model… (Ctrl+1), or name it in the command"
_LONGEST_DETAILS: Final = 20_000
_PLACES: Final = {"models": "Choose Model… (Ctrl+1)", "gpus": "Choose GPUs… (Ctrl+2)"}


def in_window(text: str) -> str:
    """An error or its remedy as the window says it: where the terminal's words name a command, its menu entry."""
    if "kvplanner " not in text and "--gpu " not in text:
        return text
    import re

    text = re.sub(_PLAN, lambda found: _NAME_IT if found[0][0] == "E" else "", text)
    return re.sub(_FLAG, "", re.sub(_COMMAND, lambda found: _PLACES[found[1]], text))


class Message(NamedTuple):
    """text: one or two sentences. details: what "Copy details" copies. action: a button's text and what it does.

    key: a later message of the same key takes this one's place.
    """

    level: Level
    text: str
    details: str = ""
    action: tuple[str, Callable[[], None]] | None = None
    key: str = ""


class Messages(QObject):
    """The bus. posted(Message); cleared(key); briefed(text): for a moment, in passing."""

    posted = Signal(object)
    cleared = Signal(str)
    briefed = Signal(str)

    def post(self, message: Message) -> None:
        """Show a message: of names that are too long for a line so much that the rest stays in sight."""
        from kvplanner.printable import LONGEST_LINE, in_sight

        text, details = in_window(message.text), in_window(message.details)
        self.posted.emit(
            message._replace(text=in_sight(text, LONGEST_LINE), details=in_sight(details, _LONGEST_DETAILS))
        )

    def info(self, text: str, *, action: tuple[str, Callable[[], None]] | None = None, key: str = "") -> None:
        """Say something that needs no reaction."""
        self.post(Message("info", text, action=action, key=key))

    def brief(self, text: str) -> None:
        """Confirm in passing what was done."""
        self.briefed.emit(text)

    def success(self, text: str, *, action: tuple[str, Callable[[], None]] | None = None, key: str = "") -> None:
        """Confirm that something was done."""
        self.post(Message("success", text, action=action, key=key))

    def warning(self, text: str, details: str = "", *, key: str = "") -> None:
        """Say what the user should know before going on."""
        self.post(Message("warning", text, details, key=key))

    def error(
        self, error: Exception, what: str = "", *, action: tuple[str, Callable[[], None]] | None = None, key: str = ""
    ) -> None:
        """Say what failed; `what` names the attempt ("Could not open the plan"), action what may help."""
        text = str(error) if isinstance(error, PlannerError | OSError) else f"{type(error).__name__}: {error}"
        self.post(Message("error", f"{what}: {text}" if what else text, text, action, key))

    def clear(self, key: str) -> None:
        """Take back the messages of a key."""
        self.cleared.emit(key)
