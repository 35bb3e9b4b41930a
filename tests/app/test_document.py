"""The document: edits, undo, and plans that fail beside plans that hold."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from PySide6.QtCore import QCoreApplication
from pytestqt.qtbot import QtBot

from kvplanner.app.document import Document
from kvplanner.app.state import PlanState
from kvplanner.engine import registry
from kvplanner.engine.option import Option, OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from tests import sample_plans


class CountingEngine:
    """Answers with a hand-made plan; refuses a context of zero."""

    name = "vllm"

    def __init__(self) -> None:
        self.requests: list[PlanRequest] = []

    def options(self, version: str | None = None) -> tuple[Option, ...]:
        return ()

    def draft_wanted(self, options: Mapping[str, OptionValue]) -> None:
        """No draft model ever."""

    def plan(self, request: PlanRequest) -> Plan:
        self.requests.append(request)
        if request.options.get("max_model_len") == 0:
            raise BadInput("a context of zero holds nothing", "--max-model-len", "Give 1 or more")
        return next(iter(sample_plans.ALL.values()))()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> CountingEngine:
    fake = CountingEngine()
    monkeypatch.setattr(registry, "engine", lambda name: fake)
    return fake


@pytest.fixture
def document(qtbot: QtBot, engine: CountingEngine) -> Document:
    machine = sample_plans.machine(sample_plans.RTX4090, sample_plans.RTX4090)
    made = Document(
        state=PlanState(model_text="llama", model=sample_plans.llama_8b(), devices=machine.devices, machine_text="2x")
    )
    made.flush()
    return made


def test_a_burst_of_edits_is_planned_once_per_turn(qtbot: QtBot, document: Document, engine: CountingEngine) -> None:
    before = len(engine.requests)
    for length in range(1000, 1100):
        document.set_option("max_model_len", length, key="drag")
    assert len(engine.requests) == before
    with qtbot.waitSignal(document.planned):
        pass
    assert len(engine.requests) == before + 1
    assert engine.requests[-1].options == {"max_model_len": 1099}
    assert document.undo_count == 1


def test_a_refused_value_keeps_the_plan_before_and_names_its_field(qtbot: QtBot, document: Document) -> None:
    good = document.plan
    errors: list[BadInput] = []
    document.failed.connect(errors.append)
    document.set_option("max_model_len", 0)
    document.flush()
    assert document.plan is good
    assert document.error is errors[0]
    assert errors[0].where == "--max-model-len"
    document.undo()
    document.flush()
    assert document.error is None


def test_a_defect_of_the_planner_is_no_plan_and_is_not_swallowed(
    document: Document, engine: CountingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: PlanRequest) -> Plan:
        raise KeyError("surprise")

    good = document.plan
    monkeypatch.setattr(engine, "plan", broken)
    document.set_option("max_num_seqs", 3)
    with pytest.raises(KeyError):
        document.flush()
    assert document.plan is good
    assert document.error is not None
    document.stop()


def test_the_request_holds_only_what_was_set(document: Document, engine: CountingEngine) -> None:
    document.set_option("max_num_seqs", 64)
    document.set_option("max_num_seqs", None)
    document.flush()
    request = engine.requests[-1]
    assert request.options == {}
    assert request.version is None
    assert request.load is None


def test_setting_the_same_value_again_is_no_edit(document: Document) -> None:
    document.set_option("max_num_seqs", 64)
    document.set_option("max_num_seqs", 64)
    assert document.undo_count == 1


def test_unticked_devices_leave_the_machine_and_keep_their_numbers(document: Document) -> None:
    document.edit("Leave GPU 0 out", unticked=frozenset({0}))
    machine = document.state.machine
    assert machine is not None
    assert [device.index for device in machine.devices] == [1]
    document.edit("Leave GPU 1 out", unticked=frozenset({0, 1}))
    assert document.state.request() is None


def test_free_memory_given_by_the_user_replaces_what_was_seen(document: Document) -> None:
    document.edit("Free", given_free={1: 5_000_000_000})
    machine = document.state.machine
    assert machine is not None
    assert [device.free_bytes for device in machine.devices] == [None, 5_000_000_000]
    assert machine.devices[1].free_source == "--free"


def test_another_model_drops_the_what_if_of_the_one_before(document: Document) -> None:
    document.edit("What if", weight_format="fp8")
    document.set_model("other", sample_plans.llama_70b())
    assert document.state.ask.weight_format is None
    document.undo()
    assert document.state.ask.weight_format == "fp8"


def test_nothing_is_planned_after_stop(document: Document, engine: CountingEngine) -> None:
    document.set_option("max_num_seqs", 7)
    document.stop()
    before = len(engine.requests)
    QCoreApplication.processEvents()
    assert len(engine.requests) == before
