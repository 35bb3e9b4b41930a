"""Menus and shortcuts, declared as data: every command has a place in a menu, a name, and what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMainWindow, QMenu, QMenuBar, QToolButton, QWidget

from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvplanner.app.document import Document
    from kvplanner.ui.setup.panel import SetupPanel
    from kvplanner.ui.setup.pickers import Pickers
    from kvplanner.ui.window.commands.copying import Copying
    from kvplanner.ui.window.commands.export import Exports
    from kvplanner.ui.window.commands.help import Help
    from kvplanner.ui.window.commands.opening import Opening
    from kvplanner.ui.window.commands.saving import Saving
    from kvplanner.ui.window.commands.search import Search
    from kvplanner.ui.window.commands.view import View
    from kvplanner.ui.window.services import Services

Key = QKeySequence.StandardKey


class Commands(NamedTuple):
    """What a window's commands are of. find: opens the list of all; close: asks where edits would be lost."""

    document: Document
    services: Services
    panel: SetupPanel
    pickers: Pickers
    opening: Opening
    saving: Saving
    search: Search
    copying: Copying
    exports: Exports
    view: View
    help: Help
    find: Callable[[], object]
    close: Callable[[], object]


class Command(NamedTuple):
    """name: of the action; SEPARATOR for a line. run: what it does, None for a line or a menu filled when it opens.

    checkable: `run` takes whether it is on. group: exclusive choices of a setting.
    """

    menu: str
    name: str
    text: str
    run: Callable[[Commands], Callable[..., object]] | None
    keys: tuple[Key | str, ...] = ()
    checkable: bool = False
    group: str = ""
    tip: str = ""


