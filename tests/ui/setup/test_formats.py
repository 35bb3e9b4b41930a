"""The weight formats to try: what the release or the GPU cannot run is greyed out, and refused where it was chosen."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtGui import QStandardItemModel

from kvplanner.ui.setup.model_section import ModelSection
from kvplanner.ui.window.window import MainWindow


def greyed(section: ModelSection) -> dict[str, str]:
    """The formats that cannot be chosen, each with what its entry says."""
    rows = section.formats.model()
    assert isinstance(rows, QStandardItemModel)
    items = {section.formats.itemData(at): rows.item(at) for at in range(rows.rowCount())}
    return {name: item.text() for name, item in items.items() if not item.isEnabled()}


def test_formats_that_the_gpus_cannot_run_are_greyed_out(open_window: Callable[..., MainWindow]) -> None:
    window = open_window(model="Qwen3-8B", gpu="T4", version="0.16")
    document, model = window.document, window.panel.model
    shown = greyed(model)
    assert set(shown) == {"MXFP4"}
    assert shown["MXFP4"] == "What if MXFP4 — needs compute capability 8.0, Tesla T4 has 7.5"
    document.edit("Version", version="0.11")
    document.flush()
    assert {"MXFP4", "FP8", "FP8 block"} <= set(greyed(model))
    document.edit("GPU", devices=open_window(gpu="H100").document.state.devices)
    document.flush()
    assert greyed(model) == {}


def test_a_format_that_the_gpus_cannot_run_is_refused_at_the_weights(open_window: Callable[..., MainWindow]) -> None:
    window = open_window(model="Qwen3-8B", gpu="Tesla V100-SXM2-32GB")
    document, panel = window.document, window.panel
    assert window.centre.verdict.shown().state == "unknown"
    document.edit("Format", weight_format="FP8")
    document.flush()
    assert document.error is not None
    assert "fp8 is not supported for the current GPU" in panel.model.format_field.error.message
    assert panel.gpus.error.message == ""
    assert window.centre.verdict.shown().details[-1].startswith("Shown: the last plan that could be made (Cannot tell")
    document.edit("Format", weight_format=None)
    document.flush()
    assert panel.model.format_field.error.message == ""
