"""A click where a limit stands asks the solver, and its answer is the plan, in one step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from kvplanner.engine.request import Load, mixed
from kvplanner.request.named import parse_mix
from kvplanner.solve.solver import Asked, solve
from kvplanner.ui.setup.context_field import ContextField
from kvplanner.ui.setup.load_field import MIX
from kvplanner.ui.window.commands.limits import Limits
from kvplanner.ui.window.window import MainWindow


def asked(window: MainWindow, what: Asked) -> None:
    limits = window.findChild(Limits)
    assert limits is not None
    button = next(button for limit, button in limits.buttons.values() if limit.asked == what)
    assert not button.isHidden()
    button.click()


@pytest.mark.parametrize(
    ("what", "engine"), [("users", "vllm"), ("utilisation", "vllm"), ("gpus", "vllm"), ("tp", "vllm"),
                         ("users", "sglang"), ("utilisation", "sglang"), ("users", "llamacpp")],
)  # fmt: skip
def test_a_click_makes_the_answer_the_plan(
    open_window: Callable[..., MainWindow], qtbot: QtBot, what: Asked, engine: str
) -> None:
    window = open_window("Llama-3.1-8B-Instruct", "2xRTX 4090", engine=engine)
    document = window.document
    document.edit("Load", load=Load(4, 1500, 500))
    document.flush()
    request, before = document.request(), document.state
    assert request is not None
    expected = solve(what, request)
    assert expected.sure_value is not None
    asked(window, what)
    qtbot.waitUntil(lambda: bool(window.centre.messages.strips), timeout=8000)
    document.flush()
    assert document.plan is not None
    assert expected.plan is not None
    assert document.plan.devices == expected.plan.devices
    assert document.plan.sure
    said = window.centre.messages.strips[-1].message.text
    assert str(expected.sure_value).replace(",", "") in said.replace(",", "")
    if document.state != before:
        document.undo()
        assert document.state == before
        assert not window.centre.messages.strips, "what was said was of other settings"


def test_a_mix_in_place_of_the_users_is_answered(window: MainWindow, qtbot: QtBot) -> None:
    load, document = window.panel.load, window.document
    assert load is not None
    request = document.request()
    assert request is not None
    expected = solve("users", request._replace(load=mixed(1, parse_mix(MIX))))
    load.users.setText(MIX)
    load.users.committed.emit(MIX)
    qtbot.waitUntil(lambda: bool(window.centre.messages.strips), timeout=8000)
    document.flush()
    said = window.centre.messages.strips[-1].message.text
    assert f"Most users at once: {expected.sure_value}" in said
    assert len(expected.parts) == 2
    for number, part in expected.parts:
        assert f"{number:,} of {part.prompt_tokens:,} + {part.output_tokens:,} tokens" in said
    assert expected.request is not None
    assert document.state.ask.load == expected.request.load
    assert (load.users.text(), load.prompt.text()) == (str(expected.sure_value), "70%:1500+500,30%:8000+1000")
    assert load.output.isHidden()
    assert document.plan is not None
    assert document.plan.limits.sure_serves_users == expected.sure_value
    assert document.state.ask.options == expected.request.options
    load.users.setText("70%:")
    load.users.committed.emit("70%:")
    assert "is no part of a mix" in load.error.message


def test_kinds_of_requests_stand_where_the_prompt_does(window: MainWindow) -> None:
    """They are a load like any other: verdict, ways and every limit are of them."""
    field, document = window.panel.load, window.document
    assert field is not None

    def typed(where: str, text: str) -> Load | None:
        edit = getattr(field, where)
        edit.setText(text)
        edit.committed.emit(text)
        document.flush()
        return document.state.ask.load

    narrow = field.prompt.width()
    load = typed("prompt", MIX)
    assert load == mixed(1, parse_mix(MIX))
    assert field.output.isHidden()
    assert field.prompt.width() > narrow
    assert typed("users", "32") == mixed(32, parse_mix(MIX))
    field.users.stepped.emit(-1)
    assert document.state.ask.load == mixed(16, parse_mix(MIX))
    field.prompt.stepped.emit(1)
    assert document.state.ask.load == mixed(16, parse_mix(MIX))
    assert typed("users", "8@2:1k+1,1:2k+1") == mixed(8, parse_mix("2:1k+1,1:2k+1"))
    typed("prompt", "70%:")
    assert "is no part of a mix" in field.error.message
    assert typed("prompt", "3000") == Load(8, 3000, 1)
    assert not field.output.isHidden()
    assert field.prompt.width() == narrow


def test_no_button_asks_what_has_no_answer(window: MainWindow) -> None:
    limits = window.findChild(Limits)
    assert limits is not None
    users = next(button for limit, button in limits.buttons.values() if limit.asked == "users")
    window.document.flush()
    assert users.isHidden()  # no load, no users
    window.document.edit("Load", load=Load(1, 100, 100))
    window.document.flush()
    assert not users.isHidden()


def test_a_refusal_offers_changes_that_give_a_plan(window: MainWindow, qtbot: QtBot) -> None:
    def offered() -> dict[str, QPushButton]:
        return {b.text(): b for b in window.centre.verdict._offered}

    document = window.document
    document.set_option("tensor_parallel_size", 4)
    document.flush()
    assert document.error is not None
    qtbot.waitUntil(lambda: "Use 4 GPUs" in offered(), timeout=8000)
    assert list(offered()) == ["Use tensor parallel 2", "Use 4 GPUs", "Undo change tensor parallel"]
    assert "KV cache" in offered()["Use 4 GPUs"].toolTip()
    offered()["Use 4 GPUs"].click()
    document.flush()
    assert document.error is None
    assert len(document.state.devices) == 4
    document.undo()
    document.flush()
    qtbot.waitUntil(lambda: "Use tensor parallel 2" in offered(), timeout=8000)
    offered()["Use tensor parallel 2"].click()
    document.flush()
    assert document.state.ask.options == {"tensor_parallel_size": 2}


def test_the_longest_context_names_what_keeps_it_from_being_longer(
    open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    window = open_window("Llama-3.1-8B-Instruct", "1xRTX 4090")
    document, field = window.document, window.panel.fields["max_model_len"]
    assert isinstance(field, ContextField)
    request = document.request()
    assert request is not None
    expected = solve("context", request)
    field.largest_button.click()
    qtbot.waitUntil(lambda: bool(window.centre.messages.strips), timeout=8000)
    document.flush()
    assert document.state.ask.options == {"max_model_len": expected.sure_value}
    assert f"Longest context: {expected.sure_value:,} tokens; {expected.value:,} tokens may work (" in said(window)
    document.undo()
    assert document.state.ask.options == {}


def test_where_no_length_is_known_to_fit_the_longest_is_looked_for(
    open_window: Callable[..., MainWindow], qtbot: QtBot
) -> None:
    """A prompt in one piece takes more than there is: no cache is sized, and no mark says what would do."""
    window = open_window("Llama-3.1-8B-Instruct", "1xRTX 4090")
    document = window.document
    document.set_options({"enable_chunked_prefill": False}, "Whole prompts")
    document.flush()
    assert document.plan is not None
    assert document.plan.stage == "profile"
    request = document.request()
    assert request is not None
    expected = solve("context", request)
    assert expected.sure_value is not None
    asked(window, "context")
    qtbot.waitUntil(lambda: bool(window.centre.messages.strips), timeout=8000)
    document.flush()
    assert document.plan.sure
    assert document.state.ask.options["max_model_len"] == expected.sure_value


def test_the_largest_format_that_fits_is_chosen(open_window: Callable[..., MainWindow], qtbot: QtBot) -> None:
    window = open_window("Qwen3-32B", "2xRTX 4090")
    document = window.document
    document.edit("Load", load=Load(2, 1500, 500))
    document.flush()
    request = document.request()
    assert request is not None
    expected = solve("format", request)
    asked(window, "format")
    qtbot.waitUntil(lambda: bool(window.centre.messages.strips), timeout=8000)
    document.flush()
    assert document.state.ask.weight_format == expected.sure_value
    assert document.plan is not None
    assert document.plan.sure
    assert f"Largest weight format: {expected.sure_value}" in said(window)


def test_a_limit_is_not_offered_where_it_has_no_answer(open_window: Callable[..., MainWindow]) -> None:
    window = open_window("Llama-3.3-70B-Instruct", "1xRTX 4090")
    limits = window.findChild(Limits)
    assert limits is not None
    shown = {limit.asked for limit, button in limits.buttons.values() if not button.isHidden()}
    assert shown == {"format", "gpus", "tp", "utilisation"}  # weights that do not fit are no question of length
    window.machines.choose("4xh100-sxm5-80gb")
    window.document.flush()
    shown = {limit.asked for limit, button in limits.buttons.values() if not button.isHidden()}
    assert shown == {"gpus", "tp", "utilisation"}  # as stored it fits


def said(window: MainWindow) -> str:
    """The last message."""
    return window.centre.messages.strips[-1].message.text


def test_gpus_of_which_nothing_can_be_told_can_be_chosen_anew(window: MainWindow, qtbot: QtBot) -> None:
    """No change of a setting gives a plan of them: the list of GPUs is a button, and what was planned last stays."""
    document, planned = window.document, window.document.plan
    document.edit("Engine", engine="llamacpp", options={})
    window.machines.choose("1xapple-m3-max")
    document.flush()
    assert document.error is not None
    assert document.error.where == "--gpu"
    qtbot.waitUntil(lambda: any(b.text() == "Choose GPUs…" for b in window.centre.verdict._offered), timeout=8000)
    assert planned is not None
    assert window.centre.plan is not None
    next(b for b in window.centre.verdict._offered if b.text() == "Choose GPUs…").click()
    assert window.pickers.gpu_chooser.isVisible()
