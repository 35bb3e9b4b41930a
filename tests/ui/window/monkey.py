"""A monkey that does to the windows whatever a person could, at random and the same again for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from PySide6.QtCore import QCoreApplication, QEvent, QMimeData, QPoint, Qt, QTimer, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDragMoveEvent, QDropEvent, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QDialog,
    QLineEdit,
    QMessageBox,
    QSlider,
    QTabBar,
    QWidget,
)

from kvplanner.ui.window.application import Application
from kvplanner.ui.window.tabs import TABS
from kvplanner.ui.window.window import MainWindow
from tests.cli.hostile_files import PLAN, contents
from tests.nvml_stub.build import SCENARIOS
from tests.observe.kit import Stub

# Leaves the program, the process or the session; the file dialogs have tests of their own.
LEFT_OUT: Final = {"quit", "close", "print", "plan_tabs", "full_screen", "open_data_folder", "gpu_panel", "new_window"}
TEXTS: Final = (
    "", "2", "0", "-1", "32k", "32K", "0.5", "0.92", "1e9", "nonsense", "4090", "2x4090", "qwen3 8b", "48GB", "20GiB",
    "hub:", "/nowhere", "٣", "9" * 40, "🙂", "'; --", "8 h100", "fp8", "92%", "<b>x</b><img src=/x.png>",
    "\u202e\x1b[31m", "a" * 5000, "4090 32k context", "0.0.0",
)  # fmt: skip
PASTED: Final = (
    "vllm serve Qwen/Qwen3-8B --max-model-len 8192", "vllm serve ${A-${B-", "docker run --gpus all vllm/vllm-openai "
    "--model Qwen/Qwen3-0.6B", "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2",
    "llama-server -hf unsloth/Qwen3-8B-GGUF -c 8192", "ollama run qwen3:8b", "FROM qwen3:8b\nPARAMETER num_ctx 4096\n",
    "services:\n  llm:\n    image: vllm/vllm-openai:v0.9.0\n    command: --model Qwen/Qwen3-8B\n",
    "\0\x1b]0;x\x07\u202e", "INFO 01-01 00:00:00 [a.py:1] Model loading took " + "9" * 400 + " GiB\n", "a " * 30_000,
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n" * 50, "<img src=/x.png>\n" * 5, "4096",
    "🙂" * 2000, "{" * 20_000,
)  # fmt: skip
KEYS: Final = (
    Qt.Key.Key_Tab, Qt.Key.Key_Backtab, Qt.Key.Key_Return, Qt.Key.Key_Escape, Qt.Key.Key_Up, Qt.Key.Key_Down,
    Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_PageDown, Qt.Key.Key_Home, Qt.Key.Key_End, Qt.Key.Key_Space,
    Qt.Key.Key_Delete,
)  # fmt: skip
LOGS: Final = Path(__file__).parents[2] / "diagnose" / "logs"
MOST_WINDOWS: Final = 3
W = TypeVar("W", bound=QWidget)


def make_files(folder: Path) -> list[Path]:
    """What may be dropped: logs of every engine, a plan, and files with whatever any file may hold."""
    import json

    logs = sorted(LOGS.glob("*/*.log"))
    plan = folder / "good.kvplan.json"
    plan.write_text(json.dumps(PLAN), encoding="utf-8")
    made = [plan, folder]
    endings = (".kvplan.json", ".gguf", ".safetensors", ".json", ".log", ".yaml", ".kvpack", ".py", ".bin", "")
    for number, (_, data) in enumerate(contents()):
        made.append(folder / f"wrong{number}{endings[number % len(endings)]}")
        made[-1].write_bytes(data)
    return [*logs[:: max(1, len(logs) // 40)], *made]


class Monkey:
    """Acts on the windows of one application; `log` has its last actions, in words."""

    def __init__(self, application: Application, seed: int, files: list[Path], card: Stub | None = None) -> None:
        self.application = application
        self.random = random.Random(seed)
        self.files = files
        self.card = card
        self.log: list[str] = []
        self.number = 0
        self.window: MainWindow = application.windows[0]
        self._acts: tuple[tuple[int, Callable[[], str]], ...] = (
            (60, self.key), (40, self.type_text), (30, self.press_button), (30, self.pick), (40, self.slide),
            (30, self.command), (20, self.choose_row), (20, self.click_anywhere), (20, self.undo_some),
            (10, self.resize), (10, self.show_tab), (6, self.drop), (6, self.paste), (4, self.hover), (3, self.rest),
            (1, self.another_window), (1, self.close_window), (1 if card is not None else 0, self.watch),
        )  # fmt: skip
        self._closer = QTimer()
        self._closer.setInterval(20)
        self._closer.timeout.connect(self.close_dialogs)  # a menu opened by a key waits in a loop of its own

    def start(self) -> None:
        """Close from now on what waits in a loop of its own."""
        self._closer.start()

    def stop(self) -> None:
        """End that."""
        self._closer.stop()

    def act(self) -> None:
        """One action, and what follows from it."""
        if self.window not in self.application.windows:
            self.window = self.application.windows[0]
        weights = [weight for weight, _ in self._acts]
        act = self.random.choices([a for _, a in self._acts], weights)[0]
        self.number += 1
        self.log = [*self.log[-19:], act()]
        QCoreApplication.processEvents()
        self.close_dialogs()
        if self.number % 100 == 0:
            QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)

    def reachable(self, *kinds: type[W]) -> list[W]:
        """What can be seen and used of these kinds."""
        found = [w for kind in kinds for w in self.window.findChildren(kind)]
        return [w for w in found if w.isVisible() and w.isEnabled()]

    # what a person does ----------------------------------------------------------------------------------------

    def key(self) -> str:
        target = QApplication.focusWidget() or self.window
        key = self.random.choice(KEYS)
        QTest.keyClick(target, key)
        return f"key {key.name} on {type(target).__name__}"

    def type_text(self) -> str:
        edits = self.reachable(QLineEdit)
        text = self.random.choice(TEXTS)
        if not edits:
            return "no field"
        edit = self.random.choice(edits)
        edit.setFocus()
        edit.setText(text)
        name = edit.accessibleName()
        QTest.keyClick(edit, Qt.Key.Key_Return)
        return f"type {text[:40]!r} into {name}"

    def press_button(self) -> str:
        buttons = [b for b in self.reachable(QAbstractButton) if not getattr(b, "menu", lambda: None)()]
        button = self.random.choice(buttons)
        name = button.text() or button.accessibleName()
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
        return f"press {name}"

    def pick(self) -> str:
        boxes = self.reachable(QComboBox)
        if not boxes:  # the form may be hidden
            return "no list"
        box = self.random.choice(boxes)
        index = self.random.randrange(box.count()) if box.count() else -1
        name = box.accessibleName()
        if index >= 0:
            box.setCurrentIndex(index)
            box.activated.emit(index)
        return f"pick {index} of {name}"

    def slide(self) -> str:
        sliders = self.reachable(QSlider)
        if not sliders:
            return "no slider"
        slider = self.random.choice(sliders)
        where = QPoint(self.random.randrange(slider.width()), slider.height() // 2)
        QTest.mousePress(slider, Qt.MouseButton.LeftButton, pos=where)
        for _ in range(self.random.randrange(4)):
            QTest.mouseMove(slider, QPoint(self.random.randrange(slider.width()), 3))
        QTest.mouseRelease(slider, Qt.MouseButton.LeftButton, pos=where)
        return "slide"

    def command(self) -> str:
        actions = self.window.actions_of_window.by_name
        names = [n for n, a in actions.items() if a.isEnabled() and n not in LEFT_OUT]
        name = self.random.choice(names)
        actions[name].trigger()
        return f"command {name}"

    def choose_row(self) -> str:
        pickers = self.window.pickers
        self.window.activateWindow()  # a menu that was closed by its timer leaves none active for a moment
        QCoreApplication.processEvents()
        if self.random.random() < 0.5:
            pickers.open_models(self.random.choice(("", "llama", "qwen3", "fp8", "vision", "moe")))
        else:
            pickers.open_gpus(
                self.random.choice(("", "2", "4090", "8 h100", "48GB", "mi300", "A100", "4090 32k context"))
            )
        target = QApplication.focusWidget()
        assert target is not None
        for _ in range(self.random.randrange(6)):
            QTest.keyClick(target, Qt.Key.Key_Down)
        QTest.keyClick(target, Qt.Key.Key_Return)
        return "choose a row"

    def click_anywhere(self) -> str:
        views: list[QWidget] = [*self.reachable(QAbstractItemView), *self.reachable(QTabBar)]
        view = self.random.choice([*views, self.window.centre.bars.canvas])
        ground = view.viewport() if isinstance(view, QAbstractItemView) else view
        if ground.width() > 1 and ground.height() > 1:
            where = QPoint(self.random.randrange(ground.width()), self.random.randrange(ground.height()))
            click = QTest.mouseDClick if self.random.random() < 0.1 else QTest.mouseClick
            click(ground, Qt.MouseButton.LeftButton, pos=where)
        return f"click in {type(view).__name__}"

    def hover(self) -> str:
        canvas = self.window.centre.bars.canvas
        for _ in range(4):
            x, y = self.random.randrange(max(1, canvas.width())), self.random.randrange(max(1, canvas.height()))
            QTest.mouseMove(canvas, QPoint(x, y))
        return "hover over the bars"

    def undo_some(self) -> str:
        for _ in range(self.random.randrange(1, 5)):
            (self.window.document.undo if self.random.random() < 0.7 else self.window.document.redo)()
        return "undo or redo"

    def resize(self) -> str:
        size = self.random.choice(((900, 560), (1024, 640), (1280, 800), (1600, 1000)))
        self.window.resize(*size)
        return f"resize {size}"

    def show_tab(self) -> str:
        tab = self.random.choice(TABS)
        self.window.centre.show_tab(tab.title)
        return f"show the tab {tab.title}"

    def rest(self) -> str:
        QTest.qWait(self.random.randrange(60))
        return "rest"

    def drop(self) -> str:
        """A file or a text over the window, let go there or not."""
        data = QMimeData()
        if self.random.random() < 0.7:
            path = self.random.choice(self.files)
            data.setUrls([QUrl.fromLocalFile(str(path))])
            what = path.name
        else:
            text = self.random.choice(PASTED)
            data.setText(text)
            what = repr(text[:40])
        at, copy = QPoint(300, 200), Qt.DropAction.CopyAction
        no, left = Qt.KeyboardModifier.NoModifier, Qt.MouseButton.LeftButton
        QCoreApplication.sendEvent(self.window, QDragEnterEvent(at, copy, data, left, no))
        QCoreApplication.sendEvent(self.window, QDragMoveEvent(at, copy, data, left, no))
        if self.random.random() < 0.2:
            QCoreApplication.sendEvent(self.window, QDragLeaveEvent())
            return f"drag {what} over"
        QCoreApplication.sendEvent(self.window, QDropEvent(at, copy, data, left, no))
        return f"drop {what}"

    def paste(self) -> str:
        """Where the focus is, or as a command."""
        text = self.random.choice((*PASTED, *TEXTS))
        QGuiApplication.clipboard().setText(text)
        if self.random.random() < 0.5:
            QTest.keyClick(QApplication.focusWidget() or self.window, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
        else:
            self.window.actions_of_window.by_name["paste_command"].trigger()
        return f"paste {text[:40]!r}"

    def another_window(self) -> str:
        """One more, or to another one of those that are open."""
        if len(self.application.windows) < MOST_WINDOWS and self.random.random() < 0.6:
            self.window.actions_of_window.by_name["new_window"].trigger()
        self.window = self.random.choice(self.application.windows)
        self.window.activateWindow()
        return "another window"

    def close_window(self) -> str:
        """Not the last one, and without what is in no file."""
        if len(self.application.windows) > 1:
            self.shut(self.random.choice(self.application.windows))
        return "close a window"

    def shut(self, window: MainWindow) -> None:
        """Close a window that is not the last, and let go of its edits."""
        window.close()
        for box in (b for b in window.findChildren(QMessageBox) if b.isVisible()):
            box.button(QMessageBox.StandardButton.Discard).click()
        QCoreApplication.processEvents()
        assert window not in self.application.windows
        if self.window is window:
            self.window = self.application.windows[0]

    def watch(self) -> str:
        """Open or close the panel of this machine's GPUs, or let them change."""
        assert self.card is not None
        self.card.use(self.random.choice([path.stem for path in SCENARIOS.glob("*.ini")]))
        shown = self.window.view.dock is not None and self.window.view.dock.isVisible()
        self.window.view.gpu_panel(not shown or self.random.random() < 0.3)
        QTest.qWait(30)
        return "watch GPUs" if not shown else "other GPUs"

    def close_dialogs(self) -> None:
        """What asks is answered with no."""
        popup = QApplication.activePopupWidget()
        if popup is not None:
            popup.close()
        for dialog in [w for w in QApplication.topLevelWidgets() if isinstance(w, QDialog) and w.isVisible()]:
            dialog.reject()
        if QApplication.activeWindow() is not self.window and self.window in self.application.windows:
            self.window.activateWindow()
            QCoreApplication.processEvents()
