"""Plans as tabs of one window: each is a whole plan window on a page; a tab can be dragged to another window, or out.

What is dragged is the plan's command line as text too, so that any other plan window takes it as it takes a paste.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QMimeData, QObject, QPoint, Qt
from PySide6.QtGui import QCloseEvent, QCursor, QDrag, QDragEnterEvent, QDragMoveEvent, QDropEvent, QMouseEvent
from PySide6.QtWidgets import QApplication, QTabBar, QTabWidget, QWidget

from kvplanner.gpu.names import short_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvplanner.ui.window.window import MainWindow

OWN: Final = "application/x-kvplanner-tab"
LEAVES: Final = 18  # pixels beyond the bar's edge: until there a tab is only moved along it
_SUFFIX: Final = " — kvplanner"


def plan_mime(window: MainWindow) -> QMimeData:
    """The plan of a window as something to drag."""
    from kvplanner.engine.command import format_command
    from kvplanner.engine.registry import engine
    from kvplanner.report.launch import started
    from kvplanner.source.resolve import local_path

    data, state, plan = QMimeData(), window.document.state, window.document.plan
    request = state.request()
    if request is not None:
        whole = started(plan) if plan is not None and plan.request == request else request
        data.setText(format_command(engine(request.engine), whole, local_path(state.model_text, request.model)))
    return data


class Bar(QTabBar):
    """Tabs that can be moved along the bar, and out of it."""

    def __init__(self, host: PlanTabs) -> None:
        super().__init__(host)
        self._host = host
        self._pressed: QWidget | None = None
        self.setMovable(True)
        self.setAcceptDrops(True)
        self.setAccessibleName("Plans")

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Which tab may be dragged."""
        self._pressed = self._host.widget(self.tabAt(event.position().toPoint()))
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Far enough from the bar the tab leaves it."""
        point, held = event.position().toPoint(), event.buttons() & Qt.MouseButton.LeftButton
        out = not self.rect().adjusted(-LEAVES, -LEAVES, LEAVES, LEAVES).contains(point)
        if held and out and self._pressed is not None:
            page, self._pressed = self._pressed, None
            # Else the bar would go on to move a tab that is no longer there.
            release = QMouseEvent(
                QMouseEvent.Type.MouseButtonRelease, event.position(), event.globalPosition(),
                Qt.MouseButton.LeftButton, Qt.MouseButton.NoButton, event.modifiers(),
            )  # fmt: skip
            super().mouseReleaseEvent(release)
            self._host.drag(page)
            return
        super().mouseMoveEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """A tab of another window may come here."""
        if event.mimeData().hasFormat(OWN):
            event.acceptProposedAction()

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        """Anywhere on the bar."""
        if event.mimeData().hasFormat(OWN):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """It comes where it was dropped."""
        if event.mimeData().hasFormat(OWN):
            self._host.tabs.dropped(self._host, self.tabAt(event.position().toPoint()))
            event.acceptProposedAction()


class PlanTabs(QTabWidget):
    """A window of plans. With a single one it looks like that plan's own window."""

    def __init__(self, tabs: Tabs) -> None:
        super().__init__(None)
        self.tabs = tabs
        self.setTabBar(Bar(self))
        self.setDocumentMode(True)
        self.setTabsClosable(True)
        self.setTabBarAutoHide(True)
        self.tabCloseRequested.connect(lambda at: self.pages[at].close())
        self.currentChanged.connect(self._titled)

    @property
    def pages(self) -> list[MainWindow]:
        """The plans' windows in the order of the tabs."""
        windows = {id(window): window for window in self.tabs.windows}
        return [windows[id(self.widget(at))] for at in range(self.count())]

    def add(self, window: MainWindow, at: int = -1) -> None:
        """Take a plan's window in, in front."""
        window.setParent(self, Qt.WindowType.Widget)
        at = self.insertTab(at, window, "")
        window.windowTitleChanged.connect(self._titled)
        if window.assembled:
            window.document.changed.connect(self._titled)
        else:
            window.filled.connect(lambda: window.document.changed.connect(self._titled))
        self._titled()
        self.setCurrentIndex(at)
        window.show()

    def let_go(self, window: MainWindow) -> None:
        """A plan leaves; without any the window goes."""
        at = self.indexOf(window)
        if at >= 0:
            self.removeTab(at)
        if not self.count():
            self.tabs.ended(self)

    def drag(self, page: QWidget) -> None:
        """A tab is on its way: to another bar, onto another plan, or to a window of its own."""
        window = next(window for window in self.pages if window is page)
        data = plan_mime(window)
        data.setData(OWN, b"1")
        drag = QDrag(self)
        drag.setMimeData(data)
        drag.setPixmap(page.grab().scaledToWidth(240, Qt.TransformationMode.SmoothTransformation))
        self.tabs.dragged = window
        taken = drag.exec(Qt.DropAction.CopyAction | Qt.DropAction.MoveAction)
        self.tabs.dragged = None
        if taken == Qt.DropAction.IgnoreAction and not self.frameGeometry().contains(QCursor.pos()):
            self.tabs.tear_off(window, QCursor.pos())

    def _titled(self) -> None:
        for at, page in enumerate(self.pages):
            title = page.windowTitle().replace("[*]", "*" if page.isWindowModified() else "").removesuffix(_SUFFIX)
            machine = page.document.state.machine if page.assembled else None
            whole = f"{title} · {short_name(machine.describe())}" if machine is not None else title
            self.setTabText(at, whole.replace("&", "&&"))
            self.setTabToolTip(at, whole)
        self.setWindowTitle(self.currentWidget().windowTitle() if self.count() else "")

    def closeEvent(self, event: QCloseEvent) -> None:
        """All its plans go: with the whole application where there is no other window, as one window's plan does."""
        event.ignore()
        self.tabs.close_all(self)


