"""Servers that share a GPU: each sees what those before it hold, and the order of start decides where one fails."""

from __future__ import annotations

import json

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.cli.main import run
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Machine
from kvplanner.report import together as report
from kvplanner.solve.together import orders, taken_by, together

CHAT, EMBED = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-Embedding-0.6B"


def server(model: str, machine: Machine, share: float) -> tuple[str, PlanRequest]:
    options = {"gpu_memory_utilization": share, "max_model_len": 8192}
    return model, PlanRequest(models.load(model), machine, options=options)


def test_the_second_finds_what_the_first_leaves() -> None:
    machine = gpus.machine("H100")
    chat, embed = together([server(CHAT, machine, 0.6), server(EMBED, machine, 0.2)], machine)
    assert isinstance(chat.plan, Plan)
    assert isinstance(embed.plan, Plan)
    total = machine.devices[0].gpu.cuda_total
    assert total is not None
    assert embed.free_bytes == (total.value - taken_by(chat.plan)[0],)
    alone = engine("vllm").plan(server(EMBED, machine, 0.2)[1])
    assert embed.fits
    assert embed.plan.devices[0].segment("other") is not None
    assert embed.plan.devices[0].segment("weights") == alone.devices[0].segment("weights")


def test_each_share_is_of_the_whole_so_that_the_order_decides_who_fails() -> None:
    machine = gpus.machine("H100")
    large, small = server(CHAT, machine, 0.9), server(EMBED, machine, 0.2)
    first, second = orders([large, small], machine)
    assert [(one.name, one.stage) for one in first] == [(CHAT, None), (EMBED, "free_memory_check")]
    assert [(one.name, one.stage) for one in second] == [(EMBED, None), (CHAT, "free_memory_check")]


def test_one_that_fails_leaves_nothing_behind() -> None:
    machine = gpus.machine("RTX 4090")
    failing, small = server("Qwen/Qwen3-32B", machine, 0.9), server(EMBED, machine, 0.5)
    first, second = together([failing, small], machine)
    assert first.fits is False
    assert second.free_bytes == (None,)
    assert second.fits


def test_other_gpus_are_left_alone() -> None:
    machine = gpus.machine("2xH100")
    chat = server(CHAT, machine, 0.6)
    one_gpu = chat[0], chat[1]._replace(options={**chat[1].options, "tensor_parallel_size": 1})
    _, second = together([one_gpu, server(EMBED, machine, 0.2)], machine)
    assert second.free_bytes[0] is not None
    assert second.free_bytes[1] is None


def on(request: PlanRequest, machine: Machine, *indices: int) -> PlanRequest:
    """A request that sees some of a machine's GPUs."""
    return request._replace(machine=machine._replace(devices=tuple(machine.devices[at] for at in indices)))


def test_servers_on_different_gpus_meet_where_they_share_one() -> None:
    machine = gpus.machine("3xH100")
    wide, left, right = (
        (name, on(server(model, machine, share)[1], machine, *seen))
        for name, model, share, seen in (
            ("wide", CHAT, 0.6, (0, 1)),
            ("left", EMBED, 0.2, (1,)),
            ("right", EMBED, 0.2, (2,)),
        )
    )
    placed = together([wide, left, right], machine)
    assert [one.gpus for one in placed] == [(0, 1), (1,), (2,)]
    assert set(placed[0].taken_bytes) == {0, 1}
    assert placed[1].free_bytes[0] is not None
    assert placed[2].free_bytes == (None,)  # nobody is there
    assert set(placed[1].taken_bytes) == {1}
    with pytest.raises(BadInput, match="not this machine's"):
        together([wide], gpus.machine("H100"))


