"""Weight formats that an engine lacks are refused by name on every engine, with those that it has, and lead on."""

from __future__ import annotations

from itertools import islice
from typing import Final

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine, names
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.whatif import refused
from kvplanner.errors import BadInput, PlannerError
from kvplanner.model.whatif import WHATIF_FORMATS
from kvplanner.solve.change import WEIGHT_FORMAT
from kvplanner.solve.mends import mends

# One that is stored plainly, one whose experts are in MXFP4, and one that is quantised already.
MODELS: Final = ("Qwen/Qwen3-8B", "openai/gpt-oss-20b", "Qwen/Qwen3-8B-AWQ")
_OF_FILES: Final = ("llamacpp", "ollama")
_LEFT_OUT: Final = tuple(name for name in WHATIF_FORMATS if name.startswith("GGUF"))[2:]  # two stand for all


def _request(model: str, name: str, weight_format: str) -> PlanRequest:
    machine = gpus.machine("2xRTX PRO 6000")
    return PlanRequest(models.load(model), machine, name, weight_format=weight_format)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("model", MODELS)
def test_a_format_is_planned_where_it_is_offered_and_refused_elsewhere(name: str, model: str) -> None:
    chosen, machine = engine(name), gpus.machine("2xRTX PRO 6000")
    offered = refused(models.load(model), chosen, None, machine)
    for weight_format in WHATIF_FORMATS:
        if weight_format in _LEFT_OUT:
            continue
        try:
            plan = chosen.plan(_request(model, name, weight_format))
        except PlannerError as error:
            assert weight_format in offered, (weight_format, error)
            assert error.remedy
        else:
            assert weight_format not in offered, weight_format
            assert not any("planned as if" in warning for warning in plan.warnings)


@pytest.mark.parametrize("name", _OF_FILES)
@pytest.mark.parametrize("weight_format", ["INT8", "FP8", "AWQ 4-bit", "GPTQ 4-bit", "NVFP4", "bitsandbytes 4-bit"])
def test_engines_of_gguf_files_refuse_checkpoints_and_name_their_own_formats(name: str, weight_format: str) -> None:
    request = _request(MODELS[0], name, weight_format)
    with pytest.raises(BadInput, match=f"{weight_format}.*{engine(name).title} loads GGUF files") as refusal:
        engine(name).plan(request)
    assert refusal.value.where == "--weight-format"
    assert "GGUF Q8_0, GGUF Q6_K, GGUF Q5_K_M, GGUF Q4_K_M" in refusal.value.remedy
    ways = [mend.changes for mend in islice(mends(request, refusal.value), 2)]
    assert [[change.option for change in changes] for changes in ways] == [[WEIGHT_FORMAT]] * len(ways)
    assert {changes[0].value for changes in ways} >= {None, "GGUF Q8_0"}
