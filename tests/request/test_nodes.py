"""A server over several machines: its GPUs are those of all nodes, and how they are shared follows from its flags."""

from __future__ import annotations

import pytest

from kvplanner.catalog import models
from kvplanner.cli.plan import words_from
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.errors import BadInput
from kvplanner.model.model import Model
from kvplanner.report.launch import snippet
from kvplanner.request.nodes import on_nodes
from kvplanner.request.words import Built, PlanWords, Sources, build


def _open(name: str) -> Model:
    return models.load(models.find(name).id)


def built(gpu: str, text: str) -> Built:
    return build(PlanWords(gpu=gpu, flags=(text,)), Sources(_open, lambda: None))


def planned(found: Built) -> Plan:
    return engine(found.request.engine).plan(found.request)


def test_one_node_is_named_and_the_others_are_like_it() -> None:
    text = "vllm serve Qwen/Qwen3-32B -tp 8 -pp 2 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1"
    one, all_ = built("8xH100", text), built("16xH100", text)
    assert [d.index for d in one.request.machine.devices] == list(range(16))
    assert planned(one).kv_cache == planned(all_).kv_cache
    assert any("2 nodes of 8 GPUs each, all like this one" in warning for warning in one.warnings)
    assert any("2 nodes of 8 GPUs each" in warning for warning in all_.warnings)
    assert [d.role.partition("/")[0] for d in planned(one).devices] == ["pp0"] * 8 + ["pp1"] * 8


def test_another_engine_spells_it_alike() -> None:
    found = built(
        "8xH100", "python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 16 --nnodes=2 --node-rank 0"
    )
    assert len(found.request.machine.devices) == 16


@pytest.mark.parametrize("count", ["0", "two", "65", ""])
def test_what_is_no_number_of_machines_is_refused(count: str) -> None:
    with pytest.raises(BadInput):
        built("8xH100", f"vllm serve Qwen/Qwen3-32B -tp 8 --nnodes={count}")


def launched(form: str, *words: str) -> str:
    """What --launch prints, by the terminal's own way."""
    given, found = words_from(["Qwen3-235B-A22B", "--gpu", "8xH100", "--nodes", "2", *words])
    request, said = on_nodes(build(found, Sources(_open, lambda: None)).request, given.nodes)
    assert "2 nodes of 8 GPUs each" in said
    plan = engine(request.engine).plan(request)
    return snippet("ray" if form == "ray" else "nodes", plan, nodes=given.nodes)


def test_a_command_for_each_machine_says_what_it_holds_and_comes_back() -> None:
    text = launched("nodes")
    first, second = text.split("\n\n")[1:]
    assert "# Node 0: 8 GPUs (pp0/tp0 to pp0/tp7)" in first
    assert "KV cache" in first
    assert "--node-rank 0" in first
    assert "--headless" not in first
    assert "--node-rank 1" in second
    assert second.rstrip().endswith("--headless")
    found = built("8xH100", text)
    assert len(found.request.machine.devices) == 16
    assert found.nodes == 2
    assert (found.request.options["tensor_parallel_size"], found.request.options["pipeline_parallel_size"]) == (8, 2)


def test_ray_is_started_on_every_machine_and_the_server_on_one() -> None:
    text = launched("ray")
    assert text.index("ray start --head") < text.index("ray start --address=$HEAD") < text.index("vllm serve")
    assert text.count("vllm serve") == 1
    assert text.rstrip().endswith("--distributed-executor-backend ray")
    assert built("16xH100", text).request.options["pipeline_parallel_size"] == 2


def test_whole_replicas_are_spread_as_such() -> None:
    text = launched("nodes", "--", "-dp", "16", "--enable-expert-parallel")
    assert "--data-parallel-start-rank 8" in text
    assert "--nnodes" not in text
    found = built("8xH100", text)
    assert found.request.options["data_parallel_size"] == 16
    assert len(found.request.machine.devices) == 16


def test_one_machine_needs_no_such_command() -> None:
    plan = planned(built("8xH100", "vllm serve Qwen/Qwen3-32B -tp 8"))
    with pytest.raises(BadInput, match="one machine"):
        snippet("nodes", plan)
    llama = engine("llamacpp").plan(plan.request._replace(engine="llamacpp", options={}))
    with pytest.raises(BadInput):
        snippet("ray", llama, nodes=2)
