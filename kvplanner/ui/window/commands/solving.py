"""Ways to change the plan and what else would run: buttons under the verdict, and two tabs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QObject

from kvplanner.report.remedies import button, outcome, title, whole_button
from kvplanner.ui.remedies.finder import RemedyFinder
from kvplanner.ui.verdict.offer import Offer
from kvplanner.ui.window.centre import LOW
from kvplanner.ui.window.commands.limits import Limits
from kvplanner.ui.window.tabs import FITS, WAYS, Page, Tab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtWidgets import QWidget

    from kvplanner.engine.plan import Plan
    from kvplanner.solve.remedies import Remedy
    from kvplanner.ui.window.window import MainWindow

MOST: Final = 3


class Solving(QObject):
    """Looks for remedies of a filled window's plan, and offers the first few under a verdict that needs them."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._offered = False
        self.finder = RemedyFinder(window.document, window.services.jobs, self)
        self.finder.changed.connect(self._offer)
        self.limits = Limits(window)
        window.document.planned.connect(self._planned)
        window.document.failed.connect(self._failed)
        if window.document.error is None:
            window.centre.set_actions((), looking=True)
        window.centre.below.add_tab(Tab(WAYS, "Ways", self._ways))
        window.centre.below.add_tab(Tab(FITS, "What fits", self._fits))

    def _ways(self, parent: QWidget) -> Page:
        from kvplanner.ui.remedies.page import RemedyPage

        made = RemedyPage(self.finder, parent)
        mending = self._window.mending
        made.show_back(mending.said, mending.ways)
        mending.changed.connect(made.show_back)
        return made

    def _fits(self, parent: QWidget) -> Page:
        from kvplanner.ui.fits.page import FitsPage

        services = self._window.services
        return FitsPage(self._window.document, services.jobs, services.library, services.settings, parent)

    def _planned(self, plan: Plan) -> None:
        """A plan that needs no change has no buttons; others keep theirs until the new ones are known."""
        if not self._offered or not _needs(plan):
            self._window.centre.set_actions((), looking=True)
            self._offered = False

    def _failed(self, _error: object) -> None:
        self._offered = False  # what stands there now is for what is refused

    def _offer(self) -> None:
        finder = self.finder
        if finder.remedies is None or finder.plan is None:
            return
        # In a low window a verdict that is not of a failure leaves its room to the bars; the tab has all ways.
        wanted = _needs(finder.plan) and (finder.plan.fits is False or self._window.centre.height() >= LOW)
        chosen = [r for r in finder.remedies if r.sure and r.aim != "less"][:MOST] if wanted else []
        self._window.centre.set_actions([self._action(remedy, chosen) for remedy in chosen])
        self._offered = bool(chosen)

    def _action(self, remedy: Remedy, beside: Sequence[Remedy]) -> Offer:
        facts = ", ".join(outcome(remedy, self._window.services.unit()))
        plan = self.finder.plan
        of = plan.request.model.id if plan is not None else ""
        return Offer(
            whole_button(remedy, of),
            f"Apply: {title(remedy)}: {facts}. {'; '.join(remedy.costs)}",
            partial(self.finder.apply, remedy),
            button(remedy, of, beside),
        )


def _needs(plan: Plan) -> bool:
    """Whether a plan may fail, or leaves users of its load."""
    load, served = plan.request.load, plan.limits.sure_serves_users
    return plan.fits is not None and (
        not plan.sure or (load is not None and served is not None and served < load.users)
    )
