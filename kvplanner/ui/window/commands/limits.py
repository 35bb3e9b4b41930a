"""How far a setting goes, found by a click where it stands: longest context, most users, smallest share, fewest GPUs,
best split, largest weight format.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QObject

from kvplanner.engine.option import Role
from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from PySide6.QtWidgets import QToolButton

    from kvplanner.app.jobs import JobControl
    from kvplanner.engine.plan import Plan
    from kvplanner.engine.request import PlanRequest
    from kvplanner.solve.solver import Asked, Solved
    from kvplanner.ui.setup.field import Field
    from kvplanner.ui.window.window import MainWindow

KEY: Final = "limit"


class Limit(NamedTuple):
    """A question: what its button says, what it is for, and whether it is asked of a load."""

    asked: Asked
    text: str
    tip: str
    of_load: bool = False


USERS: Final = Limit(
    "users", "most that are served", "Find the most users of such requests that are surely served", of_load=True
)
GPUS: Final = Limit("gpus", "fewest", "Find the fewest GPUs of this kind that surely carry it, and their split")
FORMAT: Final = Limit("format", "largest that fits", "Find the format that keeps most of the weights and surely fits")
_OF_ROLES: Final[dict[Role, Limit]] = {
    "context": Limit("context", "longest", "Find the longest context that surely fits"),
    "budget_share": Limit("utilisation", "min", "Find the smallest share that surely works and serves the load"),
    "tensor_parallel": Limit("tp", "best", "Find the split over these GPUs that surely carries most"),
}


class Limits(QObject):
    """Keeps a button at each setting that the engine of the plan has a limit of, and makes its answer the plan."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self.buttons: dict[Field, tuple[Limit, QToolButton]] = {}
        window.document.planned.connect(self._planned)
        if window.document.plan is not None:
            self._planned(window.document.plan)

    def _fields(self) -> list[tuple[Field, Limit]]:
        panel = self._window.panel
        if panel.load is None or panel.advanced is None:
            return []
        of_options = ((field, _OF_ROLES.get(field.option.role)) for field in panel.fields.values())
        found: list[tuple[Field, Limit]] = [(field, limit) for field, limit in of_options if limit is not None]
        return [(panel.load, USERS), (panel.gpus.count_field, GPUS), (panel.model.format_field, FORMAT), *found]

    def _planned(self, plan: Plan) -> None:
        from kvplanner.ui.setup.context_field import ContextField
        from kvplanner.ui.setup.load_field import LoadField

        fields, added = self._fields(), False
        for field, limit in fields:
            if field not in self.buttons:
                button = field.offer(limit.text, limit.tip)
                button.clicked.connect(partial(self.ask, limit))
                self.buttons[field] = limit, button
                added = True
                if isinstance(field, LoadField):
                    field.mix_asked.connect(self.ask_mix)
                elif isinstance(field, ContextField):
                    field.longest_asked.connect(partial(self.ask, limit))
            self.buttons[field][1].setVisible(_makes_sense(limit, plan))
        if added:
            self._window.panel.order_tabs()

    def ask(self, limit: Limit) -> None:
        """Look for the answer on a thread, and make it the plan."""
        self._look(limit.tip, lambda request, control: _solved(limit.asked, request, control))

    def ask_mix(self, text: str) -> None:
        """The same for the users of several kinds of requests."""
        self._look(
            "Find the most users of the mix that are surely served",
            lambda request, control: _of_mix(text, request, control),
        )

    def _look(self, tip: str, work: Callable[[PlanRequest, JobControl], Solved]) -> None:
        document = self._window.document
        request, state = document.known_request(), document.state
        if request is None:
            return

        def done(solved: Solved) -> None:
            if document.state is state:
                self._answer(solved)

        self._window.services.jobs.submit(
            tip.replace("Find", "Looking for", 1), lambda control: work(request, control), done,
            partial(self._failed, tip), key=KEY,
        )  # fmt: skip

    def _answer(self, solved: Solved) -> None:
        """Say it with what binds it; it is the plan in one step that undo takes back."""
        from kvplanner.report.solved import asides, solved_lines
        from kvplanner.ui.remedies.applying import fields_of

        document, plan = self._window.document, self._window.document.plan
        if plan is None:
            return
        told = solved_lines(plan, solved)[0]
        beside = "; ".join(asides(plan, solved))
        if solved.request is not None and solved.sure_value is not None:
            document.seal()
            document.edit(told.partition(" (")[0], **fields_of(document.state, solved))
        # After the edit, which takes back what was said of other settings.
        self._window.messages.info(f"{told}: {beside}" if beside else told, key=KEY)

    def _failed(self, tip: str, error: Exception) -> None:
        self._window.messages.error(error, tip, key=KEY)


def _makes_sense(limit: Limit, plan: Plan) -> bool:
    """Whether the question has an answer that the form does not show yet: users need a load and a cache, fewer GPUs
    ones that are alike; the longest context is a mark of its own where it is known, and a format that is as stored and
    fits is the largest.
    """
    request = plan.request
    if plan.fits is None:
        return False
    if limit.of_load:
        return request.load is not None and plan.kv_cache is not None
    if limit.asked == "context":
        return plan.limits.sure_max_context_length is None and not _before_any_token(plan)
    if limit.asked == "format":
        served = plan.limits.sure_serves_users or 0
        short = not plan.sure or (request.load is not None and served < request.load.users)
        return request.model.inventory is not None and (short or request.weight_format is not None)
    return limit.asked != "gpus" or len({device.gpu.id for device in request.machine.devices}) == 1


def _before_any_token(plan: Plan) -> bool:
    """Whether a plan fails, or may, where no context is shorter: at what is free, or with its weights."""
    from kvplanner.engine.registry import engine

    short = plan.verdict.failing or plan.verdict.doubt
    rule = next((rule for rule in engine(plan.request.engine).stages if short and rule.stage == short.stage), None)
    return rule is not None and (rule.against == "free" or rule.step == "load")


def _solved(asked: Asked, request: PlanRequest, control: JobControl) -> Solved:
    from kvplanner.solve.solver import solve

    return solve(asked, request, control.check)


def _of_mix(text: str, request: PlanRequest, control: JobControl) -> Solved:
    from kvplanner.engine.request import mixed
    from kvplanner.request.named import parse_mix
    from kvplanner.solve.solver import solve

    return solve("users", request._replace(load=mixed(1, parse_mix(text))), control.check)