SEPARATOR: Final = ""
COMMANDS: Final = (
    Command("File", "new_window", "&New Window", lambda c: c.opening.new_window, (Key.New,)),
    Command(
        "File",
        "open_file",
        "&Open…",
        lambda c: c.opening.open_file,
        (Key.Open,),
        tip="A plan, a config.json, a safetensors or a GGUF file",
    ),
    Command("File", "open_folder", "Open Model &Folder…", lambda c: c.opening.open_folder, ("Ctrl+Shift+O",)),
    Command("File", "recent", "Open &Recent", None),
    Command("File", SEPARATOR, "", None),
    Command("File", "save", "&Save Plan", lambda c: c.saving.save, (Key.Save,)),
    Command("File", "save_as", "Save Plan &As…", lambda c: c.saving.save_as, ("Ctrl+Shift+S",)),
    Command("File", SEPARATOR, "", None),
    Command(
        "File/Export",
        "export_report",
        "&Report…",
        lambda c: c.exports.report,
        ("Ctrl+Shift+R",),
        tip="A page or a document to hand on: figures, sources, the command, ways out",
    ),
    Command("File/Export", "export_png", "&PNG Picture…", lambda c: c.exports.png, ("Ctrl+E",)),
    Command("File/Export", "export_svg", "&SVG Picture…", lambda c: c.exports.svg),
    Command("File/Export", "export_pdf", "P&DF Document…", lambda c: c.exports.pdf),
    Command("File/Export", "export_csv", "&CSV Table…", lambda c: c.exports.csv),
    Command("File/Export", "export_json", "&JSON…", lambda c: c.exports.json),
    Command("File/Export", "export_markdown", "&Markdown…", lambda c: c.exports.markdown),
    Command("File", SEPARATOR, "", None),
    Command(
        "File", "print", "&Print…", lambda c: c.exports.print_plan, (Key.Print,), tip="The report of the plan, on paper"
    ),
    Command("File", SEPARATOR, "", None),
    Command("File", "close", "&Close Window", lambda c: c.close, ("Ctrl+W",)),
    Command("File", "quit", "&Quit", lambda c: c.services.windows.quit, (Key.Quit,)),
    Command("Edit", "undo", "&Undo", lambda c: c.document.undo, (Key.Undo,)),
    Command("Edit", "redo", "&Redo", lambda c: c.document.redo, (Key.Redo, "Ctrl+Y")),
    Command("Edit", SEPARATOR, "", None),
    Command("Edit", "copy_text", "Copy as &Text", lambda c: c.copying.copy_text, ("Ctrl+Shift+C",)),
    Command("Edit", "copy_markdown", "Copy as &Markdown", lambda c: c.copying.copy_markdown),
    Command("Edit", "copy_json", "Copy as &JSON", lambda c: c.copying.copy_json),
    Command("Edit", "copy_command", "Copy &Engine Command", lambda c: c.copying.copy_command, ("Ctrl+Shift+E",)),
    Command("Edit", SEPARATOR, "", None),
    Command("Edit", "paste_command", "&Paste Command", lambda c: c.opening.paste_command, ("Ctrl+Shift+V", "Ctrl+V")),
    Command("Edit", SEPARATOR, "", None),
    Command(
        "Edit",
        "pin_plan",
        "Pi&n Plan to Compare",
        lambda c: c.view.pin_plan,
        ("Ctrl+D",),
        tip="Keep this plan, and see what further edits change",
    ),
    Command("Edit", SEPARATOR, "", None),
    Command("Edit", "choose_model", "Choose M&odel…", lambda c: c.pickers.open_models, ("Ctrl+1",)),
    Command("Edit", "choose_gpus", "Choose &GPUs…", lambda c: c.pickers.open_gpus, ("Ctrl+2",)),
    Command("Edit", "find_option", "&Find Option…", lambda c: c.panel.show_search, (Key.Find,)),
    Command("Edit", "reset_options", "Reset &All Options", lambda c: c.panel.edits.reset_options),
    Command("View/Units", "unit_gib", "Gi&B (2³⁰ bytes, as engines print)", lambda c: c.view.unit_gib, group="unit"),
    Command("View/Units", "unit_gb", "&GB (10⁹ bytes)", lambda c: c.view.unit_gb, group="unit"),
    Command("View", "toggle_unit", "&Switch Between GiB and GB", lambda c: c.view.toggle_unit, ("Ctrl+U",)),
    Command("View/Numbers", "numbers_system", "&As the System", lambda c: c.view.numbers_system, group="numbers"),
    Command("View/Numbers", "numbers_comma_point", "&1,234.5", lambda c: c.view.numbers_comma_point, group="numbers"),
    Command("View/Numbers", "numbers_point_comma", "1.&234,5", lambda c: c.view.numbers_point_comma, group="numbers"),
    Command("View/Numbers", "numbers_space_comma", "1 2&34,5", lambda c: c.view.numbers_space_comma, group="numbers"),
    Command(
        "View/Numbers",
        "numbers_apostrophe_point",
        "1’23&4.5",
        lambda c: c.view.numbers_apostrophe_point,
        group="numbers",
    ),
    Command("View/Theme", "theme_system", "&System", lambda c: c.view.theme_system, group="theme"),
    Command("View/Theme", "theme_light", "&Light", lambda c: c.view.theme_light, group="theme"),
    Command("View/Theme", "theme_dark", "&Dark", lambda c: c.view.theme_dark, group="theme"),
    Command("View/Theme", "theme_contrast", "&High Contrast", lambda c: c.view.theme_contrast, group="theme"),
    Command("View", SEPARATOR, "", None),
    Command(
        "View",
        "reduce_motion",
        "Reduce &Motion",
        lambda c: c.view.reduce_motion,
        checkable=True,
        tip="Nothing moves or flashes by itself: no moving bars, no trace of the last edit",
    ),
    Command(
        "View",
        "plan_tabs",
        "Plans as Ta&bs",
        lambda c: c.view.plan_tabs,
        checkable=True,
        tip="All plans in one window; else each has its own. A tab can be dragged out, and to another window",
    ),
    Command("View", SEPARATOR, "", None),
    Command("View", "setup_panel", "Setu&p", lambda c: c.view.setup_panel, ("Ctrl+B",), checkable=True),
    Command("View", "show_explain", "&Explain", lambda c: c.view.show_explain, ("Ctrl+3",)),
    Command("View", "show_startup", "St&art-up", lambda c: c.view.show_startup, ("Ctrl+4",)),
    Command("View", "show_log", "L&og", lambda c: c.view.show_log, ("Ctrl+5",)),
    Command("View", "show_ways", "&Ways", lambda c: c.view.show_ways, ("Ctrl+6",)),
    Command("View", "show_fits", "What F&its", lambda c: c.view.show_fits, ("Ctrl+7",)),
    Command("View", "show_compare", "&Compare", lambda c: c.view.show_compare, ("Ctrl+8",)),
    Command("View", "show_launch", "Launc&h", lambda c: c.view.show_launch, ("Ctrl+9",)),
    Command(
        "View",
        "gpu_panel",
        "&Local GPU",
        lambda c: c.view.gpu_panel,
        ("Ctrl+G",),
        checkable=True,
        tip="Watch this machine's GPUs",
    ),
    Command("View", "next_panel", "Ne&xt Panel", lambda c: c.view.next_panel, ("F6",)),
    Command("View", "previous_panel", "Pre&vious Panel", lambda c: c.view.previous_panel, ("Shift+F6",)),
    Command("View", SEPARATOR, "", None),
    Command(
        "View", "full_screen", "&Full Screen", lambda c: c.view.full_screen, (Key.FullScreen, "F11"), checkable=True
    ),
    Command("View", "reset_layout", "&Reset Layout", lambda c: c.view.reset_layout),
    Command("Tools", "find_command", "Find a &Command…", lambda c: c.find, ("Ctrl+Shift+P",)),
    Command("Tools", SEPARATOR, "", None),
    Command(
        "Tools",
        "inspect_model",
        "&Inspect Model…",
        lambda c: c.help.inspect_model,
        ("Ctrl+I",),
        tip="Its layers, tensors, caches and oddities",
    ),
    Command("Tools", SEPARATOR, "", None),
    Command("Tools", "rescan_gpus", "Look for &GPUs Again", lambda c: c.services.library.probe_gpus, ("F5",)),
    Command("Tools", "rescan_models", "Look for &Models on This Machine", lambda c: c.search.again),
    Command(
        "Tools",
        "add_model_folder",
        "Add a &Folder to the Search…",
        lambda c: c.search.add_folder,
        tip="Look for models there too",
    ),
    Command(
        "Tools",
        "calibrations",
        "Cali&brations…",
        lambda c: c.opening.logs.calibrating.show_runs,
        tip="Runs whose figures replace estimates in plans like them",
    ),
    Command("Tools", "open_data_folder", "Open the &Data Folder", lambda c: c.help.open_data_folder),
    Command("Help", "help_memory", "&How the Memory Is Used", lambda c: c.help.memory, (Key.HelpContents,)),
    Command("Help", "help_bar", "How to Read the &Bar", lambda c: c.help.bar),
    Command("Help", "help_shortcuts", "&Keyboard Shortcuts", lambda c: c.help.shortcuts, ("Ctrl+?",)),
    Command("Help", SEPARATOR, "", None),
    Command("Help", "data_packs", "&Data and Packs…", lambda c: c.help.data),
    Command("Help", "tour", "Short &Tour", lambda c: c.help.tour),
    Command("Help", "news", "What Is &New", lambda c: c.help.news),
    Command("Help", SEPARATOR, "", None),
    Command("Help", "licences", "&Licences", lambda c: c.help.licences),
    Command("Help", "about", "&About kvplanner", lambda c: c.help.about),
)


