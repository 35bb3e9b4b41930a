"""A server over several machines: its GPUs are those of all nodes, and how they are shared follows from its flags."""

from __future__ import annotations

import pytest

from kvplanner.catalog import models
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.errors import BadInput
from kvplanner.model.model import Model
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
