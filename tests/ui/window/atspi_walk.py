"""Walks a window as a screen reader does, by AT-SPI; run by the system's Python within a session bus of its own.

Prints JSON: every accessible that shows as [role, name, label, focusable, x, y, width, height], and what Tab leads to.
A list's name is its value on Linux: what it is for is said by the label that it is related to.
Arguments: the window's title, how often to press Tab, then the command that opens the window.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import gi  # type: ignore[import-not-found, import-untyped, unused-ignore]  # the system's own, where it is

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: E402 - after its version is chosen

DEADLINE_S = 120.0
# After so long the key has led nowhere.
STAYS_S = 20.0


def applications() -> list[Any]:
    desktop = Atspi.get_desktop(0)
    return [desktop.get_child_at_index(i) for i in range(desktop.get_child_count())]


def walk(item: Any, depth: int = 0) -> Iterator[tuple[Any, Any, Any]]:
    """All that shows, in the order of the tree."""
    states = item.get_state_set()
    if depth > 1 and not states.contains(Atspi.StateType.SHOWING):
        return
    box = None
    if states.contains(Atspi.StateType.SHOWING):
        box = Atspi.Component.get_extents(item, Atspi.CoordType.WINDOW)
    yield item, box, states
    for index in range(item.get_child_count()):
        child = item.get_child_at_index(index)
        if child is not None:
            yield from walk(child, depth + 1)


def label(item: Any) -> str:
    """The name of what labels it."""
    for relation in item.get_relation_set():
        if relation.get_relation_type() == Atspi.RelationType.LABELLED_BY:
            return str(relation.get_target(0).get_name() or "")
    return ""


def rows(application: Any) -> list[list[object]]:
    found = []
    for item, box, states in walk(application):
        where = [box.x, box.y, box.width, box.height] if box is not None else [0, 0, 0, 0]
        focusable = states.contains(Atspi.StateType.FOCUSABLE)
        found.append([item.get_role_name(), item.get_name() or "", label(item), focusable, *where])
    return found


def focused(application: Any) -> list[object] | None:
    """What has the keyboard. (Qt calls the current cell, and the tab in front, focused wherever the keyboard is, and
    a text's viewport as well as the text.)
    """
    last = None
    for item, box, states in walk(application):
        if states.contains(Atspi.StateType.FOCUSED) and item.get_role_name() not in ("table cell", "page tab"):
            if last and item.get_role_name() == "filler" and not item.get_name():
                continue
            last = [item.get_role_name(), item.get_name() or "", label(item), box.x if box else 0, box.y if box else 0]
    return last


def moved(application: Any, before: list[object] | None) -> list[object] | None:
    """What has the keyboard once that is another; nothing only where a second look finds nothing either."""
    end, last = time.monotonic() + STAYS_S, before
    while time.monotonic() < end:
        time.sleep(0.03)
        now = focused(application)
        if now != before and (now is not None or last is None):
            return now
        last = now
    return last


def main() -> None:
    Atspi.set_timeout(20_000, 60_000)  # 0.8 s otherwise, which a busy machine misses
    title, tabs, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    process = subprocess.Popen(command)
    try:
        end = time.monotonic() + DEADLINE_S
        application: Any = None
        before, size = -1, -2
        while time.monotonic() < end and (application is None or size != before or size < 100):
            time.sleep(0.4)
            running = [a for a in applications() if a is not None and a.get_name() == "kvplanner"]
            application = running[0] if running else None
            before, size = size, len(rows(application)) if application is not None else -2
        window = subprocess.run(
            ["xdotool", "search", "--onlyvisible", "--name", title], capture_output=True, text=True, check=False
        ).stdout.split()[-1]
        subprocess.run(["xdotool", "windowfocus", "--sync", window], check=False)
        steps: list[list[object] | None] = []
        focus = focused(application)
        for _ in range(tabs):
            subprocess.run(["xdotool", "key", "Tab"], check=True)
            focus = moved(application, focus)
            steps.append(focus)
        sys.stdout.write(json.dumps({"rows": rows(application), "steps": steps}) + "\n")
    finally:
        process.kill()
        process.wait()


main()