# Public reports that state two servers on one card: the servers, then where each fails in that order of start.
SMALL, GEN, EMBEDDING = "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "Qwen/Qwen3Guard-Gen-8B", "Qwen/Qwen3-Embedding-0.6B"
LARGE, MIDDLE = "Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-14B-Instruct-GPTQ-Int4"
GPTQ: dict[str, OptionValue] = {"max_model_len": 16384, "quantization": "gptq", "enforce_eager": True}
SHORT: dict[str, OptionValue] = {"max_model_len": 1024}
NO_BLOCKS, FREE = "kv_cache_sizing", "free_memory_check"
REPORTED = [
    # vllm issue 14376: V1 at first took the first server's memory for its own; 0.2 and 0.2 fail, 0.3 and 0.3 too.
    ("0.8", "L40S", [(SMALL, 0.2, SHORT), (SMALL, 0.2, SHORT)], [None, NO_BLOCKS]),
    ("0.8", "L40S", [(SMALL, 0.3, SHORT), (SMALL, 0.3, SHORT)], [None, NO_BLOCKS]),
    # The same with a release that measures from a snapshot.
    ("0.9.1", "L40S", [(SMALL, 0.2, SHORT), (SMALL, 0.2, SHORT)], [None, None]),
    ("0.9.1", "L40S", [(SMALL, 0.3, SHORT), (SMALL, 0.3, SHORT)], [None, None]),
    # vllm issue 10533 (0.6.4): the larger first, and the smaller finds no block; mended in 0.6.5.
    ("0.6.4", "A100-SXM4-80GB", [(LARGE, 0.75, GPTQ), (MIDDLE, 0.2, GPTQ)], [None, NO_BLOCKS]),
    ("0.6.6", "A100-SXM4-80GB", [(LARGE, 0.75, GPTQ), (MIDDLE, 0.2, GPTQ)], [None, None]),
    ("0.6.6", "A100-SXM4-80GB", [(MIDDLE, 0.2, GPTQ), (LARGE, 0.75, GPTQ)], [None, None]),
    # learnlog.dev, "Multi-Model vLLM Serving": both run on one L40S, in whatever order.
    (None, "L40S", [(EMBEDDING, 0.15, {"max_model_len": 8192}), (GEN, 0.6, {"max_model_len": 32768})], [None, None]),
    (None, "L40S", [(GEN, 0.6, {"max_model_len": 32768}), (EMBEDDING, 0.15, {"max_model_len": 8192})], [None, None]),
    # vllm-omni issue 276: a second stage wants 0.6 of a card that the first has filled.
    ("0.12.0", "A100-SXM4-80GB", [(CHAT, 0.95, {}), (CHAT, 0.6, {})], [None, FREE]),
]  # fmt: skip


@pytest.mark.parametrize(("version", "gpu", "servers", "stages"), REPORTED)
def test_public_reports_of_two_servers_on_one_card(
    version: str | None, gpu: str, servers: list[tuple[str, float, dict[str, OptionValue]]], stages: list[str | None]
) -> None:
    machine = gpus.machine(gpu)
    asked = [
        (model, PlanRequest(models.load(model), machine, version=version,
                            options={"gpu_memory_utilization": share, **options}))
        for model, share, options in servers
    ]  # fmt: skip
    assert [one.stage for one in together(asked, machine)] == stages


def test_the_release_that_takes_others_memory_for_its_own_says_so() -> None:
    machine = gpus.machine("L40S")
    options: dict[str, OptionValue] = {"gpu_memory_utilization": 0.4, **SHORT}
    servers = [(SMALL, PlanRequest(models.load(SMALL), machine, version="0.8", options=options))] * 2
    first, second = together(servers, machine)
    assert isinstance(first.plan, Plan)
    assert isinstance(second.plan, Plan)
    said = [any("takes it off its budget" in warning for warning in one.warnings) for one in (first.plan, second.plan)]
    assert said == [False, True]


def test_sglangs_fraction_is_of_what_is_free() -> None:
    """sglang issue 3265: 0.7 of an H100 is 0.7 of 80 GB, and 0.7 of the 40 GB that another has left."""
    machine = gpus.machine("H100")
    options: dict[str, OptionValue] = {"mem_fraction_static": 0.5, "context_length": 8192}
    server_ = ("sglang", PlanRequest(models.load("Qwen/Qwen3-8B"), machine, "sglang", options=options))
    placed = together([server_, server_], machine)
    assert all(isinstance(one.plan, Plan) for one in placed)
    budgets = [one.plan.devices[0].budget for one in placed if isinstance(one.plan, Plan)]
    assert budgets[0] is not None
    assert budgets[1] is not None
    free = placed[1].free_bytes[0]
    assert free is not None
    assert budgets[1].value == pytest.approx(0.5 * free, rel=0.03)
    assert budgets[1].value < 0.6 * budgets[0].value


