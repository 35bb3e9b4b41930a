"""Menus and shortcuts, declared as data: every command has a place in a menu, a name, and one method of the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QToolButton, QWidget

if TYPE_CHECKING:
    from kvplanner.ui.window.window import MainWindow

Key = QKeySequence.StandardKey


class Command(NamedTuple):
    """name: of the window's method and of the action. text "" : a separator. group: exclusive choices of a setting."""

    menu: str
    name: str
    text: str
    keys: tuple[Key | str, ...] = ()
    checkable: bool = False
    group: str = ""
    tip: str = ""


SEPARATOR: Final = ""
COMMANDS: Final = (
    Command("File", "new_window", "&New Window", (Key.New,)),
    Command("File", "open_file", "&Open…", (Key.Open,), tip="A plan, a config.json, a safetensors or a GGUF file"),
    Command("File", "open_folder", "Open Model &Folder…", ("Ctrl+Shift+O",)),
    Command("File", "recent", "Open &Recent"),
    Command("File", SEPARATOR, ""),
    Command("File", "save", "&Save Plan", (Key.Save,)),
    Command("File", "save_as", "Save Plan &As…", ("Ctrl+Shift+S",)),
    Command("File", SEPARATOR, ""),
    Command("File/Export", "export_png", "&PNG Picture…", ("Ctrl+E",)),
    Command("File/Export", "export_svg", "&SVG Picture…"),
    Command("File/Export", "export_pdf", "P&DF Document…"),
    Command("File/Export", "export_csv", "&CSV Table…"),
    Command("File/Export", "export_json", "&JSON…"),
    Command("File/Export", "export_markdown", "&Markdown…"),
    Command("File", SEPARATOR, ""),
    Command("File", "close", "&Close Window", ("Ctrl+W",)),
    Command("File", "quit", "&Quit", (Key.Quit,)),
    Command("Edit", "undo", "&Undo", (Key.Undo,)),
    Command("Edit", "redo", "&Redo", (Key.Redo, "Ctrl+Y")),
    Command("Edit", SEPARATOR, ""),
    Command("Edit", "copy_text", "Copy as &Text", ("Ctrl+Shift+C",)),
    Command("Edit", "copy_markdown", "Copy as &Markdown"),
    Command("Edit", "copy_json", "Copy as &JSON"),
    Command("Edit", "copy_command", "Copy &Engine Command", ("Ctrl+Shift+E",)),
    Command("Edit", SEPARATOR, ""),
    Command("Edit", "choose_model", "Choose M&odel…", ("Ctrl+1",)),
    Command("Edit", "choose_gpus", "Choose &GPUs…", ("Ctrl+2",)),
    Command("Edit", "find_option", "&Find Option…", (Key.Find,)),
    Command("Edit", "reset_options", "Reset &All Options"),
    Command("View/Units", "unit_gib", "Gi&B (2³⁰ bytes, as engines print)", checkable=True, group="unit"),
    Command("View/Units", "unit_gb", "&GB (10⁹ bytes)", checkable=True, group="unit"),
    Command("View", "toggle_unit", "&Switch Between GiB and GB", ("Ctrl+U",)),
    Command("View/Theme", "theme_system", "&System", checkable=True, group="theme"),
    Command("View/Theme", "theme_light", "&Light", checkable=True, group="theme"),
    Command("View/Theme", "theme_dark", "&Dark", checkable=True, group="theme"),
    Command("View", SEPARATOR, ""),
    Command("View", "show_explain", "&Explain", ("Ctrl+3",)),
    Command("View", "show_startup", "St&art-up", ("Ctrl+4",)),
    Command("View", "gpu_panel", "Local G&PU", ("Ctrl+G",), checkable=True, tip="Watch this machine's GPUs"),
    Command("View", "next_panel", "&Next Panel", ("F6",)),
    Command("View", "previous_panel", "Pre&vious Panel", ("Shift+F6",)),
    Command("View", SEPARATOR, ""),
    Command("View", "full_screen", "&Full Screen", (Key.FullScreen, "F11"), checkable=True),
    Command("View", "reset_layout", "&Reset Layout"),
    Command("Tools", "inspect_model", "&Inspect Model…", ("Ctrl+I",), tip="Its layers, tensors, caches and oddities"),
    Command("Tools", SEPARATOR, ""),
    Command("Tools", "rescan_gpus", "Look for &GPUs Again", ("F5",)),
    Command("Tools", "rescan_models", "Look for &Models on This Machine"),
    Command("Tools", "add_model_folder", "Add a &Folder to the Search…", tip="Look for models there too"),
    Command("Tools", "open_data_folder", "Open the &Data Folder"),
    Command("Help", "help_memory", "&How the Memory Is Used", (Key.HelpContents,)),
    Command("Help", "help_bar", "How to Read the &Bar"),
    Command("Help", "help_shortcuts", "&Keyboard Shortcuts", ("Ctrl+?",)),
    Command("Help", SEPARATOR, ""),
    Command("Help", "licences", "&Licences"),
    Command("Help", "about", "&About kvplanner"),
)


