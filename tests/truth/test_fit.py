"""The shipped constants are what the fitting script finds on the reports: nobody typed them in."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from tests.patience import LONG_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def fitted() -> dict[str, list[dict[str, object]]]:
    script = "import json, fit_constants; print(json.dumps(fit_constants.fit()))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT / "packaging",
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG_S,
    )
    found: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return found


def test_the_script_finds_what_is_shipped(fitted: dict[str, list[dict[str, object]]]) -> None:
    shipped = json.loads((files("kvplanner.resources") / "vllm_constants.json").read_bytes())["constants"]
    assert fitted.keys() == shipped.keys()
    for name, entries in fitted.items():
        assert len(entries) == len(shipped[name])
        for new, old in zip(entries, shipped[name], strict=True):
            # Reports come and models are added: a law may move inside its band before it is fitted anew.
            assert old["low"] <= new["value"] <= old["high"], (name, new, old)


def test_reports_behind_the_constants_exist(fitted: dict[str, list[dict[str, object]]]) -> None:
    known = {
        json.loads(line)["id"]
        for name in ("vllm.jsonl", "vllm-uncited.jsonl")
        for line in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    }
    for entries in fitted.values():
        for item in entries:
            rows = item["rows"]
            assert isinstance(rows, list)
            assert set(rows) <= known
