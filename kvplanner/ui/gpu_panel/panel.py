"""The Local GPU panel: this machine's GPUs measured beside the plan."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from PySide6.QtCore import QEvent, QObject, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFileDialog, QFrame, QLabel, QScrollArea, QSplitter, QTabWidget, QVBoxLayout, QWidget

from kvplanner.app.jobs import Jobs
from kvplanner.engine.plan import Plan
from kvplanner.observe.metrics import Fill
from kvplanner.observe.snapshot import Snapshot
from kvplanner.ui.gpu_panel.bars import MeasuredBars
from kvplanner.ui.gpu_panel.engines import EngineRow
from kvplanner.ui.gpu_panel.feed import Feed
from kvplanner.ui.gpu_panel.free import FreeRow
from kvplanner.ui.gpu_panel.model import PanelModel, essence
from kvplanner.ui.gpu_panel.notice import NoticeStrip, notice_for
from kvplanner.ui.gpu_panel.plot import HistoryPlot
from kvplanner.ui.gpu_panel.process_table import ProcessTable
from kvplanner.ui.gpu_panel.replay_strip import ReplayStrip
from kvplanner.ui.gpu_panel.toolbar import Toolbar, is_old
from kvplanner.units import ByteUnit

_WIDE: Final = 860
_HEIGHT: Final = 264
_TALL: Final = 300  # pixels: a lower panel shows bars, plot and table behind tabs
_HIGH: Final = 470  # the same where they stand below each other
_NARROW: Final = 600
_CSV: Final = "Recordings (*.csv)"


class GpuPanel(QWidget):
    """The content of the dock. Nothing runs until it is shown or start() is called; stop() ends everything.

    machine_seen(Machine): this machine's GPUs with what is free, when that changes. plan_from_process(EngineLaunch):
    a running engine is to become the plan. run_measured(EngineLaunch, Attached): what it measures is to calibrate
    plans. overlay_changed(tuple of Overlay): measured use for the memory bars.
    fill_changed(float or None): how full the engine's KV cache is. free_measured(dict): bytes free now before the
    engine starts, by index of the plan's devices. height_wanted(): there is more or less to show than before.
    lost_changed(labels, since): planned GPUs that no longer answer, and since when; () once all are back.
    """

    machine_seen = Signal(object)
    run_measured = Signal(object, object)
    plan_from_process = Signal(object)
    overlay_changed = Signal(object)
    fill_changed = Signal(object)
    free_measured = Signal(object)
    height_wanted = Signal()
    lost_changed = Signal(object, str)
    engine_ended = Signal(object, object)

    def __init__(self, parent: QWidget | None = None, feed: Feed | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Local GPU")
        self.feed = feed or Feed(self)
        self.model = PanelModel()
        self._jobs = Jobs(self, threads=2)
        self._problem = ""
        self._detached = False
        self._replaying = False
        self._told: list[tuple[object, ...]] = []
        self._lost: tuple[str, ...] = ()
        self._playing: Path | None = None
        self._front_chosen = False  # whether a tab beside the bars is in front of them where they are a tab
        self.toolbar = Toolbar(self)
        self.notice = NoticeStrip(self)
        self.replay = ReplayStrip(self)
        self.engines = EngineRow(self._jobs, self)
        self.bars = MeasuredBars(self)
        self.free = FreeRow(self)
        self.plot = HistoryPlot(self._jobs, self)
        self.processes = ProcessTable(self)
        self._clock = QTimer(self)
        self._clock.setInterval(1000)
        self._clock.timeout.connect(self._age)
        self._arrange()
        self._connect()
        self._age()

    # -- building -------------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        left = QWidget(self)
        column = QVBoxLayout(left)
        column.setContentsMargins(0, 4, 6, 0)
        column.addWidget(self.engines)
        column.addWidget(self.bars)
        column.addWidget(self.free)
        column.addStretch(1)
        self.gpus = scroll = QScrollArea(self)
        scroll.setWidget(left)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setMinimumHeight(110)
        for widget in (scroll.viewport(), left):
            widget.setAutoFillBackground(False)
        self.tabs = QTabWidget(self)
        self.tabs.setDocumentMode(True)
        self.tabs.setAccessibleName("Over time and processes")
        self.tabs.addTab(self.plot, "Over time")
        self.tabs.setCornerWidget(self.plot.head)
        self.tabs.currentChanged.connect(self._show_corner)
        self.tabs.addTab(self.processes, "Processes")
        self.splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self.splitter.addWidget(scroll)
        self.splitter.addWidget(self.tabs)
        self.splitter.setStretchFactor(0, 5)
        self.splitter.setStretchFactor(1, 4)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.setHandleWidth(12)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(12, 4, 12, 6)
        outer.setSpacing(4)
        for widget in (self.toolbar, self.replay, self.notice):
            outer.addWidget(widget)
        outer.addWidget(self.splitter, 1)
        self.empty = QLabel(self)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setProperty("role", "muted")
        self.empty.setWordWrap(True)
        outer.addWidget(self.empty, 1)

    def _connect(self) -> None:
        feed, bar = self.feed, self.toolbar
        feed.snapshots.connect(self._take)
        feed.status.connect(self._age)
        feed.problem.connect(self._say_problem)
        feed.recording.connect(self._recording)
        feed.replaying.connect(self._replay_changed)
        feed.played.connect(self._played)
        self.replay.paused.connect(feed.set_paused)
        self.replay.speed.connect(feed.set_speed)
        self.replay.sought.connect(self._seek)
        self.replay.ended.connect(feed.end_replay)
        bar.watch_button.clicked.connect(self._watch)
        bar.fast_box.toggled.connect(feed.set_fast)
        bar.record_button.clicked.connect(self._record)
        bar.replay_button.clicked.connect(self._replay)
        bar.menu.aboutToShow.connect(self._fill_menu)
        self.notice.pressed.connect(self._notice_pressed)
        self.engines.chosen.connect(self._compare_with)
        self.engines.launch_read.connect(self._launched)
        self.engines.fill_read.connect(self._filled)
        self.engines.problem.connect(self._say_problem)
        self.engines.measured.connect(
            lambda launch, fill: self.run_measured.emit(launch, self.model.attached(fill))
        )  # fmt: skip
        self.bars.selected.connect(self._gpu_chosen)
        self.free.wanted.connect(self._send_free)
        self.processes.chosen.connect(self.engines.choose)

    # -- what the window calls ------------------------------------------------------------------------------------

    def set_plan(self, plan: Plan | None) -> None:
        """The plan to compare with."""
        if self.model.set_plan(plan):
            self._draw()

    def set_unit(self, unit: ByteUnit) -> None:
        """GiB or GB."""
        self.model.unit = unit
        self.plot.set_unit(unit)
        self.processes.set_unit(unit)
        self._draw()

    def start(self) -> None:
        """Watches the GPUs (while the panel can be seen)."""
        self._detached = False
        self.feed.attach()
        self.toolbar.set_watching(True)
        self._clock.start()
        self._age()

    def stop(self) -> None:
        """Ends the helper, recordings and jobs; called before the window goes."""
        self._clock.stop()
        self.feed.detach()
        self._jobs.stop()
        self.toolbar.set_watching(False)

    # -- seen or not ----------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """Opening the panel is asking for it."""
        super().showEvent(event)
        self.window().installEventFilter(self)
        if not self.feed.wanted and not self._detached:
            self.start()
        self._clock.start()
        self.feed.set_visible(not self.window().isMinimized())
        self._draw()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nothing is sampled for nobody."""
        super().hideEvent(event)
        self._clock.stop()
        self.feed.set_visible(False)
        self._tell_overlays()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """A minimised window shows nothing."""
        if event.type() == QEvent.Type.WindowStateChange and watched is self.window():
            self.feed.set_visible(self.isVisible() and not self.window().isMinimized())
        return False

    def sizeHint(self) -> QSize:
        """A dock that leaves the plan most of the window, and no taller than a sentence while it has no more to say."""
        layout = self.layout()
        if layout is None or self.splitter.isVisibleTo(self):
            return QSize(900, _HEIGHT)
        return QSize(900, layout.totalHeightForWidth(max(self.width(), _NARROW)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room, else one above the other."""
        super().resizeEvent(event)
        wide, high = self.width() >= _WIDE, self.height() >= (_TALL if self.width() >= _WIDE else _HIGH)
        wanted = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
        if self.splitter.orientation() != wanted:
            self.splitter.setOrientation(wanted)
        self._set_folded(not high)

    def _show_corner(self) -> None:
        """The plot's legend and span stand beside the tabs while the plot can be seen."""
        self.plot.head.setVisible(self.tabs.currentWidget() is self.plot)

    def _set_folded(self, on: bool) -> None:
        """In a low panel the bars are a tab like the others, so that each has the whole room."""
        if on == (self.tabs.indexOf(self.gpus) >= 0):
            return
        if on:
            front = self.tabs.currentWidget() if self._front_chosen else self.gpus
            self.tabs.insertTab(0, self.gpus, "GPUs")
            self.tabs.setCurrentWidget(front)
        else:
            self._front_chosen = self.tabs.currentWidget() is not self.gpus
            self.tabs.removeTab(0)
            self.splitter.insertWidget(0, self.gpus)
            self.gpus.show()

    # -- taking in ------------------------------------------------------------------------------------------------

    def _take(self, batch: tuple[Snapshot, ...]) -> None:
        self.model.take(batch)
        snapshot = batch[-1]
        self.engines.set_snapshot(snapshot, not self._replaying)
        self.processes.set_snapshot(snapshot)
        self._draw()
        self._age()
        if not self._replaying and (machine := self.model.changed_machine()) is not None:
            self.machine_seen.emit(machine)
            if self.free.live:
                self._send_free()

    def _draw(self) -> None:
        if not self.isVisible():
            return
        model = self.model
        model.compare()
        self.bars.set_rows(model.rows(), model.unit, model.fill)
        self.free.set_text(model.others_text(), bool(model.free_by_device()))
        self.plot.set_references(model.references(self.bars.current()))
        if model.snapshot is not None:
            self.plot.set_history(model.history, model.snapshot.monotonic, model.curves())
        self._tell_overlays()
        ended = model.take_ended()
        if ended is not None and not self._replaying:
            self.engine_ended.emit(*ended)
        lost = () if self._replaying else model.lost()
        if lost != self._lost:
            self._lost = lost
            self.lost_changed.emit(lost, time.strftime("%H:%M:%S"))

    def _tell_overlays(self) -> None:
        """Tells the memory bars what is measured: nothing while nobody looks, and what is old as such."""
        snapshot = self.model.snapshot
        found = self.model.overlays
        if snapshot is None or not self.feed.wanted or self._replaying or not self.isVisible():
            found = ()
        elif is_old(snapshot, time.monotonic() - snapshot.monotonic):
            found = tuple(o._replace(stale=True) for o in found)
        seen = [essence(o) for o in found]
        if seen != self._told:
            self._told = seen
            self.overlay_changed.emit(found)

    def _age(self, *_: object) -> None:
        snapshot = self.model.snapshot
        age = 0.0 if snapshot is None or self._replaying else time.monotonic() - snapshot.monotonic
        recorder = self.feed.recorder
        watching = self.feed.wanted or self._replaying
        self.toolbar.set_state(snapshot, watching, age, recorder.snapshots if recorder else None)
        self._tell_overlays()
        self.bars.setEnabled(snapshot is None or not is_old(snapshot, age))
        status = self.feed.sampler_status
        self._show_empty(bool(snapshot and snapshot.gpus), watching)
        notice = notice_for(status, None if self._replaying else snapshot, self._problem)
        if notice != self.notice.notice():
            self.notice.set_notice(notice)
            self.height_wanted.emit()

    def _show_empty(self, anything: bool, watching: bool) -> None:
        """One sentence instead of empty bars, plot and table."""
        if self.splitter.isHidden() == anything:
            self.splitter.setVisible(anything)
            self.empty.setVisible(not anything)
            self.height_wanted.emit()
        self.toolbar.set_anything(anything, watching)
        if anything:
            return
        if not watching:
            text = "Watch this machine's GPUs here: what is planned beside what is measured, per GPU and per process."
        elif self.model.snapshot is None:
            text = "Looking for GPUs…"
        else:
            text = "No GPU to show. The plan does not need one: choose any GPU in the setup."
        self.empty.setText(text)

    # -- what the user does ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if not self.feed.wanted:
            self.start()
            self.feed.set_visible(self.isVisible())
            return
        self._detached = True
        self.feed.detach()
        self.toolbar.set_watching(False)
        self._age()

    def _record(self) -> None:
        if self.feed.recorder is not None:
            self.feed.end_recording()
            return
        name = time.strftime("gpu-%Y%m%d-%H%M.csv")
        path, _ = QFileDialog.getSaveFileName(self, "Record to", name, _CSV)
        if path:
            self.feed.record(Path(path))
        self._recording(self.feed.recorder)

    def _recording(self, path: object) -> None:
        self.toolbar.set_recording(path is not None)
        self._age()

    def _replay(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Play a recording", "", _CSV)
        if path:
            self.feed.play(Path(path))

    def _replay_changed(self, path: object) -> None:
        self._replaying = path is not None
        self._playing = path if isinstance(path, Path) else None
        self.toolbar.set_replaying(self._replaying)
        if self._playing is not None:
            self.replay.begin(self._playing)
        else:
            self.replay.hide()
        self.free.set_live(not self._replaying)
        self.model.forget()
        self._draw()
        self._age()

    def _played(self, share: float) -> None:
        if self.model.snapshot is not None and self._playing is not None:
            self.replay.show_place(self.model.snapshot, share, self._playing.name)

    def _seek(self, share: float) -> None:
        self.model.forget()
        self.feed.seek(share)

    def _say_problem(self, text: str) -> None:
        self._problem = text
        self._age()

    def _notice_pressed(self, button: str) -> None:
        if button == "Dismiss":
            self._problem = ""
        else:
            self.feed.reconnect()
        self._age()

    def _compare_with(self, pid: object) -> None:
        self.model.engine_pid = pid if isinstance(pid, int) else None
        self._draw()

    def _launched(self, launch: object) -> None:
        self.plan_from_process.emit(launch)

    def _filled(self, fill: object) -> None:
        self.model.fill = fill.share if isinstance(fill, Fill) else None
        self.fill_changed.emit(self.model.fill)
        self._draw()

    def _gpu_chosen(self, uuid: str) -> None:
        self.plot.set_references(self.model.references(uuid))

    def _send_free(self) -> None:
        found = self.model.free_by_device()
        if found:
            self.free_measured.emit(found)

    def _fill_menu(self) -> None:
        menu = self.toolbar.menu
        menu.clear()
        menu.addAction("Reconnect to the driver", self.feed.reconnect)
        for position, title, choices in self.model.rematch_choices():
            sub = menu.addMenu(title)
            for uuid, text, current in choices:
                action = sub.addAction(text)
                action.setCheckable(True)
                action.setChecked(current)
                action.triggered.connect(lambda _=False, p=position, u=uuid: self._rematch(p, u))

    def _rematch(self, position: int, uuid: str) -> None:
        self.model.rematch(position, uuid)
        self._draw()
