"""An option's range of values that work, on whatever slider has it, from the engine's answer alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from kvplanner.engine.plan import WorkingRange
from kvplanner.ui.setup.option_field import SliderField
from kvplanner.ui.theme.palette import LIGHT
from kvplanner.ui.window.window import MainWindow


def green(field: SliderField) -> list[int]:
    """Columns of the slider below its groove that are drawn as working."""
    picture = field.slider.grab().toImage()
    scale = picture.devicePixelRatio()
    y = round((field.slider.height() / 2 + 7.5) * scale)
    wanted = QColor(LIGHT.success).rgb()
    return [x for x in range(picture.width()) if picture.pixel(x, y) == wanted]


def test_the_part_that_works_is_drawn_on_the_track_and_said(open_window: Callable[..., MainWindow]) -> None:
    window = open_window(model="Llama-3.1-8B-Instruct", gpu="H100", engine="sglang")
    field = window.panel.fields["mem_fraction_static"]
    assert isinstance(field, SliderField)
    assert window.document.plan is not None
    (found,) = window.document.plan.ranges
    assert field.slider.works is not None
    assert (field.slider.works.low, field.slider.works.high) == (found.low, found.high)
    columns = green(field)
    assert columns[0] >= field.slider.x_of(found.low or 0) - 2
    assert columns[-1] <= field.slider.x_of(found.high or 0) + 2
    assert len(columns) > 20
    said = field.slider.accessibleDescription()
    assert f"Starts from {found.low:g} to {found.high:g}" in said
    assert "below: no KV cache" in said
    # It follows what else is set.
    window.document.set_option("context_length", 32768)
    window.document.flush()
    assert window.document.plan.ranges != (found,)
    assert field.range == window.document.plan.ranges[0]


def test_any_engine_may_say_where_any_of_its_options_works(window: MainWindow, qtbot: QtBot) -> None:
    field = window.panel.fields["gpu_memory_utilization"]
    assert isinstance(field, SliderField)
    assert field.slider.works is None
    plan = window.document.plan
    assert plan is not None
    window.document.plan = plan._replace(
        ranges=(WorkingRange("gpu_memory_utilization", 0.5, 0.9, None, None, "nothing", "all"),)
    )
    window.panel.show_plan(window.document.plan)
    assert field.slider.works is not None
    assert "but surely at none of them; below: nothing; above: all" in field.toolTip()
    window.panel.show_plan(plan)


@pytest.mark.parametrize("low", [None, 0.9])
def test_a_range_without_values_is_said_and_not_drawn(window: MainWindow, low: float | None) -> None:
    field = window.panel.fields["gpu_memory_utilization"]
    assert isinstance(field, SliderField)
    field.set_range(WorkingRange("gpu_memory_utilization", low, 0.8, None, None, "nothing", "all"))
    assert field.slider.works is None
    assert "Starts at no value of this option" in field.toolTip()
