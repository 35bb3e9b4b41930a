"""Context lengths by release, and what flags change of them."""

from __future__ import annotations

from typing import Any

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.settle.settle import resolve
from kvplanner.errors import BadInput, NotModelled, PlannerError
from kvplanner.model.families import read_config
from kvplanner.model.model import Model

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
YARN_TEXT = '{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}'


def changed(name: str, **fields: Any) -> Model:
    """A model of the catalogue with some config fields changed, as if read from a file."""
    model = models.load(name)
    spec, inventory = read_config(models.record(name)["config"] | fields)
    return model._replace(spec=spec, inventory=inventory)


def length(model: Model, version: str, **options: Any) -> int:
    plan = engine("vllm").plan(PlanRequest(model, gpus.machine("H200"), version=version, options=options))
    assert plan.kv_cache is not None
    return plan.kv_cache.context_length


@pytest.mark.parametrize(("version", "expected"), [("0.11.0", 131_072), ("0.29.0", 131_072), ("0.30.0", 40_960)])
def test_yarn_multiplied_the_original_length_before_0_30(version: str, expected: int) -> None:
    assert length(changed("Qwen/Qwen3-4B", rope_scaling=YARN), version) == expected


@pytest.mark.parametrize("version", ["0.11.0", "0.33.0"])
def test_lengths_that_agree_are_the_same_in_all_releases(version: str) -> None:
    assert models.load("deepseek-ai/DeepSeek-V3").spec.yarn_context_length == 163_840
    assert length(models.load("openai/gpt-oss-20b"), version) == 131_072


@pytest.mark.parametrize(
    ("options", "version", "expected"),
    [
        ({"rope_scaling": YARN_TEXT}, "0.11.0", 131_072),
        ({"hf_overrides": f'{{"rope_scaling": {YARN_TEXT}}}'}, "0.20.0", 131_072),
        ({"hf_overrides": f'{{"rope_parameters": {YARN_TEXT}, "max_position_embeddings": 131072}}'}, "0.33.0", 131_072),
        ({"hf_overrides": f'{{"rope_parameters": {YARN_TEXT}}}'}, "0.33.0", 40_960),
        ({"hf_overrides": '{"max_position_embeddings": 65536}'}, "0.33.0", 65_536),
        ({"hf_overrides": '{"text_config": {"max_position_embeddings": 65536}}'}, "0.33.0", 65_536),
        ({"rope_scaling": '{"type": "linear", "factor": 2}'}, "0.11.0", 81_920),
        ({"hf_overrides": "{}"}, "0.33.0", 40_960),
        ({"rope_scaling": "null"}, "0.33.0", 40_960),
        ({"hf_overrides": '{"architectures": ["Qwen3ForCausalLM"]}'}, "0.33.0", 40_960),
    ],
)
def test_flags_that_change_the_length_alone_are_understood(
    options: dict[str, str], version: str, expected: int
) -> None:
    assert length(models.load("Qwen/Qwen3-4B"), version, **options) == expected


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"hf_overrides": '{"num_hidden_layers": 4}'}, NotModelled), ({"hf_overrides": "{"}, BadInput),
        ({"hf_overrides": "[1]"}, BadInput), ({"hf_overrides": '{"max_position_embeddings": "x"}'}, BadInput),
        ({"hf_overrides": '{"architectures": ["Other"]}'}, NotModelled),
        ({"rope_scaling": '{"rope_type": "yarn", "factor": "x"}'}, BadInput),
    ],
)  # fmt: skip
def test_other_changes_are_refused(options: dict[str, str], kind: type[PlannerError]) -> None:
    with pytest.raises(kind) as caught:
        length(models.load("Qwen/Qwen3-4B"), "0.33.0", **options)
    assert "--hf-overrides" in caught.value.where or "--rope-scaling" in caught.value.where


def test_a_length_beyond_the_limit_quotes_the_config_only_where_it_was_read() -> None:
    with pytest.raises(BadInput, match=r"max_position_embeddings=40960 in model's config.json"):
        length(models.load("Qwen/Qwen3-4B"), "0.33.0", max_model_len=50_000)


def test_a_length_beyond_that_of_a_model_of_the_same_shape_is_planned_with_a_remark() -> None:
    """Only the shape is known of it: its own file may state a longer one."""
    alike = next(e for e in models.index() if e.like == "Qwen/Qwen3-8B")
    found = resolve(PlanRequest(models.load(alike.id), gpus.machine("4xH100"), options={"max_model_len": 50_000}))
    assert found[0].model.max_model_len == 50_000
    assert any("its own config was not read" in warning for warning in found[2])


def test_a_length_of_a_million_is_the_files_own_and_chunks_change_nothing() -> None:
    """Qwen2.5-1M: dual chunk attention is said, and taken out by the flag that vLLM needs since 0.11."""
    model = models.load("Qwen/Qwen2.5-7B-Instruct-1M")
    assert any("dual chunk" in remark for remark in model.spec.remarks)
    assert length(model, "0.33.0") == 1_010_000
    assert length(model, "0.33.0", hf_overrides='{"dual_chunk_attention_config": null}') == 1_010_000
    with pytest.raises(NotModelled, match="dual_chunk"):
        length(model, "0.33.0", hf_overrides='{"dual_chunk_attention_config": {"chunk_size": 1}}')
