"""The engine and its version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from kvplanner.ui.setup.field import Field
from kvplanner.ui.setup.inputs import ComboBox
from kvplanner.ui.setup.section import Section
from kvplanner.ui.widgets.labels import spoken

if TYPE_CHECKING:
    from kvplanner.engine.protocol import Engine


class EngineSection(Section):
    """engine_chosen(name), version_chosen(text or None)."""

    engine_chosen = Signal(str)
    version_chosen = Signal(object)
    engines: ComboBox
    versions: ComboBox
    field: Field

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Engine", parent)
        self._engine = ""

    def build(self, names: tuple[tuple[str, str], ...]) -> None:
        """Make the inputs, after the first plan: names and titles of the engines that there are."""
        self.engines, self.versions = ComboBox(), ComboBox()
        self.field = Field("Version", (self.engines, self.versions), self)
        self.field.label.setText("")
        self.field.label.hide()
        self.field.line.addWidget(self.engines, 3)
        self.field.line.addWidget(self.field.reset_button)
        self.field.line.addWidget(self.versions, 4)
        self.engines.setAccessibleName("Engine")
        self.field.label.setAccessibleName("Engine")
        spoken(self.versions, "Engine version")
        self.field.reset_asked.connect(lambda: self.version_chosen.emit(None))
        self.add(self.field)
        self.engines.activated.connect(lambda i: self.engine_chosen.emit(self.engines.itemData(i)))
        self.versions.activated.connect(lambda i: self.version_chosen.emit(self.versions.itemData(i)))
        for name, title in names:
            self.engines.addItem(title, name)

    def show_engine(self, engine: Engine, version: str | None, rules: str) -> None:
        """Show a choice; the first version entry is "newest"."""
        if engine.name != self._engine:
            self._engine = engine.name
            self.engines.setCurrentIndex(max(0, self.engines.findData(engine.name)))
            self.versions.clear()
            self.versions.addItem(f"newest ({engine.versions[0]})" if engine.versions else "newest", None)
            for text in engine.versions:
                self.versions.addItem(text, text)
        self.field.set_changed(version is not None)
        index = self.versions.findData(version) if version else 0
        if index < 0:
            self.versions.addItem(version or "", version)
            index = self.versions.count() - 1
        self.versions.setCurrentIndex(index)
        self.versions.setToolTip(f"Rules: {rules}" if rules else "Which version's rules the plan follows")
