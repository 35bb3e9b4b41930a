"""Models that are kept as they were read are those that reading anew gives, to the byte."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from kvplanner.catalog import models, preread
from kvplanner.files import shipped

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_what_is_kept_is_what_reading_gives() -> None:
    """When this fails, a record or a reader changed: run packaging/preread_models.py."""
    spec = importlib.util.spec_from_file_location("preread_models", ROOT / "packaging" / "preread_models.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    kept = shipped("models", "preread.jsonl").read_bytes()
    made = preread.file_of(script.lines())
    stale = [a[:80] for a, b in zip(kept.splitlines(), made.splitlines(), strict=False) if a != b]
    assert kept == made, ("run packaging/preread_models.py", stale[:3])


@pytest.mark.parametrize("name", ["openai/gpt-oss-20b", "google/gemma-3-27b-it", "nvidia/Qwen3-30B-A3B-NVFP4"])
def test_a_model_comes_back_with_all_its_classes(name: str) -> None:
    entry = models.find(name)
    kept = preread._of_record(entry.like or entry.id)[entry.id]
    assert repr(kept) == repr(models.read(entry))


def test_a_file_of_other_fields_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    other = json.loads(preread._head())
    other["classes"]["Mlp"].append("another")
    monkeypatch.setattr(preread, "_head", lambda: json.dumps(other).encode())
    preread._places.cache_clear()
    try:
        assert preread._places() == {}
    finally:
        preread._places.cache_clear()


def test_what_no_model_is_made_of_is_refused() -> None:
    model = models.load("openai/gpt-oss-20b")
    with pytest.raises(TypeError, match="part of"):
        preread.encoded([model._replace(stored={})])  # type: ignore[arg-type]  # what is refused
