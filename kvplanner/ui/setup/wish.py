"""What else a search for GPUs may ask for, after commas: "2x3090, 32k, 8 users"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kvplanner.engine.request import Load
from kvplanner.record import NamedTuple
from kvplanner.report.loads import tokens_each
from kvplanner.ui.setup.load_field import MOST_USERS, USUAL
from kvplanner.units import counted, format_count, parse_count

if TYPE_CHECKING:
    from kvplanner.app.document import Document

_CONTEXT: Final = re.compile(r"(\d+(?:\.\d+)?[kK]|\d{3,9}(?= ?[a-z]))\s*(?:context|ctx|tokens?)?", re.IGNORECASE)
_USERS: Final = re.compile(r"(\d{1,7})\s*users?", re.IGNORECASE)


class Wish(NamedTuple):
    """A context length in tokens and a number of users; None for what was not said."""

    context: int | None = None
    users: int | None = None

    def __bool__(self) -> bool:
        """Whether anything was said."""
        return self.context is not None or self.users is not None


def split(text: str) -> tuple[str, Wish]:
    """The part that names GPUs, and what else is asked for; all of it names GPUs where anything else is said."""
    machine, *rest = text.split(",")
    wish = Wish()
    for part in filter(None, map(str.strip, rest)):
        context, users = _CONTEXT.fullmatch(part), _USERS.fullmatch(part)
        if users and 1 <= int(users[1]) <= MOST_USERS:
            wish = wish._replace(users=int(users[1]))
        elif context:
            wish = wish._replace(context=parse_count(context[1]))
        else:
            return text, Wish()
    return machine.strip() if wish else text, wish


def words_of(wish: Wish, load: Load | None) -> str:
    """What will be asked for beside the GPUs."""
    parts = [f"a context of {format_count(wish.context)}"] if wish.context is not None else []
    if wish.users is not None:
        asked = _load(wish.users, load)
        parts.append(f"{counted(wish.users, 'user', 'users')} of {tokens_each(asked)}")
    return f"With {' and '.join(parts)}"


def _load(users: int, before: Load | None) -> Load:
    _, prompt, output = USUAL
    return before._replace(users=users) if before is not None else Load(users, prompt, output)


def ask(document: Document, wish: Wish) -> None:
    """Make it part of the plan, in one step that can be undone."""
    from kvplanner.engine.command import role_option
    from kvplanner.engine.registry import engine

    state = document.state
    option = role_option(engine(state.ask.engine), state.ask.version, "context")
    fields: dict[str, Any] = {}
    if wish.context is not None and option is not None:
        fields["options"] = {**state.ask.options, option.name: wish.context}
    if wish.users is not None:
        fields["load"] = _load(wish.users, state.ask.load)
    if fields:
        text = words_of(wish, state.ask.load)
        document.edit(f"Ask for {text.removeprefix('With ')}", **fields)