class Tabs(QObject):
    """The windows of tabs. quit(): ends the application, asking where edits would be lost."""

    def __init__(self, quit_all: Callable[[], object], parent: QObject) -> None:
        super().__init__(parent)
        self._quit = quit_all
        self.hosts: list[PlanTabs] = []
        self.windows: list[MainWindow] = []
        self.dragged: MainWindow | None = None

    def show(self, window: MainWindow, beside: QWidget | None = None) -> None:
        """A plan's window, not shown yet: beside another one, else in the newest window of tabs."""
        host = self._host_of(beside) or (self.hosts[-1] if self.hosts else None)
        if host is None:
            host = self._new_host(window)
        if window not in self.windows:
            self.windows.append(window)
        if host.indexOf(window) < 0:
            host.add(window)
        host.show()

    def _new_host(self, like: QWidget) -> PlanTabs:
        host = PlanTabs(self)
        host.resize(like.size())
        if like.pos() != QPoint():
            host.move(like.pos())
        self.hosts.append(host)
        return host

    def _host_of(self, widget: QWidget | None) -> PlanTabs | None:
        return next((host for host in self.hosts if widget is not None and host.isAncestorOf(widget)), None)

    def front(self, window: MainWindow) -> None:
        """Bring a plan to the front."""
        host = self._host_of(window)
        if host is not None:
            host.setCurrentWidget(window)
            host.raise_()
            host.activateWindow()

    def dropped(self, host: PlanTabs, at: int) -> None:
        """The tab on its way comes to a window."""
        window, before = self.dragged, self._host_of(self.dragged)
        if window is None or before is host or before is None:
            return
        before.let_go(window)
        host.add(window, at)

    def tear_off(self, window: MainWindow, where: QPoint) -> None:
        """A tab gets a window of its own."""
        before = self._host_of(window)
        if before is None or before.count() < 2:
            return
        before.let_go(window)
        host = self._new_host(before)
        host.move(where - QPoint(60, 10))
        host.add(window)
        host.show()

    def forget(self, window: MainWindow) -> None:
        """A plan's window has been closed."""
        host = self._host_of(window)
        if host is not None:
            host.let_go(window)
        if window in self.windows:
            self.windows.remove(window)

    def ended(self, host: PlanTabs) -> None:
        """A window without plans goes."""
        if host in self.hosts:
            self.hosts.remove(host)
        host.hide()
        host.deleteLater()

    def close_all(self, host: PlanTabs) -> None:
        """The window of tabs is closed by its own button."""
        if len(self.hosts) < 2:
            self._quit()
            return
        for window in host.pages:
            window.close()

    def apart(self) -> None:
        """Every plan gets a window of its own again."""
        for host in [*self.hosts]:
            for window in host.pages:
                size, place = host.size(), host.pos()
                host.let_go(window)
                window.setParent(None)
                window.setWindowFlags(Qt.WindowType.Window)
                window.resize(size)
                window.move(place)
                window.show()
        self.windows.clear()


def drag_plan(window: MainWindow, source: QWidget) -> None:
    """Drag a window's plan onto another one."""
    drag = QDrag(source)
    drag.setMimeData(plan_mime(window))
    drag.setPixmap(source.grab())
    drag.exec(Qt.DropAction.CopyAction)


class DragHandle(QObject):
    """Lets a plan be dragged by a widget of its window."""

    def __init__(self, window: MainWindow, handle: QWidget) -> None:
        super().__init__(handle)
        self._window = window
        self._handle = handle
        self._from: QPoint | None = None
        handle.installEventFilter(self)
        handle.setCursor(Qt.CursorShape.OpenHandCursor)
        handle.setToolTip("Drag this plan onto another window")

    def eventFilter(self, watched: QObject, event: object) -> bool:
        """A drag begins once the mouse has moved as far as the desktop says."""
        if not isinstance(event, QMouseEvent):
            return False
        if event.type() == QMouseEvent.Type.MouseButtonPress and event.button() == Qt.MouseButton.LeftButton:
            self._from = event.position().toPoint()
            return True
        if event.type() == QMouseEvent.Type.MouseMove and self._from is not None:
            moved = event.position().toPoint() - self._from
            if moved.manhattanLength() >= QApplication.startDragDistance():
                self._from = None
                drag_plan(self._window, self._handle)
        elif event.type() == QMouseEvent.Type.MouseButtonRelease:
            self._from = None
        return False
