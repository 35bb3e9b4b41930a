"""What vLLM refuses of a draft model, by release."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.command import parse_flags
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.vllm.settle import settle as defaults
from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.model import Model
from kvplanner.model.spec import ModelSpec
from tests.engine.vllm.kv.models import dense, full, spec
from tests.engine.vllm.kv.models import machine as h100

VLLM = engine("vllm")
DRAFTED: dict[str, OptionValue] = {"speculative_method": "draft_model", "num_speculative_tokens": 3}


def refusal(
    target: ModelSpec, draft: ModelSpec | None, options: dict[str, OptionValue], version: str | None = None
) -> str:
    """What a plan with a draft model is refused with, "" when it is not."""
    machine = h100(count=int(options.get("tensor_parallel_size", 1)))
    beside = Model("draft", draft, None, "config") if draft else None
    request = PlanRequest(Model("x", target, None, "config"), machine, version=version, options=options, draft=beside)
    try:
        defaults.resolve(request)
    except (BadInput, NotModelled) as error:
        assert error.where == "--speculative-config"
        assert error.remedy
        return str(error)
    return ""


def test_the_vocabularies_must_be_of_one_size() -> None:
    target, other = dense(vocab_size=152064), dense(4, vocab_size=151936)
    assert not refusal(target, dense(4, vocab_size=152064), DRAFTED)
    said = refusal(target, other, DRAFTED)
    assert "Target and draft model should have the same vocabulary size. Target model vocab_size=152064. Draft" in said
    assert "Draft model vocab_size=151936" in said
    assert "use_heterogeneous_vocab" in said
    assert "use_heterogeneous_vocab" not in refusal(target, other, DRAFTED, "0.20")
    assert refusal(target, other, DRAFTED, "0.7.3")
    assert not refusal(target, other, {**DRAFTED, "use_heterogeneous_vocab": True})
    heads: dict[str, OptionValue] = {"speculative_method": "eagle3", "use_heterogeneous_vocab": True}
    assert "only works with method='draft_model'" in refusal(target, None, heads)


@pytest.mark.parametrize(
    ("size", "method", "version", "words"),
    [
        (1, "draft_model", None, "and 'tensor_parallel_size' must be the same. Got 1 and 4"),
        (1, "draft_model", "0.7.3", "a draft model on fewer GPUs than the model"),
        (2, "draft_model", None, "speculative_draft_tensor_parallel_size=2 cannot be other value than 1 or target"),
        (2, "eagle3", None, "speculative_draft_tensor_parallel_size=2 cannot be other value than 1 or target"),
        (4, "draft_model", None, ""), (1, "eagle3", None, ""), (1, "ngram", None, ""),
    ],
)  # fmt: skip
def test_ranks_of_the_draft(size: int, method: str, version: str | None, words: str) -> None:
    options: dict[str, OptionValue] = {
        "speculative_method": method, "num_speculative_tokens": 3, "tensor_parallel_size": 4,
        "draft_tensor_parallel_size": size,
    }  # fmt: skip
    said = refusal(dense(), dense(4), options, version)
    assert words in said
    assert bool(said) is bool(words)


def test_heads_of_the_draft_are_split_as_the_model_is() -> None:
    fourteen = spec([(full(14, 2, 64),)] * 4)
    assert not refusal(dense(), fourteen, {**DRAFTED, "tensor_parallel_size": 2})
    said = refusal(dense(), fourteen, {**DRAFTED, "tensor_parallel_size": 4})
    assert "Total number of attention heads (14) must be divisible by tensor parallel size (4)" in said


@pytest.mark.parametrize(
    ("version", "tower", "words"),
    [("0.9.2", False, ""), ("0.10.0", False, "is not supported yet"), ("0.13.0", False, "is not supported yet"),
     ("0.15.0", False, ""), ("0.20.1", True, "does not support multimodal models"), ("0.33.0", True, "")],
)  # fmt: skip
def test_releases_that_run_none(version: str, tower: bool, words: str) -> None:
    said = refusal(dense(multimodal=tower), dense(4), DRAFTED, version)
    assert words in said
    assert bool(said) is bool(words)
    assert not refusal(dense(multimodal=tower), None, {"speculative_method": "eagle3"}, version)


def test_keys_are_read_from_the_engines_flag() -> None:
    keys: dict[str, Any] = {"method": "draft_model", "draft_tensor_parallel_size": 1, "use_heterogeneous_vocab": True}
    read = parse_flags(VLLM.options("0.33"), ["--speculative-config", json.dumps(keys)])
    assert not read.warnings
    assert (read.values["draft_tensor_parallel_size"], read.values["use_heterogeneous_vocab"]) == (1, True)


def test_a_head_on_one_gpu_is_planned_on_all_and_says_so() -> None:
    options: dict[str, OptionValue] = {
        "speculative_method": "eagle3", "num_speculative_tokens": 3, "max_model_len": 8192, "tensor_parallel_size": 4,
    }  # fmt: skip
    model, machine = models.load("meta-llama/Llama-3.3-70B-Instruct"), gpus.machine("4xH100")
    plain, told = (
        VLLM.plan(PlanRequest(model, machine, options=given))
        for given in (options, {**options, "draft_tensor_parallel_size": 1})
    )
    assert told.devices == plain.devices
    assert "draft_tensor_parallel_size 1 changes nothing: eagle3 drafts on all 4 GPUs of the model" in told.warnings
