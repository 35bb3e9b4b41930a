"""Advanced: every row says what its option does and why the default is what it is, and a search shows what it found."""

from __future__ import annotations

import re
from html import unescape

import pytest
from PySide6.QtWidgets import QApplication

from kvplanner.ui.setup.advanced import AdvancedSection
from kvplanner.ui.setup.advanced_row import OptionEntry, marked
from kvplanner.ui.setup.inputs import ComboBox
from kvplanner.ui.setup.option_field import BOX_WIDTH, WIDEST_BOX
from kvplanner.ui.window.window import MainWindow
from tests.ui.window.kit import opened_options, settled

pytestmark = pytest.mark.slow


@pytest.fixture
def advanced(window: MainWindow) -> AdvancedSection:
    """The section, opened."""
    return opened_options(window)


def plain(html: str) -> str:
    """What a label shows."""
    return unescape(re.sub("<[^>]+>", " ", html)).replace("\u200b", "")


def found(section: AdvancedSection, text: str) -> list[OptionEntry]:
    """The rows that a search leaves."""
    section.search.setText(text)
    settled(section)
    return [entry for entry in section.entries.values() if not entry.isHidden()]


def test_a_row_says_what_the_option_does_and_why_its_default(advanced: AdvancedSection) -> None:
    for name, entry in advanced.entries.items():
        about, option = entry.about.text().replace("\u200b", ""), entry.option
        assert about.startswith(option.help), name
        assert (option.env or option.spelled) in about, name
        assert re.search(r"default: (?!default)\S", about), name
        assert about.count("default") <= 2, about
    assert "default: 0.92 in this version" in advanced.entries["gpu_memory_utilization"].about.text()


def test_a_field_shows_the_default_that_its_line_names(advanced: AdvancedSection, window: MainWindow) -> None:
    field = advanced.entries["all2all_backend"].field
    box = field.inputs[0]
    assert isinstance(box, ComboBox)
    assert box.currentText() == "allgather_reducescatter (default)"
    assert BOX_WIDTH < box.width() <= WIDEST_BOX
    others = [entry.field.inputs[0] for entry in advanced.entries.values() if entry.field.option.type == "bool"]
    assert {other.width() for other in others} == {BOX_WIDTH}
    content = window.panel.widget()
    assert content is not None
    assert content.width() == window.panel.viewport().width(), "it does not push the form to the side"


@pytest.mark.parametrize("text", ["graph", "kv cache", "max_model_len", "-dp", "tokens step", "VLLM_"])
def test_what_a_search_found_can_be_seen(advanced: AdvancedSection, text: str) -> None:
    entries = found(advanced, text)
    assert entries
    assert len(entries) < len(advanced.entries)
    for entry in entries:
        shown = plain(f"{entry.field.label.text()} {entry.about.text()} {entry.option.section}")
        bold = re.findall("<b>([^<]+)</b>", entry.field.label.text() + entry.about.text())
        for word in text.lower().replace("_", "-").split():
            assert word in shown.lower().replace("_", "-"), entry.option.name
        assert bold or text.lower().split()[0] in entry.option.section.lower(), entry.option.name
    found(advanced, "")
    assert not any("<b>" in entry.about.text() for entry in advanced.entries.values())


def test_a_row_that_comes_into_sight_while_values_are_shown(
    advanced: AdvancedSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value may change a row's height, and the room that this leaves is another row's."""
    last, row = advanced.entries.popitem()
    shown: list[str] = []

    def brings(value: object, resolved: object) -> None:
        shown.append(last)
        advanced.entries[last] = row

    monkeypatch.setattr(next(iter(advanced.entries.values())), "show_value", brings)
    advanced.show_values({}, advanced._resolved)
    assert shown == [last]
    assert last in advanced.entries


def test_marked_text_is_escaped() -> None:
    assert marked("a<b & KV\nc", ["kv", "b"]) == "a&lt;<b>b</b> &amp; <b>KV</b><br>c"


def test_rows_have_no_gaps_and_the_heading_stands_with_the_others(advanced: AdvancedSection) -> None:
    QApplication.processEvents()
    for entry in found(advanced, "parallel"):
        assert entry.about.height() == entry.about.heightForWidth(entry.about.width())
    left = {head.mapTo(advanced, head.rect().topLeft()).x() for head in advanced.findChildren(type(advanced.title))
            if head.property("role") == "heading" and head.isVisible()}  # fmt: skip
    assert left == {0}
