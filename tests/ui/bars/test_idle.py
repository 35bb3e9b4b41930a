"""GPUs that a plan leaves idle have an empty bar that says so."""

from __future__ import annotations

from kvplanner.app.start import start_state
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.ui.bars.idle import idle_of, title_of
from kvplanner.ui.bars.layout import arrange, height_of
from kvplanner.ui.bars.shapes import THICK, View
from kvplanner.ui.theme.geometry import Role
from tests.ui.window.kit import words


def plan_on(gpu: str, *flags: str) -> Plan:
    request = start_state(words(gpu=gpu, flags=flags), lambda: None).request()
    assert request is not None
    return engine(request.engine).plan(request)


def measure(text: str, role: Role) -> float:
    return 7.0 * len(text)


def test_idle_gpus_have_an_empty_bar_of_their_kind() -> None:
    plan = plan_on("4xRTX 4090,2xH100", "--tensor-parallel-size=2")
    found = idle_of(plan)
    assert [(title_of(idle), idle.name) for idle in found] == [
        ("GPU 2–3", "NVIDIA GeForce RTX 4090"),
        ("GPU 4–5", "NVIDIA H100 80GB HBM3"),
    ]
    layout = arrange(plan, 900, 400, measure, View())
    assert [row.title.text for row in layout.idle] == ["GPU 2–3", "GPU 4–5"]
    assert layout.idle[0].text.text == "not used by this plan · each 23.99 GiB"
    assert layout.idle[0].rect.y >= layout.rows[-1].rect.bottom
    assert layout.axis_y == layout.idle[-1].rect.bottom
    assert layout.idle[1].frame.right <= layout.rows[0].frame.right + 1, "a larger card ends with the axis"
    assert height_of(plan, View(), THICK) == layout.height


def test_a_plan_that_uses_all_has_none() -> None:
    plan = plan_on("2xRTX 4090")
    assert idle_of(plan) == ()
    assert arrange(plan, 900, 400, measure, View()).idle == ()
