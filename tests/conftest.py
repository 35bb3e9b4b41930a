"""For all tests: speed is measured by benchmarks, so that no slow machine fails; no test changes the next one."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("kvplanner", deadline=None)
settings.load_profile("kvplanner")


@pytest.fixture(autouse=True)
def garbage_is_collected() -> Iterator[None]:
    """The window's start looks for no garbage; a test that left it so would make every later one slower and larger."""
    yield
    on = gc.isenabled()
    gc.enable()
    assert on, "this test left the garbage collection off"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Properties take hundreds of examples each: they are slow wherever they stand."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.slow)
