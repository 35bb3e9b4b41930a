"""A model as if stored in another weight format."""

from __future__ import annotations

import pytest

from kvplanner.catalog import models
from kvplanner.engine.whatif import as_format
from kvplanner.errors import NotModelled


def test_another_format_changes_the_weights_and_says_so() -> None:
    model = models.load("meta-llama/Llama-3.1-8B-Instruct")
    changed = as_format(model, "FP8")
    assert changed.weight_format == "FP8"
    assert model.stored is not None
    assert changed.stored is not None
    assert 0.5 < changed.stored.value / model.stored.value < 0.6
    assert "holds bfloat16" in changed.source_detail
    assert as_format(changed, "FP8") is changed


def test_a_model_without_tensors_has_no_other_format() -> None:
    model = models.load("meta-llama/Llama-3.1-8B-Instruct")._replace(inventory=None)
    with pytest.raises(NotModelled, match="no other format"):
        as_format(model, "FP8")
