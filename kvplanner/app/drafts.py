"""Reads the draft model that a document's plan needs, in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvplanner.app.document import Document
from kvplanner.app.jobs import Jobs, error_text
from kvplanner.errors import PlannerError

if TYPE_CHECKING:
    from kvplanner.engine.draft import DraftWish
    from kvplanner.model.model import Model

ONLINE: Final = "hub:"


class DraftReader:
    """Answers one document's `draft_wanted`."""

    def __init__(self, document: Document, jobs: Jobs) -> None:
        self._document = document
        self._jobs = jobs
        self._pending: DraftWish | None = None

    def read(self, wish: DraftWish, *, allow_network: bool) -> None:
        """Read what a name stands for; further calls for the same wish wait for the first."""
        from kvplanner.app.library import open_model
        from kvplanner.request.draft import open_draft

        if wish == self._pending:
            return
        self._pending = wish
        online = allow_network and wish.name.startswith(ONLINE)

        def answer(found: Model | PlannerError | None) -> None:
            if self._pending == wish:
                self._pending = None
                self._document.give_draft(wish, found)

        def failed(error: Exception) -> None:
            answer(error if isinstance(error, PlannerError) else PlannerError(error_text(error), wish.flag))

        job = self._jobs.submit(
            f"Reading {wish.name}",
            lambda control: open_draft(wish, lambda text: open_model(text, allow_network=online)),
            answer,
            failed,
            key=f"draft {id(self)}",
        )
        if job is not None:
            # Cancelled by the user, neither of the two was called.
            stopped = PlannerError("reading the draft model was cancelled", wish.flag, "Name it again")
            job.finished.connect(lambda: failed(stopped))
