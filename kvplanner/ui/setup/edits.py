"""What is chosen and typed in the form, as edits of the document that can be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvplanner.app.document import Document
from kvplanner.report.options import in_sentence, option_label

if TYPE_CHECKING:
    from kvplanner.engine.option import OptionValue
    from kvplanner.engine.request import Load

LAST_GPU: Final = "A plan needs at least one GPU"


class Edits:
    """Each is one step back, or joins the one of the same key before it.

    typed_models: names that were typed here, not read from a file.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self.typed_models: set[str] = set()

    def set_option(self, name: str, value: OptionValue | None, key: str) -> None:
        """An option, or with None its default.

        With the first move of a handle (a drag or a step, which has a key) stays what the engine had placed around it.
        """
        verb = "Change" if value is not None else "Reset"
        if isinstance(value, str):
            self.typed_models.add(value)
        beside = self._beside(name) if key else ()
        label = f"{verb} {in_sentence(self._label(name))}"
        self._document.set_option(name, value, label=label, key=key, beside=beside)

    def _beside(self, name: str) -> tuple[tuple[str, OptionValue], ...]:
        """What is to be set with a handle."""
        plan = self._document.plan
        return next((found.beside for found in plan.handles if found.option == name), ()) if plan is not None else ()

    def _label(self, name: str) -> str:
        option = next((o for o in self._document.options() if o.name == name), None)
        return option_label(option) if option else name

    def reset_options(self) -> None:
        """Every option back to its default."""
        self._document.set_options({}, "Reset all options")

    def set_load(self, load: Load | None, key: str) -> None:
        """Users and their prompts."""
        self._document.edit("Change load" if load else "Reset load", key=key, load=load)

    def choose_format(self, name: str | None) -> None:
        """Another weight format, or with None the stored one."""
        self._document.edit(f"What if {name}" if name else "Weights as stored", weight_format=name)

    def choose_engine(self, name: str) -> None:
        """An engine, at its newest version."""
        self._document.edit("Change engine", engine=name, version=None)

    def choose_version(self, text: str | None) -> None:
        """A version of the engine, or with None the newest."""
        self._document.edit("Change engine version", version=text)

    def tick(self, index: int, *, on: bool) -> str:
        """Use a GPU or leave it out; why that cannot be, "" where it can."""
        unticked = self._document.state.unticked
        changed = unticked - {index} if on else unticked | {index}
        if len(changed) >= len(self._document.state.devices):
            return LAST_GPU
        self._document.edit(f"{'Use' if on else 'Leave out'} GPU {index}", unticked=frozenset(changed))
        return ""

    def give_free(self, index: int, size: int | None) -> None:
        """What is free on a GPU, or with None what was seen there."""
        given = {i: b for i, b in self._document.state.given_free.items() if i != index}
        if size is not None:
            given[index] = size
        self._document.edit(f"Free memory of GPU {index}", given_free=given)
