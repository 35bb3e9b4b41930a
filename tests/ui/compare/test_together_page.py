"""Servers on the same GPUs in the window: every order of start, read by keyboard, gone when nobody looks."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.catalog import models
from kvplanner.ui.compare.page import ComparePage
from kvplanner.ui.compare.together import EMPTY, TogetherPage
from kvplanner.ui.window.window import MainWindow


@pytest.fixture
def page(window: MainWindow) -> TogetherPage:
    window.view.show_compare()
    compare = window.centre.below.page("compare")
    assert isinstance(compare, ComparePage)
    compare.show_together()
    assert isinstance(compare.together, TogetherPage)
    return compare.together


def edit(window: MainWindow, name: str, share: float) -> None:
    window.document.edit("edit", model_text=name, model=models.load(models.find(name).id),
                         options={"gpu_memory_utilization": share, "max_model_len": 4096})  # fmt: skip
    window.document.flush()


def texts(page: TogetherPage) -> list[str]:
    found = []
    for row in range(page.table.rowCount()):
        for column in range(2):
            item = page.table.item(row, column)
            assert item is not None
            found.append(item.text())
    return found


@pytest.mark.slow
def test_every_order_is_told_and_the_chosen_one_shown(page: TogetherPage, window: MainWindow, qtbot: QtBot) -> None:
    assert page.words.text() == EMPTY
    edit(window, "Llama-3.1-8B-Instruct", 0.9)
    window.view.pin_plan()
    edit(window, "Qwen3-Embedding-0.6B", 0.3)
    qtbot.waitUntil(lambda: len(page.orders) == 2, timeout=20_000)
    assert [page.order.itemText(at) for at in range(2)] == ["A → Now: Now does not start", "Now → A: A does not start"]
    first = texts(page)
    assert first[0] == "1. A\nLlama-3.1-8B-Instruct"
    assert first[2] == "2. Now\nQwen3-Embedding-0.6B"
    assert "free-memory check" in first[3]
    assert "free on GPU 0 and 1" in first[3]
    assert "A: " in page.bars.accessibleDescription()
    page.order.setCurrentIndex(1)
    assert texts(page)[0] == "1. Now\nQwen3-Embedding-0.6B"
    edit(window, "Qwen3-Embedding-0.6B", 0.05)
    qtbot.waitUntil(lambda: page._job is None and "0.05" not in page.words.text() and page._of is not None
                    and page._of[0][1][1].options["gpu_memory_utilization"] == 0.05, timeout=20_000)  # type: ignore[index]  # asked for before  # fmt: skip
    assert len(page.orders) == 2


def test_other_gpus_are_refused_in_words(page: TogetherPage, window: MainWindow, qtbot: QtBot) -> None:
    from kvplanner.catalog import gpus

    window.view.pin_plan()
    window.document.edit("edit", machine_text="H100", devices=gpus.machine("H100").devices)
    window.document.flush()
    qtbot.waitUntil(lambda: "not this machine's" in page.words.text(), timeout=20_000)
    assert not page.table.isVisible()


def test_nobody_waits_for_orders_that_are_not_seen(page: TogetherPage, window: MainWindow, qtbot: QtBot) -> None:
    window.view.pin_plan()
    edit(window, "Qwen3-Embedding-0.6B", 0.3)
    window.centre.show_tab("Explain")
    assert page._job is None
    assert not page._soon.isActive()
