"""A report calibrates the others of its thread: the error of their KV memory falls, and their bands still hold it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.truth import neighbours
from tests.truth.rows import read

HERE = Path(__file__).parent


@pytest.mark.slow
def test_a_report_improves_the_others_of_its_thread() -> None:
    rows = [row for name in ("vllm.jsonl", "vllm-uncited.jsonl") for row in read(HERE / name)]
    found = neighbours.summary(neighbours.improved(rows))
    assert found["pairs"] >= 25
    assert found["after_gib"] < 0.5 * found["before_gib"]
    assert found["after_median_gib"] <= found["before_median_gib"]
    assert found["after_covered"] >= max(0.95, found["before_covered"] - 0.02)
    assert found["after_width_gib"] < found["before_width_gib"]
