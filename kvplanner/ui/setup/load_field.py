"""The load: users × (prompt + output), which the verdict answers; it costs no memory by itself."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLabel, QWidget

from kvplanner.errors import PlannerError
from kvplanner.ui.setup import numbers
from kvplanner.ui.setup.field import Field
from kvplanner.ui.setup.inputs import ValueEdit
from kvplanner.ui.theme.geometry import grown
from kvplanner.units import format_count, parse_count

if TYPE_CHECKING:
    from kvplanner.engine.request import Load

MOST_USERS = 1_000_000
MOST_TOKENS = 100_000_000
USUAL = (1, 1500, 500)
HINTS = ("users", "prompt", "output")
AROUND = 20  # pixels beside a field's words
MIX = "70%:1500+500,30%:8k+1k"
ABOUT = (
    "How many users at once, each with a prompt and an answer of so many tokens.\n"
    "The verdict says whether all of them are served at the same time. It is no engine option and moves no memory.\n"
    f"A mix of kinds of requests stands in place of the prompt, such as {MIX}; in place of the users it asks how many "
    "of all kinds together are served."
)


class LoadField(Field):
    """edited(Load or None, merge key); all three empty means that no load is asked about.

    Several kinds of requests stand in the field of the prompt, which is then as wide as both. mix_asked(text): how many
    users of them are served, written in place of a number of users.
    """

    offer_below = True
    edited = Signal(object, str)
    mix_asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        self.users, self.prompt, self.output = ValueEdit(), ValueEdit(), ValueEdit()
        super().__init__("Load", (self.users, self.prompt, self.output), parent)
        self._load: Load | None = None
        for edit, name, width, hint in (
            (self.users, "Users at once", 60, "users"),
            (self.prompt, "Prompt tokens of a user", 67, "prompt"),
            (self.output, "Output tokens of a user", 67, "output"),
        ):
            edit.setAccessibleName(name)
            metrics = edit.fontMetrics()
            edit.setFixedWidth(max(grown(width, metrics.height(), 0.42), metrics.horizontalAdvance(hint) + AROUND))
            edit.setPlaceholderText(hint)
            edit.setToolTip(name)
            edit.committed.connect(self._commit)
            edit.stepped.connect(partial(self._step, edit))
        self.line.addStretch(1)
        self.line.addWidget(self.reset_button)
        self._plus = QLabel("+", self)
        for widget in (self.users, QLabel("×", self), self.prompt, self._plus, self.output):
            self.line.addWidget(widget)
        self.line.setSpacing(4)
        self.set_hint(ABOUT)
        self.reset_asked.connect(lambda: self.edited.emit(None, ""))

    def set_load(self, load: Load | None) -> None:
        """Show a load."""
        self._load = load
        self.set_error("")
        self.set_changed(load is not None)
        self._widen(mixed=bool(load and load.mix))
        values = (load.users, load.prompt_tokens, load.output_tokens) if load else (None, None, None)
        texts = [format_count(value) if value is not None else "" for value in values]
        if load is not None and load.mix:
            from kvplanner.request.named import mix_text

            texts[1] = mix_text(load)
        for edit, text, hint in zip((self.users, self.prompt, self.output), texts, HINTS, strict=True):
            edit.show_value(text, hint)

    def _widen(self, *, mixed: bool) -> None:
        """Give the prompt's field the answer's room too, or back."""
        if mixed != self.output.isHidden():
            for widget in (self._plus, self.output):
                widget.setHidden(mixed)
            more = self.output.width() + self._plus.sizeHint().width() + 2 * self.line.spacing()
            self.prompt.setFixedWidth(self.prompt.width() + (more if mixed else -more))
            self.prompt.setToolTip("Kinds of requests: share of the users, prompt + answer" if mixed else
                                   self.prompt.accessibleName())  # fmt: skip

    def write_anew(self) -> None:
        """Also what stands in it; what is refused stays as it was typed."""
        super().write_anew()
        if self.error.isHidden():
            self.set_load(self._load)

    def _values(self) -> tuple[int, int, int]:
        load = self._load
        return (load.users, load.prompt_tokens, load.output_tokens) if load else USUAL

    def _emit(self, users: int, prompt: int, output: int, key: str) -> None:
        from kvplanner.engine.request import Load

        mix = self._load.mix if self._load is not None else ()
        kept = self._load is not None and (prompt, output) == self._load[1:3]
        self.edited.emit(Load(users, prompt, output, mix if kept else ()), key)

    def _step(self, edit: ValueEdit, sign: int) -> None:
        """One more or less of a few, else twice or half as many; some token is left."""
        values = list(self._values())
        at = (self.users, self.prompt, self.output).index(edit)
        if at and self._load is not None and self._load.mix:
            return  # no single number
        value = values[at]
        values[at] = value + sign if value < 16 else value * 2 if sign > 0 else value // 2
        values[at] = min(max(values[at], int(at == 0)), (MOST_USERS, MOST_TOKENS, MOST_TOKENS)[at])
        users, prompt, output = values
        if prompt + output:
            self._emit(users, prompt, output, "step load")

    def _commit(self) -> None:
        """Read all three; what is still empty takes the usual value once one of them is set."""
        texts = [edit.text().strip() for edit in (self.users, self.prompt, self.output)]
        if not any(texts):
            self.set_error("")
            self.edited.emit(None, "")
            return
        if any(":" in text for text in texts):
            self._commit_mix(*texts[:2])
            return
        limits = (MOST_USERS, MOST_TOKENS, MOST_TOKENS)
        try:
            users, prompt, output = (
                _count(text, limit) if text else fallback
                for text, fallback, limit in zip(texts, self._values(), limits, strict=True)
            )
        except ValueError as error:
            self.set_error(str(error))
            return
        if users < 1 or prompt + output < 1:
            self.set_error("A load has at least one user and one token")
            return
        self.set_error("")
        self._emit(users, prompt, output, "")

    def _commit_mix(self, users: str, kinds: str) -> None:
        """Kinds of requests where the prompt stands are a load; where the users stand they are a question."""
        from kvplanner.engine.request import mixed
        from kvplanner.request.named import mix_text, parse_load, parse_mix

        try:
            if "@" in users:
                self.edited.emit(parse_load(users), "")
                return
            if ":" not in users:
                count = _count(users, MOST_USERS) if users else self._values()[0]
                shown = mix_text(self._load) if self._load is not None else ""
                mix = self._load.mix if self._load is not None and kinds == shown else parse_mix(kinds)
                if count < 1:
                    raise ValueError("A load has at least one user and one token")
                self.set_error("")
                self.edited.emit(mixed(count, mix), "")
                return
            parse_mix(users)
        except ValueError as error:
            self.set_error(str(error))
            return
        except PlannerError as error:
            self.set_error(f"{error.what}. For example {MIX}")
            return
        self.set_load(self._load)
        self.mix_asked.emit(users)


def _count(text: str, most: int) -> int:
    cleaned = numbers.plain(text)
    try:
        value = parse_count(cleaned)
    except ValueError as error:
        raise ValueError(numbers.as_typed(str(error), cleaned, text)) from None
    if value > most:
        raise ValueError(f"{text} is too large: {format_count(most)} at most")
    return value
