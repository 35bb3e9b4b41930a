"""The row of running engines: which one to compare with, make it the plan, ask it how full its KV cache is."""

from __future__ import annotations

import time

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QLineEdit, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from kvplanner.app.jobs import Jobs, error_text
from kvplanner.observe.engines import EngineLaunch, address_of, launch_of, model_word
from kvplanner.observe.metrics import Fill, read_fill
from kvplanner.observe.signatures import recognise, signature
from kvplanner.observe.snapshot import EngineSeen, ProcessSample, Snapshot


class EngineRow(QWidget):
    """Hidden while no engine runs.

    chosen(pid or None): the engine to compare with. launch_read(EngineLaunch): it is to become the plan.
    fill_read(Fill or None). problem(str). measured(EngineLaunch, Fill or None): what it measures is to calibrate plans.
    """

    chosen = Signal(object)
    launch_read = Signal(object)
    fill_read = Signal(object)
    problem = Signal(str)
    measured = Signal(object, object)

    def __init__(self, jobs: Jobs, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._jobs = jobs
        self._engines: tuple[EngineSeen, ...] = ()
        self._snapshot: Snapshot | None = None
        self._live = True
        self.combo = QComboBox(self)
        self.combo.setAccessibleName("Running engine")
        self.combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.combo.setMinimumContentsLength(18)
        self.combo.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.combo.currentIndexChanged.connect(self._choose)
        self.make_plan = QPushButton("&Make it the plan", self)
        self.make_plan.setToolTip("Plan with this server's own flags, model and GPUs, and compare with it")
        self.make_plan.clicked.connect(self.read_launch)
        self.address = QLineEdit(self)
        self.address.setPlaceholderText("server address")
        self.address.setAccessibleName("Address of the server's metrics")
        self.address.setToolTip("Only this address is asked, and only when you press the button")
        self.address.returnPressed.connect(self.read)
        self.read_button = QPushButton("&Read KV cache", self)
        self.read_button.setToolTip("Ask the server at this address how full its KV cache is")
        self.read_button.clicked.connect(self.read)
        self.calibrate = QPushButton("Cali&brate", self)
        self.calibrate.setToolTip(
            "Plans like this server's take what it measures in place of estimates: its memory, and its KV cache where "
            "that was read"
        )
        self.calibrate.clicked.connect(self.read_run)
        self._fill: Fill | None = None
        self.result = QLabel(self)
        self.result.setProperty("role", "muted")
        self.result.setWordWrap(True)
        self.result.hide()
        self._arrange()
        self.hide()

    def _arrange(self) -> None:
        label = QLabel("En&gine", self)
        label.setBuddy(self.combo)
        self.address.setMinimumWidth(150)
        line = QHBoxLayout()
        line.setSpacing(8)
        line.addWidget(label)
        line.addWidget(self.combo, 3)
        line.addWidget(self.make_plan)
        line.addSpacing(6)
        line.addWidget(self.address, 1)
        line.addWidget(self.read_button)
        line.addWidget(self.calibrate)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addLayout(line)
        column.addWidget(self.result)

    def sizeHint(self) -> QSize:
        """Wide enough to read."""
        return QSize(520, super().sizeHint().height())

    # -- what runs ------------------------------------------------------------------------------------------------

    def set_snapshot(self, snapshot: Snapshot, live: bool) -> None:
        """Takes in the engines; the chosen one stays chosen as long as it runs. live False: a recording."""
        self._snapshot, self._live = snapshot, live
        self.read_button.setEnabled(live)
        self.address.setEnabled(live)
        if snapshot.engines == self._engines:
            return
        chosen = self.pid()
        self._engines = snapshot.engines
        blocked = self.combo.blockSignals(True)
        self.combo.clear()
        for engine in self._engines:
            self.combo.addItem(described(engine), engine.pid)
        pids = [e.pid for e in self._engines]
        self.combo.setCurrentIndex(pids.index(chosen) if chosen in pids else (0 if pids else -1))
        self.combo.blockSignals(blocked)
        self.setVisible(bool(self._engines))
        if self.pid() != chosen:
            self._choose()

    def pid(self) -> int | None:
        """The chosen engine's PID."""
        found = self.combo.currentData()
        return int(found) if found is not None else None

    def choose(self, process: ProcessSample | None) -> None:
        """Chooses the engine that a process is part of; any other process changes nothing."""
        index = self.combo.findData(process.root_pid) if process is not None else -1
        if index >= 0:
            self.combo.setCurrentIndex(index)

    def engine(self) -> EngineSeen | None:
        """The chosen engine."""
        return next((e for e in self._engines if e.pid == self.pid()), None)

    def _choose(self) -> None:
        engine = self.engine()
        kind = signature(engine.engine) if engine else None
        can = bool(engine and engine.command and kind and kind.planned and self._live)
        self.make_plan.setEnabled(can)
        self.calibrate.setEnabled(can)
        self._fill = None
        if engine is not None and not can:
            why = "cannot be planned yet" if kind is None or not kind.planned else "does not show its command line"
            self.make_plan.setToolTip(f"{engine.title} is recognised but {why}")
        self.address.setText(address_of(engine) if engine else "")
        self._show("")
        self.fill_read.emit(None)
        self.chosen.emit(self.pid())

    # -- jobs -----------------------------------------------------------------------------------------------------

    def read_launch(self) -> None:
        """Reads the chosen engine's start; the result is to become the plan."""
        engine, snapshot = self.engine(), self._snapshot
        if engine is None or snapshot is None:
            return
        self._jobs.submit(
            "Read a running engine", lambda control: launch_of(engine, snapshot), self._launched,
            lambda error: self.problem.emit(error_text(error)), key="launch",
        )  # fmt: skip

    def _launched(self, launch: EngineLaunch) -> None:
        self._show(" ".join(launch.warnings))
        self.launch_read.emit(launch)

    def read_run(self) -> None:
        """Reads the chosen engine's start; what it measures is to calibrate plans."""
        engine, snapshot = self.engine(), self._snapshot
        if engine is None or snapshot is None:
            return
        fill = self._fill
        self._jobs.submit(
            "Read a running engine", lambda control: launch_of(engine, snapshot),
            lambda launch: self.measured.emit(launch, fill),
            lambda error: self.problem.emit(error_text(error)), key="launch",
        )  # fmt: skip

    def read(self) -> None:
        """Asks the server at the address that stands in the field."""
        address = self.address.text().strip()
        if not address:
            self._show("Give the server's address, for example http://127.0.0.1:8000")
            return
        engine = self.engine()
        # The slots of a server are read by how it was started, where the address is its own.
        command = engine.command if engine is not None and address == address_of(engine) else ()
        self.read_button.setEnabled(False)
        self._show(f"asking {address} …")
        self._jobs.submit(
            "Read a server's metrics", lambda control: read_fill(address, command=command), self._filled,
            self._not_filled, key="fill",
        )  # fmt: skip

    def _filled(self, fill: Fill) -> None:
        self.read_button.setEnabled(self._live)
        self._fill = fill
        self._show(f"{fill.text()} · at {time.strftime('%H:%M:%S')}")
        self.fill_read.emit(fill)

    def _not_filled(self, error: Exception) -> None:
        self.read_button.setEnabled(self._live)
        self._show(error_text(error))
        self.fill_read.emit(None)

    def _show(self, text: str) -> None:
        self.result.setText(text)
        self.result.setVisible(bool(text))
        self.result.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)


def described(engine: EngineSeen) -> str:
    """An engine in one line: name, PID, model."""
    found = recognise(engine.command)
    model = model_word(found) if found and found.server else ""
    return " · ".join(part for part in (engine.title, f"pid {engine.pid}", model.rsplit("/", 1)[-1]) if part)