def test_llamacpp_takes_what_it_needs_and_vllm_a_share_whoever_is_first() -> None:
    machine = gpus.machine("RTX 4090")
    llama = ("llama.cpp", PlanRequest(models.load("Qwen/Qwen3-8B"), machine, "llamacpp", options={"ctx_size": 8192},
                                      weight_format="GGUF Q4_K_M"))  # fmt: skip
    vllm = server(EMBED, machine, 0.5)
    first, second = orders([llama, vllm], machine)
    assert [one.fits for one in first] == [True, True]
    assert [one.fits for one in second] == [True, True]
    large = server(EMBED, machine, 0.9)
    first, second = orders([llama, large], machine)
    assert [one.stage for one in first] == [None, FREE]
    assert (second[0].name, second[0].fits) == (EMBED, True)


def test_none_and_too_many_are_refused() -> None:
    machine = gpus.machine("H100")
    for count in (0, 5):
        with pytest.raises(BadInput):
            together([server(EMBED, machine, 0.1)] * count, machine)


def test_the_command_tells_every_order(capsys: pytest.CaptureFixture[str]) -> None:
    plans = (f"{CHAT} -- --gpu-memory-utilization 0.9", f"{EMBED} -- --gpu-memory-utilization 0.2")
    assert run(["together", "--gpu", "H100", *plans]) == 1
    told = capsys.readouterr().out
    assert "1 → 2  2. fails at the free-memory check, before loading" in told
    assert "2 → 1  1. fails at the free-memory check, before loading" in told
    seen = (f"-- CUDA_VISIBLE_DEVICES=0,1 vllm serve {CHAT} -tp 2 --gpu-memory-utilization 0.5",
            f"-- CUDA_VISIBLE_DEVICES=1 vllm serve {EMBED} --gpu-memory-utilization 0.3")  # fmt: skip
    assert run(["together", "--gpu", "2xH100", *seen]) == 0
    assert "free on GPU 1" in capsys.readouterr().out
    assert run(["together", "--gpu", "H100", *plans, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "kvplanner.together/1"
    assert len(document["orders"]) == 2
    assert document["orders"][0][1]["stage"] == "free_memory_check"


def ollama(machine: Machine, *models_: str, **options: OptionValue) -> list[tuple[str, PlanRequest]]:
    """Models of one Ollama."""
    return [
        (model, PlanRequest(models.load(model), machine, "ollama", options=options, weight_format="GGUF Q4_K_M"))
        for model in models_
    ]


def test_ollama_unloads_a_model_for_one_that_by_its_estimate_finds_no_room() -> None:
    machine = gpus.machine("RTX 4090")
    large, small = "Qwen/Qwen3-32B", "Qwen/Qwen3-8B"
    first, second, third = together(ollama(machine, small, large, small), machine)
    assert [one.unloads for one in (first, second, third)] == [(), (1,), (2,)]
    assert second.free_bytes == (None,)
    assert all(one.fits for one in (first, second, third))
    first, second = together(ollama(machine, small, small, num_ctx=4096), machine)
    assert second.unloads == ()
    assert second.free_bytes[0] is not None
    first, second = together(ollama(machine, small, small, num_ctx=4096, max_loaded_models=1), machine)
    assert second.unloads == (1,)


def test_ollama_unloads_nothing_of_other_engines() -> None:
    machine = gpus.machine("RTX 4090")
    vllm = server(EMBED, machine, 0.5)
    _, second = together([vllm, *ollama(machine, "Qwen/Qwen3-32B")], machine)
    assert second.unloads == ()


def test_what_ollama_unloads_is_told() -> None:
    machine = gpus.machine("RTX 4090")
    order = together(ollama(machine, "Qwen/Qwen3-8B", "Qwen/Qwen3-32B"), machine)
    assert "   unloads 1. once it is idle" in report.lines([order])
    assert report.outcome(order) in ("all, not all at once", "all, not all at once, not surely")
    document = json.loads(json.dumps(report.to_json([order])))
    assert document["orders"][0][1]["unloads"] == [1]
