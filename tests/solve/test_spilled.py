"""Plans that run slowly because Windows moves buffers to RAM: what keeps them on the GPUs, each with its figures."""

from __future__ import annotations

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.report.remedies import flags_of, title
from kvplanner.solve.others import others
from kvplanner.solve.remedies import Remedy, remedies
from tests.solve.wide import wrong

_FIXED: dict[str, OptionValue] = {"n_gpu_layers": "99", "ctx_size": 65_536, "parallel": 2}
# A model and its weights, GPUs, options, load, and which single changes surely do.
_CASES: tuple[tuple[str, str | None, str, dict[str, OptionValue], Load | None, set[str]], ...] = (
    # Where --fit moved layers it would fill the GPUs again: they stay where they are.
    ("Qwen/Qwen3-14B", "GGUF Q8_0", "RTX 4060 Ti 16GB", {"ctx_size": 32_768}, None,
     {"layers_on_host", "context", "kv_dtype", "gpus"}),
    ("Qwen/Qwen3-14B", "GGUF Q8_0", "RTX 4060 Ti 16GB", {}, None, {"layers_on_host", "gpus"}),
    ("google/gemma-3-27b-it", "GGUF Q4_K_M", "2xRTX 4060 Ti 16GB", {}, None, {"layers_on_host", "context", "kv_dtype"}),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", "GGUF Q4_K_M", "RTX 4060 Ti 16GB", {"ctx_size": 32_768}, None,
     {"layers_on_host", "experts_on_host", "context", "kv_dtype"}),
    # Where the user fixed them, and where it shortened the context alone.
    ("openai/gpt-oss-20b", None, "RTX 3080 10GB", {"n_gpu_layers": "99", "ctx_size": 16_384}, None,
     {"experts_on_host", "layers_on_host", "gpus"}),
    ("Qwen/Qwen3-14B", "GGUF Q8_0", "RTX 4090", _FIXED, Load(2, 20_000, 1000),
     {"context", "kv_dtype", "layers_on_host"}),
    ("meta-llama/Llama-3.1-8B-Instruct", "GGUF Q8_0", "RTX 4090", {}, None, {"context", "kv_dtype", "layers_on_host"}),
)  # fmt: skip


def _ways(case: tuple[str, str | None, str, dict[str, OptionValue], Load | None, set[str]]) -> list[Remedy]:
    name, weights, machine, options, load, _ = case
    request = PlanRequest(
        models.load(name), gpus.machine(machine), "llamacpp", None, {"wddm": True, **options}, load,
        weight_format=weights,
    )  # fmt: skip
    plan = engine("llamacpp").plan(request)
    assert plan.verdict.spilled is not None
    assert not [*wrong(request)]
    return [*remedies(request, plan, others)]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: f"{case[0]}-{case[2]}-{case[3]}")
def test_what_spills_is_offered_what_stops_it(
    case: tuple[str, str | None, str, dict[str, OptionValue], Load | None, set[str]],
) -> None:
    found = _ways(case)
    assert {way.names[0] for way in found if way.sure and len(way.names) == 1} >= case[-1]
    for way in found:
        assert way.plan.verdict.spilled is None, way.changes
        assert engine("llamacpp").plan(way.request) == way.plan


def test_the_context_that_is_offered_is_the_one_that_is_said_to_work() -> None:
    """29,696 tokens stay on the GPU with the 30 layers that --fit put there; alone it would move a layer more to it."""
    way = next(way for way in _ways(_CASES[0]) if way.names == ("context",))
    assert [tuple(change) for change in way.changes] == [("ctx_size", 29_696), ("n_gpu_layers", "30")]


def test_layers_beside_a_context_that_was_shortened_keep_it() -> None:
    """Without it a server that is told its layers takes the model's whole context, and has room for few of them."""
    way = next(way for way in _ways(_CASES[-1]) if way.names == ("layers_on_host",))
    changes = {change.option: change.value for change in way.changes}
    assert 100_000 < int(changes["ctx_size"] or 0) < 131_072
    assert int(changes["n_gpu_layers"] or 0) >= 28


def test_a_placement_that_is_written_out_is_named_and_not_spelled() -> None:
    """The flags to copy have all of it."""
    way = next(way for way in _ways(_CASES[3]) if way.names == ("context",))
    assert title(way) == "Context length 26,112, GPU layers 49, tensor overrides as placed"
    assert "--override-tensor" in flags_of(way)
    assert "=CPU" in flags_of(way)
