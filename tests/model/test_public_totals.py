"""Public repositories that the readers had never seen: the bytes by rule are those that their indexes state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplanner.model.families import read_config

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent / "public_totals.jsonl").read_text(encoding="utf-8").splitlines()
]
# Files with buffers that no engine loads, such as causal masks of GPT-NeoX, and so much of the whole they are.
BUFFERS = {"github:drcege/RedPajama-INCITE-7B-Base config.json and pytorch_model.bin.index.json": 0.0013}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["source"].partition(" ")[0].rpartition("/")[2])
def test_the_bytes_by_rule_are_those_of_the_index(row: dict[str, Any]) -> None:
    _, inventory = read_config(row["config"], where=row["source"])
    off = inventory.stored_bytes() / row["total"] - 1
    assert -BUFFERS.get(row["source"], 0.0001) <= off <= 0.0001
