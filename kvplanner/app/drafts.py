"""Reads the draft model that a document's plan needs, in the background."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kvplanner.app.document import Document
from kvplanner.app.jobs import Jobs, error_text
from kvplanner.errors import PlannerError

if TYPE_CHECKING:
    from kvplanner.engine.option import OptionValue
    from kvplanner.model.model import Model

ONLINE: Final = "hub:"
_WHERE: Final = "--speculative-config.model"


class DraftReader:
    """Answers one document's `draft_wanted`."""

    def __init__(self, document: Document, jobs: Jobs) -> None:
        self._document = document
        self._jobs = jobs
        self._pending: tuple[object, ...] = ()

    def read(self, name: str, options: Mapping[str, OptionValue], *, allow_network: bool) -> None:
        """Read what a name stands for; further calls for the same one wait for the first."""
        from kvplanner.app.library import open_model
        from kvplanner.request.draft import METHOD_OPTION, open_draft

        asked = (name, options.get(METHOD_OPTION))
        if asked == self._pending:
            return
        self._pending = asked
        online = allow_network and name.startswith(ONLINE)

        def answer(found: Model | PlannerError | None) -> None:
            if self._pending == asked:
                self._pending = ()
                self._document.give_draft(options, found)

        def failed(error: Exception) -> None:
            answer(error if isinstance(error, PlannerError) else PlannerError(error_text(error), _WHERE))

        job = self._jobs.submit(
            f"Reading {name}",
            lambda control: open_draft(options, lambda text: open_model(text, allow_network=online)),
            answer,
            failed,
            key=f"draft {id(self)}",
        )
        if job is not None:
            # Cancelled by the user, neither of the two was called.
            stopped = PlannerError("reading the draft model was cancelled", _WHERE, "Name it again")
            job.finished.connect(lambda: failed(stopped))
