"""What is said of a command line that became the plan: as long as it is true of the plan, and no longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.app.state import PlanState

KEY: Final = "command"
_SHOWN: Final = 3


class Remarks:
    """Of the command line that was planned last; another one's take their place."""

    def __init__(self, document: Document, messages: Messages) -> None:
        self._document, self._messages = document, messages
        self._before: PlanState | None = None
        self._made: PlanState | None = None
        self._all: tuple[str, ...] = ()
        self._left: tuple[str, ...] = ()
        document.changed.connect(self._changed)

    def say(self, remarks: Sequence[str], before: PlanState) -> None:
        """These are of the command line that has just become the plan. before: what the plan was."""
        self._before, self._made, self._all = before, self._document.state, tuple(dict.fromkeys(remarks))
        self._show(self._all)

    def _show(self, left: tuple[str, ...]) -> None:
        self._left = left
        self._messages.clear(KEY)
        if left:
            few, more = left[:_SHOWN], len(left) - _SHOWN
            said = ". ".join(few) + (f". And {more} more" if more > 0 else "")
            self._messages.warning(said, "\n".join(left) if more > 0 else "", key=KEY)

    def _changed(self, state: PlanState) -> None:
        if self._made is None or (not self._left and state is not self._made):
            return
        left = self._all if state is self._made else self._true(self._made, state)
        if left != self._left:
            self._show(left)

    def _true(self, made: PlanState, state: PlanState) -> tuple[str, ...]:
        """Those that nothing since has made untrue: another model or engine, an option that one names, other GPUs."""
        if state is self._before or _origin(state) != _origin(made):
            return ()
        changed = {name for name in {*made.ask.options, *state.ask.options}
                   if made.ask.options.get(name) != state.ask.options.get(name)}  # fmt: skip
        names = {name for option in self._document.options() if option.name in changed
                 for name in (option.name, *option.flags, option.env) if name}  # fmt: skip
        if (made.devices, made.unticked) != (state.devices, state.unticked):
            names |= {"GPU", "GPUs", "machines"}
        return tuple(text for text in self._left if not names.intersection(text.replace(":", " ").split()))


def _origin(state: PlanState) -> tuple[object, ...]:
    return state.model_text, state.ask.engine, state.ask.version
