"""The script that brings reports in refuses what breaks their rules, and names the place."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "packaging" / "build_truth.py"
GOOD: dict[str, Any] = {
    "id": "a", "source": "https://example.org", "model": "m", "flags": {}, "reported": {"kv_tokens": 1},
    "outcome": "ok",
}  # fmt: skip


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_truth", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"surprise": {"tp": 1}}, "unknown fields"),
        ({"outcome": "fine"}, "unknown outcome"),
        ({"reported": {"kv_tokens": "many"}}, "not a number"),
    ],
)
def test_broken_reports_stop_the_run(script: ModuleType, change: dict[str, Any], expected: str) -> None:
    with pytest.raises((ValueError, TypeError), match=rf"reports:3.*{expected}"):
        script.check(GOOD | change, "reports:3")


def test_fields_that_only_describe_a_report_are_left_out(script: ModuleType) -> None:
    assert script.check(GOOD | {"turn": 3, "seen_by": "x"}, "reports:1") == script.check(GOOD, "reports:1")


def test_missing_fields_stop_the_run(script: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"missing fields.*outcome"):
        script.check({k: v for k, v in GOOD.items() if k != "outcome"}, "reports:1")


def test_ids_are_unique_and_keys_keep_their_order(script: ModuleType, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(dict(reversed(GOOD.items()))) + "\n", encoding="utf-8")
    assert script.copy(source, target) == 1
    assert next(iter(json.loads(target.read_text(encoding="utf-8")))) == "id"
    source.write_text(2 * (json.dumps(GOOD) + "\n"), encoding="utf-8")
    with pytest.raises(ValueError, match="twice"):
        script.copy(source, target)