class Actions(QObject):
    """The window's actions by name, and its menus."""

    def __init__(self, window: QMainWindow, commands: Commands) -> None:
        super().__init__(window)
        self.by_name: dict[str, QAction] = {}
        self.menus: dict[str, QMenu] = {}
        self._groups: dict[str, QActionGroup] = {}
        bar = window.menuBar()
        bar.setAccessibleName("Menus")
        for command in COMMANDS:
            menu = self._menu(bar, command.menu)
            if command.run is not None:
                menu.addAction(self._action(window, command, command.run(commands)))
            elif command.name == SEPARATOR:
                menu.addSeparator()
            else:
                self.menus[command.name] = menu.addMenu(command.text)

    def _menu(self, bar: QMenuBar, path: str) -> QMenu:
        if path not in self.menus:
            parent, _, title = path.rpartition("/")
            owner: QMenuBar | QMenu = self._menu(bar, parent) if parent else bar
            self.menus[path] = owner.addMenu(f"&{title}")
            self.menus[path].setToolTipsVisible(True)
        return self.menus[path]

    def _action(self, window: QMainWindow, command: Command, run: Callable[..., object]) -> QAction:
        action = QAction(command.text, window)
        action.setObjectName(command.name)
        if command.keys:
            sequences: list[QKeySequence] = []
            for key in command.keys:
                sequences += QKeySequence.keyBindings(key) if isinstance(key, Key) else [QKeySequence(key)]
            action.setShortcuts(list({sequence.toString(): sequence for sequence in sequences}.values()))
        if command.tip:
            action.setToolTip(command.tip)
        action.setCheckable(command.checkable or bool(command.group))
        if command.group:
            group = self._groups.setdefault(command.group, QActionGroup(window))
            group.addAction(action)
        action.triggered.connect(run if command.checkable else lambda: run())
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
