"""GPUs: what is chosen, how many, and each device with its tick box, what others hold, and its marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QEvent, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QSizePolicy,
    QStyle,
    QStyleOptionButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from kvplanner.app.state import PlanState
from kvplanner.gpu.names import short_name
from kvplanner.ui.setup import numbers
from kvplanner.ui.setup.field import Field
from kvplanner.ui.setup.inputs import PickerButton, ValueEdit
from kvplanner.ui.setup.section import Section
from kvplanner.ui.widgets.labels import ErrorLabel, muted_label, quiet_button
from kvplanner.units import MIB, TIB, ByteUnit, format_bytes, format_count, parse_size

if TYPE_CHECKING:
    from kvplanner.gpu.spec import Device, GpuSpec, Machine

MOST_BYTES = 16 * TIB


class NameBox(QCheckBox):
    """A tick box whose name is cut in the middle where it is too long: its end tells devices apart."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._name = ""
        self.setMinimumWidth(60)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def show_name(self, name: str) -> None:
        """Show a name, as much of it as there is room for."""
        self._name = name
        self.setAccessibleName(name)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """More or less room."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        option = QStyleOptionButton()
        self.initStyleOption(option)
        room = self.style().subElementRect(QStyle.SubElement.SE_CheckBoxContents, option, self).width()
        self.setText(self.fontMetrics().elidedText(self._name, Qt.TextElideMode.ElideMiddle, room))


class DeviceRow(QWidget):
    """One device; rows are kept and shown anew. ticked(index, on); free_given(index, bytes or None); removed(index).

    error_changed(): what was typed is refused, or no longer.
    """

    ticked = Signal(int, bool)
    free_given = Signal(int, object)
    removed = Signal(int)
    error_changed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.index = -1
        self._most = MOST_BYTES
        self._unit: ByteUnit = "GiB"
        self.box = NameBox(self)
        self.free = ValueEdit(self)
        self.free.setFixedWidth(84)
        self.remove = quiet_button("✕", "Remove", self)
        line = QHBoxLayout()
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(4)
        line.addWidget(self.box, 1)
        line.addWidget(self.free)
        line.addWidget(self.remove)
        self.facts = muted_label("", self)
        self.facts.setIndent(22)
        self.error = ErrorLabel(self)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addLayout(line)
        outer.addWidget(self.facts)
        outer.addWidget(self.error)
        self.box.clicked.connect(lambda checked: self.ticked.emit(self.index, checked))
        self.free.committed.connect(self._free_typed)
        self.remove.clicked.connect(lambda: self.removed.emit(self.index))

    def show_device(self, device: Device, *, on: bool, given: int | None, removable: bool, unit: ByteUnit) -> None:
        """Show a device; given: the free bytes that the user stated."""
        self.index, self._unit = device.index, unit
        total = device.gpu.cuda_total or device.gpu.total
        self._most = total.high if total else MOST_BYTES
        about = describe_device(device, unit)
        name, _, profile = short_name(device.gpu.name).partition(" MIG ")
        self.box.show_name(f"GPU {device.index} · {name}")
        self.box.setChecked(on)
        self.box.setToolTip(about)
        self.box.setAccessibleDescription(about)
        seen = device.free_bytes
        hint = format_bytes(seen, unit, 1) if seen is not None else "all free"
        self.free.setAccessibleName(f"Free memory of GPU {device.index}")
        self.free.setToolTip(
            "What is free before the engine starts, for example 22.5GiB. "
            + (f"Seen: {hint} ({device.free_source})" if seen is not None else "Empty: nothing else runs there.")
        )
        self.free.show_value(format_bytes(given, unit, 2) if given is not None else "", hint)
        self.remove.setVisible(removable)
        self.remove.setAccessibleName(f"Remove GPU {device.index}")
        self.remove.setToolTip(f"Remove GPU {device.index}")
        marks = [f"MIG {profile}" if profile and "MIG" in mark else mark for mark in device.marks]
        if profile and f"MIG {profile}" not in marks:
            marks.insert(0, f"MIG {profile}")
        facts = " · ".join(part for part in (device.uuid[-6:] if device.uuid else "", *marks) if part)
        self.facts.setText(facts)
        self.facts.setVisible(bool(facts))
        self._say("")
        self.show()

    def _say(self, text: str) -> None:
        if text != self.error.message:
            self.error.say(text)
            self.free.set_wrong(bool(text))
            self.error_changed.emit()

    def _free_typed(self, text: str) -> None:
        value: int | None = None
        if text.strip():
            cleaned = numbers.plain(text, whole=False)
            try:
                value = parse_size(cleaned)
            except ValueError as error:
                self._say(numbers.as_typed(str(error), cleaned, text))
                return
            if value and value < MIB:
                self._say(f"{text} is {value:,} bytes: give a unit, for example {text}GiB")
                return
            if value > self._most:
                self._say(f"{text} is more than this GPU has: {format_bytes(self._most, self._unit)}")
                return
        self._say("")
        self.free_given.emit(self.index, value)


class GpuSection(Section):
    """pick(text): open the chooser. add_gpu(): open it to add one. counted(n). Device signals as DeviceRow's.

    rows_changed(): device rows were made or went. row_error_changed(): `refused_row` is another one.
    """

    pick = Signal(str)
    add_gpu = Signal()
    counted = Signal(int)
    ticked = Signal(int, bool)
    free_given = Signal(int, object)
    removed = Signal(int)
    rows_changed = Signal()
    row_error_changed = Signal()
    count: ValueEdit
    count_field: Field
    toggle: QToolButton

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("GPUs", parent)
        self.button = PickerButton(self)
        self.button.setAccessibleName("GPUs")
        self.button.set_content("Choose GPUs", "of this machine, of the catalogue, or of any size")
        self.add(self.button)
        self.button.clicked.connect(lambda: self.pick.emit(""))
        self.button.typed.connect(self.pick)
        self._rows: list[DeviceRow] = []
        self._shown: tuple[object, ...] = ()
        self._unit: ByteUnit = "GiB"
        self._total = 0
        self._state: PlanState | None = None
        self._opened_for: tuple[str, str] | None = None
        self._none_here = False
        self.built = False

    def build(self) -> None:
        """Make what can wait for the first plan: the count and the devices."""
        self.built = True
        self.count = ValueEdit()
        self.count.setFixedWidth(62)
        self.count_field = Field("Count", (self.count,), self)
        self.toggle = quiet_button("Devices ▸", "Show each device", self)
        self.toggle.setCheckable(True)
        self.count_field.line.addStretch(1)
        self.count_field.line.addWidget(self.toggle)
        self.count_field.line.addWidget(self.count)
        self._devices = QWidget(self)
        self._device_rows = QVBoxLayout(self._devices)
        self._device_rows.setContentsMargins(0, 0, 0, 0)
        self._device_rows.setSpacing(2)
        self._devices.hide()
        self._add = quiet_button("+ Add another GPU…", "Add another GPU, also of another kind", self._devices)
        self._add.clicked.connect(self.add_gpu)
        self._device_rows.addWidget(self._add, 0, Qt.AlignmentFlag.AlignLeft)
        self.add(self.count_field)
        self.add(self._devices)
        self.count.committed.connect(self._count_typed)
        self.count.stepped.connect(self._step)
        self.toggle.toggled.connect(self._toggle_devices)

    def show_found(self, machine: Machine | None) -> None:
        """What this machine has: nothing explains why a GPU is assumed."""
        self._none_here = machine is None
        if self._state is not None:
            self.show_state(self._state, self._unit)

    def tab_stops(self) -> list[QWidget]:
        """What a keyboard reaches, in the order in which it is read."""
        stops: list[QWidget] = [self.button, self.toggle, self.count]
        for row in self._rows:
            stops += [row.box, row.free, row.remove]
        return [*stops, self._add]

    def show_state(self, state: PlanState, unit: ByteUnit) -> None:
        """Show the machine of a state."""
        from kvplanner.gpu.spec import Machine

        if self._state is not None and state.devices != self._state.devices:
            self.set_error("")  # of a choice that another one has replaced
        self._unit, self._state = unit, state
        devices = state.devices
        if not devices:
            self.button.set_content("Choose GPUs", "of this machine, of the catalogue, or of any size")
            return
        ticked = [d for d in devices if d.index not in state.unticked]
        shown, high = Machine(tuple(ticked or devices), state.machine_source), self.rows.sizeHint().height()
        self.button.set_content(machine_title(shown), *machine_lines(shown, state, unit, none_here=self._none_here))
        if self.built:
            self._show_count(state, len(ticked))
        if self.rows.sizeHint().height() != high and self.isVisible():
            # The form moves in the same frame; else one would show it squeezed, with lines cut off.
            QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)

    def _show_count(self, state: PlanState, used: int) -> None:
        devices = state.devices
        alike = len({d.gpu for d in devices}) == 1
        local = state.machine_source == "this machine"
        self._total = len(devices)
        self.count.setVisible(alike and not local)
        self.count_field.label.setText("Count" if alike and not local else f"{used} of {len(devices)} chosen")
        self.count_field.set_error("")
        self.count.show_value(format_count(len(devices)), "")
        if (not alike or local or state.unticked or state.given_free) and not self.toggle.isChecked():
            key = (state.machine_text, state.machine_source)
            if key != self._opened_for:
                self._opened_for = key
                self.toggle.setChecked(True)
        self._show_devices(state)

    def _show_devices(self, state: PlanState) -> None:
        wanted = (state.devices, state.unticked, tuple(sorted(state.given_free.items())), self._unit)
        if not self.toggle.isChecked() or wanted == self._shown:
            return
        self._shown = wanted
        removable = len(state.devices) > 1 and state.machine_source != "this machine"
        while len(self._rows) < len(state.devices):
            row = DeviceRow(self._devices)
            row.ticked.connect(self.ticked)
            row.free_given.connect(self.free_given)
            row.removed.connect(self.removed)
            row.error_changed.connect(self.row_error_changed)
            self._device_rows.insertWidget(len(self._rows), row)
            self._rows.append(row)
        for row, device in zip(self._rows, state.devices, strict=False):
            row.show_device(
                device,
                on=device.index not in state.unticked,
                given=state.given_free.get(device.index),
                removable=removable,
                unit=self._unit,
            )
        for row in self._rows[len(state.devices) :]:
            row.hide()
        self._add.setVisible(state.machine_source != "this machine")
        self.rows_changed.emit()

    def refused_row(self) -> tuple[str, str]:
        """Name and message of the first GPU whose free memory was refused, "" for none."""
        shown = self._rows[: len(self._state.devices)] if self._state is not None else []
        return next(
            ((f"Free memory of GPU {row.index}", row.error.message) for row in shown if row.error.message), ("", "")
        )

    def _toggle_devices(self, on: bool) -> None:
        self.toggle.setText("Devices ▾" if on else "Devices ▸")
        self._devices.setVisible(on)
        self._shown = ()
        if on and self._state is not None:
            self._show_devices(self._state)

    def _count_typed(self, text: str) -> None:
        cleaned = numbers.plain(text)
        if not cleaned:
            self.count_field.set_error("")
            self.count.show_value(format_count(self._total), "")
            return
        if not cleaned.isdecimal() or len(cleaned) > 3 or not 1 <= int(cleaned) <= 64:
            self.count_field.set_error("Give a whole number from 1 to 64")
            return
        self.count_field.set_error("")
        self.counted.emit(int(cleaned))

    def _step(self, sign: int) -> None:
        self.count_field.set_error("")
        self.counted.emit(min(max(self._total + sign, 1), 64))


def machine_title(machine: Machine) -> str:
    """Text such as "2 × RTX 4090"; of many kinds how many GPUs there are, so that no count is cut off."""
    kinds = {device.gpu for device in machine.devices}
    if len(kinds) > 2:
        return f"{len(machine.devices)} GPUs of {len(kinds)} kinds"
    return short_name(machine.describe())


def machine_lines(machine: Machine, state: PlanState, unit: ByteUnit, *, none_here: bool = False) -> tuple[str, ...]:
    """Where the machine comes from and what each GPU has; what others hold, when that is known."""
    source = {"this machine": "This machine", "custom": "Custom", "catalogue": "Catalogue"}.get(
        machine.source, machine.source
    )
    if not state.machine_chosen and machine.source == "catalogue":
        source = "Assumed, no GPU here" if none_here else "Assumed"  # in one line: the form is not to move down
    first = f"{source} · {_sizes(machine, unit)}"
    used = [(d, used_by_others(d)) for d in machine.devices]
    held = [f"GPU {d.index}: {format_bytes(size, unit)}" for d, size in used if size]
    return (first, f"Used by others: {' · '.join(held)}") if held else (first,)


def _sizes(machine: Machine, unit: ByteUnit) -> str:
    if len({device.gpu for device in machine.devices}) == 1:
        return sizes_each(machine, unit)
    total = sum(d.gpu.total.value for d in machine.devices if d.gpu.total)
    return f"{format_bytes(total, unit)} in all"


def sizes_each(machine: Machine, unit: ByteUnit) -> str:
    """Text such as "23.99 GiB each, 23.52 usable"; of several kinds "4.75–19.50 GiB each"."""
    several = len(machine.devices) > 1
    sizes = sorted({d.gpu.total.value for d in machine.devices if d.gpu.total})
    if len(sizes) < 2:
        return memory_text(machine.devices[0].gpu, unit, each=several)
    low, high = format_bytes(sizes[0], unit).removesuffix(f" {unit}"), format_bytes(sizes[-1], unit)
    return f"{low}–{high} each"


def memory_text(spec: GpuSpec, unit: ByteUnit, *, each: bool) -> str:
    """Text such as "23.99 GiB each, 23.52 usable"."""
    if spec.total is None:
        return "memory not known"
    text = format_bytes(spec.total.value, unit) + (" each" if each else "")
    if spec.cuda_total is not None and spec.cuda_total.value != spec.total.value:
        usable = format_bytes(spec.cuda_total.value, unit).removesuffix(f" {unit}")
        mark = "≈ " if spec.cuda_total.basis == "assumed" else ""
        text += f", {mark}{usable} usable"
    return text


def used_by_others(device: Device) -> int:
    """Bytes that something else holds, as far as free memory is known."""
    total = device.gpu.cuda_total or device.gpu.total
    if device.free_bytes is None or total is None:
        return 0
    return max(0, total.value - device.free_bytes)


def describe_device(device: Device, unit: ByteUnit) -> str:
    """A device's facts, one line each."""
    lines = [f"GPU {device.index}: {device.gpu.name}", memory_text(device.gpu, unit, each=False)]
    if device.uuid:
        lines.append(f"UUID {device.uuid}")
    if device.pci:
        lines.append(f"PCI {device.pci}")
    if device.free_bytes is not None:
        lines.append(f"Free: {format_bytes(device.free_bytes, unit)} ({device.free_source})")
    lines += device.marks
    return "\n".join(lines)