class Actions(QObject):
    """The window's actions by name, and its menus."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.by_name: dict[str, QAction] = {}
        self.menus: dict[str, QMenu] = {}
        self._groups: dict[str, QActionGroup] = {}
        bar = window.menuBar()
        for command in COMMANDS:
            menu = self._menu(bar, command.menu)
            if command.name == SEPARATOR:
                menu.addSeparator()
            elif command.name == "recent":
                self.menus["recent"] = menu.addMenu(command.text)
            else:
                menu.addAction(self._action(window, command))

    def _menu(self, bar: QMenuBar, path: str) -> QMenu:
        if path not in self.menus:
            parent, _, title = path.rpartition("/")
            owner: QMenuBar | QMenu = self._menu(bar, parent) if parent else bar
            self.menus[path] = owner.addMenu(f"&{title}")
            self.menus[path].setToolTipsVisible(True)
        return self.menus[path]

    def _action(self, window: MainWindow, command: Command) -> QAction:
        action = QAction(command.text, window)
        action.setObjectName(command.name)
        if command.keys:
            sequences: list[QKeySequence] = []
            for key in command.keys:
                sequences += QKeySequence.keyBindings(key) if isinstance(key, Key) else [QKeySequence(key)]
            action.setShortcuts(list({sequence.toString(): sequence for sequence in sequences}.values()))
        if command.tip:
            action.setToolTip(command.tip)
        action.setCheckable(command.checkable)
        if command.group:
            group = self._groups.setdefault(command.group, QActionGroup(window))
            group.addAction(action)
        slot = getattr(window, command.name)
        action.triggered.connect(slot if command.checkable and not command.group else lambda: slot())
        self.by_name[command.name] = action
        return action

    def unit_button(self, parent: QWidget) -> QToolButton:
        """The corner of the menu bar: which unit is shown, and the way to the other one."""
        button = QToolButton(parent)
        button.setProperty("quiet", "true")
        button.setMenu(self.menus["View/Units"])
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        button.setAccessibleName("Unit of sizes")
        button.setToolTip("Unit of sizes: GiB is 2³⁰ bytes, GB is 10⁹ bytes")
        return button


def shortcut_table() -> list[tuple[str, str]]:
    """Every command that has a shortcut, with its first one."""
    rows: list[tuple[str, str]] = []
    for command in COMMANDS:
        sequences: list[str] = []
        for key in command.keys:
            found = QKeySequence.keyBindings(key) if isinstance(key, Key) else [QKeySequence(key)]
            sequences += [sequence.toString(QKeySequence.SequenceFormat.NativeText) for sequence in found]
        if sequences:
            rows.append((command.text.replace("&", "").rstrip("…"), sequences[0]))
    return rows
