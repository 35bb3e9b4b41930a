"""Every kept input still gives an answer or one of the application's own errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, seeds


@pytest.mark.parametrize(
    ("target", "path"),
    [pytest.param(name, path, id=f"{name}/{path.name}") for name in TARGETS for path in seeds(name)],
)
def test_seed(target: str, path: Path) -> None:
    TARGETS[target](path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_seeds(target: str) -> None:
    assert len(seeds(target)) >= 10
