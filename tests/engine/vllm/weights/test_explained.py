"""Every number explains itself: formulas give their values, and the arithmetic beside an input gives the input."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from kvplanner.catalog import models as catalogue
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.memory import activations, runtime, workspace
from kvplanner.engine.vllm.settings import Settings
from kvplanner.estimate import Estimate
from kvplanner.units import MIB
from tests.engine.vllm.weights.models import H100, settings, terms

_OPERATORS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
# Shown constants have nine digits; a division rounds down.
_SHARE: Final = 1e-8
_BYTES: Final = 4
# Inputs whose size is a law's or the files', not arithmetic over other sizes.
_LAWS: Final = re.compile(
    r"context|libraries|late libraries|NCCL|all-reduce|expert exchange|attention workspace|base|each|rounding"
)


def evaluate(text: str) -> float:
    """The value of plain arithmetic with ×, ÷, −, max() and digits in threes; raises ValueError for anything else."""
    return _value(
        ast.parse(re.sub(r"(?<=\d),(?=\d)", "", text.translate(str.maketrans("×÷−", "*/-"))), mode="eval").body
    )


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.Call(func=ast.Name(id="max"), args=args):
            return max(map(_value, args))
    raise ValueError(ast.dump(node))


def recomputed(estimate: Estimate) -> float:
    """The formula over the inputs' exact values."""
    return evaluate(estimate.formula.format_map({i.name: repr(i.value) for i in estimate.inputs}))


def arithmetic(source: str) -> str:
    """What stands before the remark, without its words."""
    return re.sub(r"[a-z][a-z-]*", "", source.partition(";")[0])


MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b",
          "google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct",
          "deepseek-ai/DeepSeek-V3.2")  # fmt: skip
SETTINGS: Final[tuple[tuple[str, dict[str, object]], ...]] = (
    ("0.33.0", {}),
    ("0.33.0", {"tp": 4, "max_num_seqs": 256, "lora": {"slots": 2, "rank": 16}, "dbo": True}),
    ("0.33.0", {"tp": 4, "speculative": {"method": "eagle3", "tokens": 3}, "max_num_batched_tokens": 16384}),
    ("0.28.0", {"dp": 2, "expert_parallel": True}),
    ("0.23.0", {"pp": 2, "gpu": Gpu("NVIDIA L40S", (8, 9), 47 << 30)}),
    ("0.19.0", {"tp": 4, "pp": 2, "dtype": "float32"}),
    ("0.16.0", {"graphs": {"mode": "NONE", "sizes": (), "compiled": False}}),
    ("0.7.3", {"max_model_len": 4096}),
    ("0.33.0", {"gpu": H100._replace(name="Custom 80 GB", arch=None), "cpu_offload_bytes": 1 << 30}),
)


def placed(version: str, changes: Mapping[str, object]) -> tuple[Settings, Gpu]:
    """Settings of the changes, and their GPU."""
    gpu = changes.get("gpu", H100)
    assert isinstance(gpu, Gpu)
    return settings(version, **{name: value for name, value in changes.items() if name != "gpu"}), gpu


@pytest.mark.parametrize("name", MODELS)
def test_terms_can_be_recomputed_from_what_they_show(name: str) -> None:
    model = catalogue.load(name)
    for version, changes in SETTINGS:
        here, gpu = placed(version, changes)
        for stage in range(here.parallel.pp):
            for what, term in terms(model, here, gpu, stage).items():
                if term.formula.startswith("0: "):
                    assert term.value == 0
                    continue
                off = abs(recomputed(term) - term.value)
                assert off <= _BYTES + _SHARE * term.value, f"{what} of {name}, {version} {changes}: {term}"


@pytest.mark.parametrize("name", MODELS)
def test_inputs_can_be_recomputed_from_their_sources(name: str) -> None:
    model = catalogue.load(name)
    for version, changes in SETTINGS:
        here, gpu = placed(version, changes)
        for stage in range(here.parallel.pp):
            found = terms(model, here, gpu, stage)
            for what in ("outside", "persistent", "peak"):
                for item in found[what].inputs:
                    if item.unit != "B" or _LAWS.fullmatch(item.name.removesuffix(" and kernels")):
                        continue
                    if "all-reduce" in item.name:
                        continue
                    assert isinstance(item.value, int)
                    off = abs(evaluate(arithmetic(item.source)) - item.value)
                    assert off <= _BYTES + _SHARE * item.value, f"{what} of {name}, {version} {changes}: {item}"


def test_penalty_counters_tell_their_bits() -> None:
    """516.66 MiB: 1,024 sequences × (128,256 counts + 4,008 words of bits) × 4 bytes."""
    model = catalogue.load("meta-llama/Llama-3.1-8B-Instruct")
    item = next(i for i in workspace.persistent(model, settings(), H100, 0).inputs if i.name == "penalty counters")
    assert item.source == "1,024 sequences × (128,256 counts + 4,008 words of bits) × 4"
    assert item.value == 1024 * (128256 + 4008) * 4


@pytest.mark.parametrize("text", ["__import__('os')", "2 ** 9", "min(1, 2)", "a + 1"])
def test_the_reader_of_formulas_reads_arithmetic_alone(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        evaluate(text)


class TestTheContext:
    def source(self, **changes: Any) -> str:
        item = runtime.outside(settings(), H100._replace(**changes)).inputs[0]
        assert isinstance(item.value, int)
        assert item.name == "context"
        return f"{item.value / MIB:.2f} MiB: {item.source}"

    def test_is_told_in_sizes_that_add_up(self) -> None:
        told = self.source(total_bytes=80 << 30)
        found = re.fullmatch(r"([\d.]+) MiB: ([\d.]+) MiB \+ ([\d.]+) % of 80\.00 GiB; CUDA context; \d+ .*", told)
        assert found, told
        whole, base, share = map(float, found.groups())
        assert abs(base + share / 100 * 80 * 1024 - whole) < 0.02

    def test_says_where_it_stops_to_grow(self) -> None:
        told = self.source(name="NVIDIA B200", arch=(10, 0), total_bytes=178 << 30)
        assert " % of 96.00 GiB, beyond which it grows no further (CUDA sees 178.00 GiB); " in told

    def test_of_shared_memory(self) -> None:
        assert self.source(name="Orin (nvgpu)", arch=(8, 7), total_bytes=16 << 30).startswith(
            "2048.00 MiB: an eighth of 16.00 GiB; "
        )
        assert ": 8.00 GiB; " in self.source(name="NVIDIA GB10", arch=(12, 1), total_bytes=120 << 30)


def test_a_stage_without_a_sampler_tells_of_no_logits() -> None:
    model = catalogue.load("meta-llama/Llama-3.3-70B-Instruct")
    before, last = (activations.peak(model, settings(tp=2, pp=2, cold=False), H100, stage) for stage in range(2))
    assert before.formula == "{forward pass} + {libraries}"
    assert [i.name for i in before.inputs] == ["forward pass", "gate and up tensors", "libraries"]
    assert not any("logits" in note for note in before.notes)
    assert last.formula == "max({forward pass}, {sampler}) + {libraries}"
    assert {"sampler", "fp32 logits"} <= {i.name for i in last.inputs}


def test_one_report_is_one() -> None:
    told = runtime.inside(settings(tp=2), H100, 0).inputs[0].source
    assert re.search(r"; 1 start-up report$", told), told
