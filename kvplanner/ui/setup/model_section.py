"""The model: what is chosen, and the weight format that the plan assumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QStandardItemModel
from PySide6.QtWidgets import QWidget

from kvplanner.errors import PlannerError
from kvplanner.ui.setup.field import Field
from kvplanner.ui.setup.inputs import ComboBox, PickerButton
from kvplanner.ui.setup.section import Section
from kvplanner.ui.widgets.labels import WrappedLabel, muted_label
from kvplanner.units import ByteUnit, format_bytes, format_count

if TYPE_CHECKING:
    from kvplanner.model.model import Model

LONGEST_FACT: Final = 48  # characters that the button has room for


class ModelSection(Section):
    """pick(text): open the chooser. format_chosen(name or None)."""

    pick = Signal(str)
    format_chosen = Signal(object)
    formats: ComboBox
    format_field: Field

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Model", parent)
        self.button = PickerButton(self)
        self.button.setAccessibleName("Model")
        self.button.set_content("Choose a model", "of the catalogue, of this machine,", "or drop a file or folder")
        self.notes = muted_label("", self)
        self.notes.setProperty("role", "warning")
        self.notes.hide()
        self.draft = WrappedLabel("", self)
        self.draft.setProperty("role", "muted")
        self.draft.hide()
        self.add(self.button)
        self.add(self.notes)
        self.add(self.draft)
        self.button.clicked.connect(lambda: self.pick.emit(""))
        self.button.typed.connect(self.pick)
        self.built = False

    def build(self, formats: Mapping[str, str]) -> None:
        """Make what can wait for the first plan: the what-if formats, with a line about each."""
        self.built = True
        self.formats = ComboBox()
        self.format_field = Field("Weights", (self.formats,), self)
        self.format_field.offer_below = True
        self.format_field.line.addWidget(self.formats, 1)
        self.format_field.line.insertWidget(1, self.format_field.reset_button)
        self.format_field.reset_asked.connect(lambda: self.format_chosen.emit(None))
        self.rows.insertWidget(self.rows.indexOf(self.button) + 1, self.format_field)
        self.formats.activated.connect(lambda i: self.format_chosen.emit(self.formats.itemData(i)))
        self._formats, self._refused = formats, dict[str, str]()
        self.formats.addItem("As stored", None)
        for name, about in formats.items():
            self.formats.addItem(f"What if {name}", name)
            self.formats.setItemData(self.formats.count() - 1, about, Qt.ItemDataRole.ToolTipRole)

    def show_model(self, model: Model | None, weight_format: str | None, unit: ByteUnit) -> None:
        """Show a model."""
        if model is None:
            return
        from kvplanner.ui.setup.model_rows import parameter_text

        publisher, _, name = model.id.replace("\\", "/").rstrip("/").rpartition("/")
        facts = [publisher.rpartition("/")[2], parameter_text(model.parameters), model.weight_format]
        if model.spec.context_length:
            facts.append(f"context {format_count(model.spec.context_length)}")
        stored = stored_text(model, unit) if weight_format is None else would_store_text(model, weight_format, unit)
        self.button.set_content(
            name or model.id, " · ".join(f for f in facts if f), stored, chip="What if" if weight_format else ""
        )
        if self.built:
            self.format_field.set_changed(weight_format is not None)
            self.formats.setItemText(0, f"As stored ({model.weight_format})" if model.weight_format else "As stored")
            self.formats.setCurrentIndex(max(0, self.formats.findData(weight_format)) if weight_format else 0)
        notes = model.problems
        self.notes.setText("\n".join(notes))
        self.notes.setVisible(bool(notes))

    def show_refused(self, refused: Mapping[str, str]) -> None:
        """Grey out the formats that the engine cannot load, each with the reason."""
        rows = self.formats.model() if self.built else None
        if not isinstance(rows, QStandardItemModel) or refused == self._refused:
            return
        self._refused = dict(refused)
        for at in range(1, rows.rowCount()):
            item, name = rows.item(at), self.formats.itemData(at)
            reason = refused.get(name, "")
            item.setEnabled(not reason)
            item.setText(f"What if {name} — {reason}" if reason else f"What if {name}")
            item.setToolTip(f"{self._formats[name]}\n{reason}" if reason else self._formats[name])

    def show_draft(self, text: str) -> None:
        """What drafts tokens for the model, or that it is being read; "" for nothing."""
        self.draft.setText(text)
        self.draft.setVisible(bool(text))

    def show_loading(self, name: str) -> None:
        """Say that a model is being read."""
        self.button.set_content(f"Reading {name}…", "The plan below is still that of the model before", busy=True)


def draft_text(model: Model, unit: ByteUnit) -> str:
    """Text such as "Draft model: Qwen/Qwen3-0.6B · 0.75 B · bfloat16 · 1.40 GiB stored"."""
    from kvplanner.ui.setup.model_rows import parameter_text

    stored = f"{format_bytes(model.stored.value, unit)} stored" if model.stored else ""
    facts = (model.id, parameter_text(model.parameters), model.weight_format, stored)
    return f"Draft model: {' · '.join(fact for fact in facts if fact)}"


def stored_text(model: Model, unit: ByteUnit) -> str:
    """Text such as "14.96 GiB stored (16.06 GB) · catalogue, exact"; a longer one goes without "stored"."""
    source = model.source_kind
    if model.stored is None:
        return f"size not known · {source}"
    other: ByteUnit = "GB" if unit == "GiB" else "GiB"
    size, beside = format_bytes(model.stored.value, unit), format_bytes(model.stored.value, other)
    text = f"{size} stored ({beside}) · {source}, {model.stored.basis}"
    return text if len(text) <= LONGEST_FACT else text.replace(" stored", "", 1)


def would_store_text(model: Model, weight_format: str, unit: ByteUnit) -> str:
    """Text such as "8.46 GiB as FP8 · stored 14.96 GiB"; of a longer one the sizes are rounded."""
    from kvplanner.engine.whatif import as_format

    try:
        stored = as_format(model, weight_format).stored
    except PlannerError:
        stored = None
    if stored is None:
        return f"as {weight_format}: size not known"

    def told(digits: int) -> str:
        now = f" · stored {format_bytes(model.stored.value, unit, digits)}" if model.stored else ""
        named = weight_format.replace("GGUF UD-", "UD-")  # which only GGUF files have
        return f"{format_bytes(stored.value, unit, digits)} as {named}{now}"

    return told(2) if len(told(2)) <= LONGEST_FACT else told(0)
