"""Servers that share a GPU: each sees what those before it hold, and the order of start decides where one fails."""

from __future__ import annotations

import json

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.cli.main import run
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Machine
from kvplanner.solve.together import held, orders, together

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
    assert embed.free_bytes == (total.value - held(chat.plan)[0],)
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


def test_none_and_too_many_are_refused() -> None:
    machine = gpus.machine("H100")
    for count in (0, 5):
        with pytest.raises(BadInput):
            together([server(EMBED, machine, 0.1)] * count, machine)


def test_the_command_tells_every_order(capsys: pytest.CaptureFixture[str]) -> None:
    plans = (f"{CHAT} -- --gpu-memory-utilization 0.9", f"{EMBED} -- --gpu-memory-utilization 0.2")
    assert run(["together", "--gpu", "H100", *plans]) == 1
    told = capsys.readouterr().out
    assert "1 → 2  2. fails at free_memory_check" in told
    assert run(["together", "--gpu", "H100", *plans, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "kvplanner.together/1"
    assert len(document["orders"]) == 2
    assert document["orders"][0][1]["stage"] == "free_memory_check"
