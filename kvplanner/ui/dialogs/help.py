"""Help pages, offline: Markdown files among the resources, and the list of shortcuts made from the menus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from PySide6.QtCore import Qt, QUrl
from PySide6.QtWidgets import QDialog, QHBoxLayout, QListWidget, QListWidgetItem, QTextBrowser, QWidget

from kvplanner.engine.signature import signatures
from kvplanner.files import shipped

_FIRST: Final = {"memory": "How the memory is used", "bar": "How to read the bar"}
_LAST: Final = {"shortcuts": "Keyboard", "news": "What is new", "licences": "Licences"}
_KEYS: Final = """\
## In the pickers
Type to search, Up and Down (or Page Up and Page Down) to walk, Enter to choose, Escape to close.

A whole command line such as `vllm serve MODEL …`, pasted into the model chooser, becomes the plan.

GPUs understand a count (`2`), a name (`4090`), both (`2x4090`, `4090x2`), a mix (`2x3090 + 4090`), a board with another
memory (`2080 Ti 22GB`), a slice of one (`H100 3g.40gb`), and a size of your own (`48GB`). After a comma they take what
else is asked: `2x3090, 32K, 8 users`.

## In fields
Up and Down step the value. An empty field stands for the default, which it shows. Escape takes back what was typed.
Delete what stands in a field, or press ↺ beside it, to give it back to its default.
Numbers may be written as `32k` (32,000) or `32K` (32,768); sizes with their unit, `1.5GiB` or `3GB`.

## In the bars
Left and Right walk the segments, Home and End go to the first and the last, Up and Down walk the GPUs, Enter explains.
Where GPUs share a bar, Space opens it or closes it again, `+` opens and `-` closes.
"""


@cache
def pages() -> dict[str, str]:
    """The titles of all pages by their keys; an engine that has a page of its own is called as its page is."""
    engines = {s.engine: f"How {s.title} uses it" for s in signatures() if shipped("help", f"{s.engine}.md").exists()}
    return {**_FIRST, **engines, **_LAST}


def page_text(name: str, shortcuts: Sequence[tuple[str, str]]) -> str:
    """A page as Markdown; shortcuts: names of commands and their keys."""
    if name == "shortcuts":
        rows = "\n".join(f"| {text} | {keys} |" for text, keys in shortcuts)
        return f"# Keyboard\n\n| Command | Keys |\n|---|---|\n{rows}\n\n{_KEYS}"
    if name == "news":
        return news_of(shipped("help", "news.md").read_text(encoding="utf-8"))
    return shipped("help", f"{name}.md").read_text(encoding="utf-8")


def news_of(text: str) -> str:
    """The changelog without its notes to those who write it."""
    head, mark, rest = text.partition("\n## ")
    return f"# What is new\n\n## {rest}" if mark else head


class HelpViewer(QDialog):
    """Pages on the left, text on the right; stays open beside the window."""

    def __init__(self, parent: QWidget, shortcuts: Sequence[tuple[str, str]]) -> None:
        super().__init__(parent)
        self._shortcuts = shortcuts
        self.setWindowTitle("kvplanner help")
        self.resize(820, 600)
        self.setModal(False)
        self.pages = QListWidget(self)
        self.pages.setAccessibleName("Help pages")
        self.pages.setFixedWidth(190)
        self.pages.setSpacing(3)
        self.pages.setFrameShape(QListWidget.Shape.NoFrame)
        for name, title in pages().items():
            item = QListWidgetItem(title)
            item.setData(Qt.ItemDataRole.UserRole, name)
            self.pages.addItem(item)
        self.text = QTextBrowser(self)
        self.text.setAccessibleName("Help text")
        self.text.setOpenLinks(False)
        self.text.setFrameShape(QTextBrowser.Shape.NoFrame)
        self.text.document().setDocumentMargin(18)
        self.text.anchorClicked.connect(self._link)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(10, 10, 10, 10)
        layout.addWidget(self.pages)
        layout.addWidget(self.text, 1)
        self.pages.currentItemChanged.connect(self._show_current)

    def show_page(self, name: str) -> None:
        """Show a page by its key."""
        self.pages.setCurrentRow(list(pages()).index(name))
        self.show()
        self.raise_()
        self.text.setFocus()

    def _show_current(self, item: QListWidgetItem | None) -> None:
        if item is not None:
            self.text.setMarkdown(page_text(item.data(Qt.ItemDataRole.UserRole), self._shortcuts))

    def _link(self, url: QUrl) -> None:
        """Pages link to each other by key; nothing here leads online."""
        name = url.toString().removesuffix(".md")
        if name in pages():
            self.show_page(name)
