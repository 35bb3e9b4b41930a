"""Architectures against their library classes: small configs as transformers saves them, defaults left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplanner.model.families import read_config

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("class_counts.jsonl").read_text("utf-8").splitlines()
]
# Kept as buffers by the classes, stored by the files.
BUFFERS = ("e_score_correction_bias",)


@pytest.mark.parametrize("row", ROWS, ids=[row["architecture"] for row in ROWS])
def test_elements_are_those_of_the_library_class(row: dict[str, Any]) -> None:
    _, inventory = read_config(row["config"])
    buffers = sum(g.elements * n for g, n in inventory.groups() if g.path.endswith(BUFFERS) and g.place != "mtp")
    assert inventory.parameters() - buffers == row["elements"]
