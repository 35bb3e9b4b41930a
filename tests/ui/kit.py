"""What the tests of the views share: wide plans, themes, and text measured without fonts."""

from __future__ import annotations

from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QApplication

from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.segment import Segment
from kvplanner.estimate import exact
from kvplanner.gpu.spec import GpuSpec
from kvplanner.ui.theme.palette import THEMES, ThemeName
from tests.engine import verdicts

PER_LETTER = {"title": 8.0, "text": 7.0, "small": 6.2, "small_bold": 6.8}


def measure(text: str, role: str) -> float:
    """A text's width, told from its letters."""
    return PER_LETTER[role] * len(text)


def plain_look(app: QApplication) -> None:
    """Takes off what a theme dressed it in. Not to the style's own palette, which is dark where the one before was."""
    app.setStyleSheet("")
    app.setStyle("Fusion")
    paint_theme(app, "light")


def paint_theme(app: QApplication, name: ThemeName) -> None:
    """Gives the application a theme's window, text and panel colours."""
    tokens = THEMES[name]
    palette = QPalette()
    for role, colour in (
        (QPalette.ColorRole.Window, tokens.window),
        (QPalette.ColorRole.Base, tokens.panel),
        (QPalette.ColorRole.WindowText, tokens.text),
        (QPalette.ColorRole.Text, tokens.text),
    ):
        palette.setColor(role, QColor(colour))
    app.setPalette(palette)


def widened(plan: Plan, count: int) -> Plan:
    """The plan on `count` devices like its first."""
    first = plan.devices[0]
    devices = tuple(first._replace(device=first.device._replace(index=i), role=f"tp{i}") for i in range(count))
    return verdicts.again(plan._replace(tightest=0), devices=devices)


def apart(plan: Plan, step: int) -> Plan:
    """The plan with every device a little different, so that nothing folds; another step, another plan."""
    devices = []
    for position, device in enumerate(plan.devices):
        moved = (position + 1) * step << 22
        segments = tuple(_moved(segment, moved) for segment in device.segments)
        devices.append(device._replace(segments=segments))
    return verdicts.again(plan, devices=tuple(devices))


def _moved(segment: Segment, size: int) -> Segment:
    change = {"kv_cache": -size, "weights": size}.get(segment.kind, 0)
    estimate = segment.estimate
    moved = estimate._replace(value=estimate.value + change, low=estimate.low + change, high=estimate.high + change)
    return segment._replace(estimate=moved)


def hosted(plan: Plan, total_bytes: int, used_bytes: int) -> Plan:
    """The plan with a host device beside its GPUs, which holds `used_bytes` of weights."""
    gpu = GpuSpec("host", "Host memory", "custom", exact(total_bytes), exact(total_bytes))
    device = plan.devices[0].device._replace(index=0, gpu=gpu, kind="host")
    segments = (Segment("weights", exact(used_bytes)), Segment("headroom", exact(total_bytes - used_bytes)))
    host = DevicePlan(device, "host", total_bytes, total_bytes, None, segments)
    return verdicts.again(plan, devices=(*plan.devices, host))
