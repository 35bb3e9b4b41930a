"""An engine that the window has never heard of: registered, chosen, planned and drawn from what it declares."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Final

import pytest

from kvplanner.engine import registry
from kvplanner.engine.option import Option
from kvplanner.engine.plan import Plan, WorkingRange
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.planner import Sglang
from kvplanner.ui.setup.option_field import SliderField
from kvplanner.ui.window.window import MainWindow

SHARE: Final = Option("share_of_it_all", ("--share-of-it-all",), "float", "Memory and cache", "How much of it all",
                      label="Share of it all", everyday=True, low=0.0, high=2.0)  # fmt: skip


class Unheard(Sglang):
    """SGLang's plans under another name, with an option of its own."""

    name: Final = "unheard"  # type: ignore[misc]  # a class's own, as the protocol's
    title: Final = "Unheard-of"  # type: ignore[misc]  # a class's own, as the protocol's

    def options(self, version: str | None = None) -> tuple[Option, ...]:
        return (SHARE, *super().options(version))

    def plan(self, request: PlanRequest) -> Plan:
        options = {name: value for name, value in request.options.items() if name != SHARE.name}
        made = super().plan(request._replace(options=options))
        works = WorkingRange(SHARE.name, 0.5, 1.5, 0.75, 1.25, "too little", "too much")
        return made._replace(request=request, ranges=(*made.ranges, works))


@pytest.fixture
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    package = "tests_unheard_of_engine"
    from kvplanner.engine.sglang import log, metrics, signature

    parts = {"planner": {"ENGINE": Unheard()}, "metrics": vars(metrics), "signature": vars(signature), "log": vars(log)}
    for part, content in parts.items():
        module = ModuleType(f"{package}.{part}")
        vars(module).update({name: value for name, value in content.items() if name.isupper()})
        monkeypatch.setitem(sys.modules, module.__name__, module)
    root = ModuleType(package)
    vars(root).update(TITLE="Unheard-of", __path__=[])
    monkeypatch.setitem(sys.modules, package, root)
    monkeypatch.setitem(registry._ENGINES, "unheard", package)


def test_it_is_offered_planned_and_drawn(unheard: None, open_window: Callable[..., MainWindow]) -> None:
    window = open_window(model="Llama-3.1-8B-Instruct", gpu="H100", engine="unheard")
    panel, document = window.panel, window.document
    assert document.plan is not None
    assert document.plan.fits
    field = panel.fields["share_of_it_all"]
    assert isinstance(field, SliderField)
    assert field.title == "Share of it all"
    assert field.slider.works is not None
    assert (field.slider.works.sure_low, field.slider.works.sure_high) == (0.75, 1.25)
    field.slider.setValue(700)
    document.flush()
    assert document.state.ask.options["share_of_it_all"] == pytest.approx(1.4, abs=0.01)
    assert window.centre.bars.canvas.grab().toImage().width() > 100
