"""What is remembered of a model is what would be worked out again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kvplanner.engine.sglang.weights as sglang_weights
import kvplanner.engine.vllm.weights as weights_room
from kvplanner.catalog import gpus, models
from kvplanner.engine.option import OptionValue
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.sglang.kv.layout import layout
from kvplanner.engine.sglang.memory.activations import token_bytes
from kvplanner.engine.sglang.settle.settle import settle
from kvplanner.engine.sglang.weights.check import check_tensors
from kvplanner.engine.sglang.weights.rank import on_rank
from kvplanner.engine.shared.identity import Key, by_identity, forget, of_last
from kvplanner.engine.vllm.gpu import gpu_of
from kvplanner.engine.vllm.memory import activations, graphs, runtime
from kvplanner.engine.vllm.settle.settle import resolve
from kvplanner.engine.vllm.startup.replica import layout_of
from kvplanner.errors import PlannerError


def test_the_same_object_is_worked_out_once_for_each_key() -> None:
    seen: list[tuple[object, int]] = []

    @by_identity(2, lambda _, size: size)
    def work(subject: object, size: int) -> tuple[object, int]:
        seen.append((subject, size))
        return subject, size

    one, other = ["a"], ["a"]  # equal, and not the same
    assert work(one, 1) == work(one, 1) == (one, 1)
    assert len(seen) == 1
    assert work(other, 1)[0] is other
    assert work(one, 2) == (one, 2)  # forgets the oldest
    assert work(one, 1) == (one, 1)
    assert len(seen) == 4


def test_what_raises_is_not_remembered() -> None:
    calls = []

    @by_identity(2, lambda _: 0)
    def work(subject: object) -> None:
        calls.append(subject)
        raise ValueError

    for _ in range(2):
        try:
            work("x")
        except ValueError:
            continue
    assert len(calls) == 2


def test_weights_depend_on_no_setting_that_their_key_leaves_out() -> None:
    """`rank.moving` leaves out scheduler, cache and graphs, and of the model part the length: only tables read it."""
    room = Path(weights_room.__path__[0])
    read: dict[str, set[str]] = {}
    for path in sorted(room.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "settings":
                read.setdefault(node.attr, set()).add(path.name)
            inner = node.value if isinstance(node, ast.Attribute) else None
            if isinstance(inner, ast.Attribute) and isinstance(node, ast.Attribute) and inner.attr == "model":
                read.setdefault(f"model.{node.attr}", set()).add(path.name)
    assert not {"scheduler", "cache", "graphs", "attention_backend", "era"} & read.keys(), read
    assert read.get("model.max_model_len", set()) <= {"rotary.py"}
    assert "model.auto_fit" not in read


def test_tensors_of_sglang_depend_on_no_setting_that_their_key_leaves_out() -> None:
    room = Path(sglang_weights.__path__[0])
    read = {
        node.attr
        for path in room.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "settings"
    }
    assert read - {"_replace"} == {"dtype", "quantization", "arch", "moe_runner", "parallel"}


def test_what_is_remembered_can_be_forgotten() -> None:
    calls = []

    @by_identity(2, lambda _: 0)
    def work(subject: object) -> int:
        calls.append(subject)
        return len(calls)

    subject = object()
    assert (work(subject), work(subject)) == (1, 1)
    forget()
    assert work(subject) == 2


MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3.2", "Qwen/Qwen3.5-27B", "google/gemma-3-27b-it")
VLLM: tuple[dict[str, OptionValue], ...] = (
    {}, {"max_model_len": 2048}, {"gpu_memory_utilization": 0.5}, {"kv_cache_dtype": "fp8"}, {"block_size": 64},
    {"kv_cache_memory_bytes": 1 << 30}, {"max_num_seqs": 7}, {"max_num_batched_tokens": 3000}, {"enforce_eager": True},
    {"enable_prefix_caching": False}, {"tensor_parallel_size": 4}, {"compile_cache": "warm"}, {"enable_lora": True},
    {"quantization": "fp8"}, {"language_model_only": True}, {"cpu_offload_gb": 2.0},
    {"disable_custom_all_reduce": True},
)  # fmt: skip
SGLANG: tuple[dict[str, OptionValue], ...] = (
    {}, {"context_length": 2048}, {"mem_fraction_static": 0.5}, {"kv_cache_dtype": "fp8_e4m3"}, {"page_size": 64},
    {"chunked_prefill_size": 512}, {"max_running_requests": 7}, {"disable_cuda_graph": True}, {"tp_size": 4},
    {"dp_size": 2, "enable_dp_attention": True}, {"disable_radix_cache": True}, {"ep_size": 8}, {"dtype": "float32"},
)  # fmt: skip


def vllm_parts(request: PlanRequest) -> object:
    try:
        settings = resolve(request)[0]
    except PlannerError as error:
        return error.what
    gpu, model = gpu_of(request.machine.devices[0].gpu), request.model
    of_model = (activations.profiled, graphs.actual, graphs.estimate)
    return (
        [part(model, settings, gpu, 0) for part in of_model], activations.widths(model, settings, 0),
        runtime.outside(settings, gpu), runtime.inside(settings, gpu, 0), layout_of(request, settings, gpu),
    )  # fmt: skip


def sglang_parts(request: PlanRequest) -> object:
    try:
        settings = settle(request).settings
        check_tensors(request.model, settings)
    except PlannerError as error:
        return error.what
    spec = request.model.spec
    return layout(spec, settings, 0), [*on_rank(request.model, settings, 0)], token_bytes(spec, settings)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_remembered_parts_are_those_worked_out_anew(name: str, engine: str) -> None:
    """Whatever option changes between plans: what a part's key leaves out changes nothing of it."""
    changes, parts, size = (VLLM, vllm_parts, "tensor_parallel_size") if engine == "vllm" else (
        SGLANG, sglang_parts, "tp_size")  # fmt: skip
    request = PlanRequest(models.load(name), gpus.machine("8xH200"), engine, options={size: 8})
    asked = [request._replace(options={**request.options, **change}) for change in changes]
    forget()
    found = [parts(one) for one in asked]
    assert len({str(part) for part in found}) > 2
    for one, before in zip(asked, found, strict=True):
        forget()
        assert parts(one) == before


def test_a_key_is_found_by_what_it_is_made_of() -> None:
    assert Key(1, ("a", 2.0)) == Key(1, ("a", 2.0))
    assert len({Key(1, 2), Key(1, 2), Key(2, 1)}) == 2
    assert Key(1, 2) != (1, 2)


def test_the_last_result_is_for_the_very_same_arguments() -> None:
    made: list[tuple[object, ...]] = []

    @of_last
    def told(*parts: object) -> int:
        made.append(parts)
        return len(made)

    one, other = [1], [1]
    assert (told(one, 2), told(one, 2), told(other, 2), told(one), told(one)) == (1, 1, 2, 3, 3)
    assert len(made) == 3
