"""What goes to the clipboard: the plan as text, Markdown or JSON, and the engine's command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from PySide6 import QtGui

from kvplanner.report.options import in_sentence
from kvplanner.report.sentences import reason
from kvplanner.sized_text import sizes_in

if TYPE_CHECKING:
    from kvplanner.app.document import Document
    from kvplanner.app.messages import Messages
    from kvplanner.engine.plan import Plan
    from kvplanner.ui.window.commands.form import Form
    from kvplanner.ui.window.services import Services

SHORT: Final = 90


class Copying:
    """Copies only what is set now; the last good plan would not be what the user means."""

    def __init__(self, document: Document, messages: Messages, services: Services, form: Form) -> None:
        self._document = document
        self._messages = messages
        self._services = services
        self._form = form

    def _copy(self, text: str, what: str) -> None:
        QtGui.QGuiApplication.clipboard().setText(text)
        self._messages.brief(f"Copied {what}")

    def _plan_to_copy(self) -> Plan | None:
        """The plan of what is set now; the last good one would not be what the user means."""
        lacking = self._form.lacking_for("copy")
        if lacking:
            self._messages.warning(lacking, key="copy")
            return None
        return self._document.plan

    def copy_text(self) -> None:
        """The plan as text."""
        from kvplanner.report import text as report

        plan = self._plan_to_copy()
        if plan is not None:
            self._copy(report.text(plan, unit=self._services.unit()), "the plan as text")

    def copy_markdown(self) -> None:
        """The plan as Markdown."""
        from kvplanner.report import text as report

        plan = self._plan_to_copy()
        if plan is not None:
            self._copy(report.markdown(plan, unit=self._services.unit()), "the plan as Markdown")

    def copy_json(self) -> None:
        """The plan as JSON."""
        from kvplanner.report import schema

        plan = self._plan_to_copy()
        if plan is not None:
            self._copy(json.dumps(schema.to_json(plan), indent=2), "the plan as JSON")

    def _model_path(self) -> str:
        """Where the model lies on this machine, "" for one that is known by its name."""
        from kvplanner.source.resolve import local_path

        state = self._document.state
        return local_path(state.model_text, state.model) if state.model is not None else ""

    def copy_command(self) -> None:
        """The command that starts the engine as planned, with what the plan settled on; says so when that fails."""
        from kvplanner.engine.command import format_command
        from kvplanner.engine.registry import engine
        from kvplanner.report.launch import started

        field, said = self._form.refused()
        plan, error = self._document.plan, self._document.error
        made = plan is not None and error is None and not self._document.waiting
        request = plan.request if plan is not None and made else self._document.state.request()
        if request is None:
            self._messages.warning("Choose a model and GPUs first", key="copy")
            return
        # A server does not spread over its GPUs by itself: what the plan settled on is written out.
        whole = started(plan) if plan is not None and made else request
        command = format_command(engine(request.engine), whole, self._model_path())
        if request.weight_format is not None:
            command = f"# needs a checkpoint in {request.weight_format}\n{command}"
        self._copy(command, command if len(command) < SHORT else "the engine's command line")
        self._messages.clear("copy")
        if plan is None or not made:
            self._messages.warning(
                f"Copied; but these settings have no plan: {error or 'none was made yet'}", key="copy"
            )
        elif field:
            self._messages.warning(f"Copied, without {in_sentence(field)}, which is refused: {said}", key="copy")
        elif plan.fits is None:
            why = sizes_in(reason(plan), self._services.unit())
            self._messages.warning(f"Copied; but whether this plan fits cannot be told: {why}", key="copy")
        elif not plan.fits:
            why = sizes_in(reason(plan), self._services.unit())
            self._messages.warning(f"Copied; but this plan does not fit: {why}", key="copy")
