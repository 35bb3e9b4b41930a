"""For all tests: speed is measured by benchmarks, so that no slow machine fails; no test changes the next one."""

from __future__ import annotations

import errno
import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from kvplanner.catalog import preread
from kvplanner.files import FOLDER_VARIABLE, shipped
from tests.patience import wait_long

# The same examples each time: what a chance finds fails where someone looks for it, not where a change is checked.
RANDOM: Final = "KVPLANNER_TEST_RANDOM"
settings.register_profile("kvplanner", deadline=None, derandomize=not os.environ.get(RANDOM))
settings.load_profile("kvplanner")


def pytest_configure() -> None:
    """No test sees what its user keeps; and whoever works on a reader of configs sees what it reads: models that
    were kept before that are read anew.
    """
    wait_long()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it puts in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ[FOLDER_VARIABLE] = str(Path(tempfile.gettempdir(), "kvplanner-tests-keep-nothing"))
    root = Path(preread.__file__).parents[1]
    sources = [*(root / "model").rglob("*.py"), *(root / "catalog").glob("*.py"), shipped("models", "records.jsonl")]
    kept = shipped("models", "preread.jsonl").stat().st_mtime
    if max(path.stat().st_mtime for path in sources) > kept + _AT_ONCE_S:
        preread.model = lambda *_: None


def pytest_collection_finish() -> None:
    """The tests themselves, a million objects, are never garbage: no search for it looks through them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # where Python looks by itself, no test is about that: a twelfth of all their time


# Files of one checkout are written within this time.
_AT_ONCE_S = 120


@pytest.fixture(autouse=True)
def garbage_is_collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """The window's start looks for no garbage; a test that left it so would make every later one slower and larger.

    A window that several tests share, a gallery's, goes on looking for it itself.
    """
    yield
    if not gc.isenabled() and "gallery" not in request.fixturenames:
        gc.enable()
        raise AssertionError("this test left the garbage collection off")


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """A disk without room for as long as its context lasts: what was written cannot be kept."""

    def no_room(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def full() -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", no_room)
            yield

    return full


# How many cases of each test are run, evenly chosen; all of them without it.
CASES: Final = "KVPLANNER_TEST_CASES"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Properties take hundreds of examples each: they are slow wherever they stand. What a module makes once for its
    tests is made by one process alone.
    """
    if most := int(os.environ.get(CASES, "0")):
        _thin_out(config, items, most)
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.slow)
        known = getattr(item, "_fixtureinfo", None)
        shared = known is not None and any(
            found.scope == "module" for name in known.names_closure for found in known.name2fixturedefs.get(name, ())
        )
        if shared and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem + item.path.parent.name))


def _thin_out(config: pytest.Config, items: list[pytest.Item], most: int) -> None:
    """Leaves so many cases of each test, the first and the last among them."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {
        id(found[at * (len(found) - 1) // (most - 1)])
        for found in cases.values()
        for at in range(most)
    }  # fmt: skip
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]
