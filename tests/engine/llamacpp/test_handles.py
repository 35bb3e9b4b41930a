"""A handle's first move keeps what --fit had placed: it is written out beside what is moved."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.llamacpp.handles import joined
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Handle, Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest

MIXED = {
    "dense, one GPU": ("Llama-3.3-70B-Instruct", "RTX 3090"),
    "dense, unequal GPUs": ("Llama-3.3-70B-Instruct", "RTX 4060 Ti 16GB, RTX 3090"),
    "experts, one GPU": ("gpt-oss-120b", "RTX 3090"),
    "experts, two GPUs": ("gpt-oss-120b", "2xRTX 3090"),
    "experts, too small a GPU": ("Qwen3-235B-A22B", "8GB"),
    "first layers without experts": ("DeepSeek-V3", "8GB, 24GB"),
}
QUANTISED = "GGUF Q4_K_M"


def planned(model: str, machine: str, options: Mapping[str, OptionValue] | None = None, fmt: str = QUANTISED) -> Plan:
    found = models.load(models.find(model).id)
    weight_format = None if model.startswith("gpt-oss") else fmt
    request = PlanRequest(found, gpus.machine(machine), "llamacpp", options=options or {}, weight_format=weight_format)
    return engine("llamacpp").plan(request)


def sizes(plan: Plan) -> list[list[int]]:
    return [[s.bytes for s in d.segments if s.kind in ("weights", "kv_cache", "compute")] for d in plan.devices]


def as_it_stands(handle: Handle) -> dict[str, OptionValue]:
    """The handle set to what it shows."""
    text = ",".join(map(str, handle.parts))
    return {**dict(handle.beside), handle.option: handle.parts[0] if handle.option == "n_cpu_moe" else text}


@pytest.mark.parametrize("kind", MIXED)
def test_every_handle_moved_nowhere_leaves_the_placement_of_fit(kind: str) -> None:
    model, machine = MIXED[kind]
    fitted = planned(model, machine)
    assert fitted.fits
    handles = {handle.option: handle for handle in fitted.handles}
    assert set(handles) >= {"n_gpu_layers"}
    for name, handle in handles.items():
        again = planned(model, machine, as_it_stands(handle))
        assert {h.option: h.parts for h in again.handles}[name] == handle.parts
        assert all(not h.beside for h in again.handles), "it is all written out"
        if name != "n_cpu_moe":
            assert sizes(again) == sizes(fitted)
            continue
        # The first layers' experts stand for those of the last ones, which --fit takes: as many, on GPUs as full.
        assert again.fits
        own, other = (sum(parts[0] for parts in sizes(plan)[:-1]) for plan in (fitted, again))
        each = max(parts[0] for parts in sizes(fitted)) // 8
        assert abs(own - other) < each


def test_a_placement_that_fit_left_alone_has_nothing_beside_it() -> None:
    for options in ({}, {"n_gpu_layers": "20"}, {"override_tensor": r"exps=CPU"}, {"fit": "off"}):
        plan = planned("Qwen3-30B-A3B", "2xRTX 4090", {"ctx_size": 8192, **options})
        assert plan.handles
        assert not any(handle.beside for handle in plan.handles)


def test_what_is_moved_is_all_that_changes() -> None:
    """One layer less on the GPUs, with the experts of the others where they were; the shares stay shares."""
    fitted = planned("gpt-oss-120b", "2xRTX 3090")
    layers, shares = (next(h for h in fitted.handles if h.option == name) for name in ("n_gpu_layers", "tensor_split"))
    fewer = planned("gpt-oss-120b", "2xRTX 3090", {**dict(layers.beside), "n_gpu_layers": "36"})
    before, after = sizes(fitted), sizes(fewer)
    assert after[-1][0] - before[-1][0] > 1 << 30
    lost = sum(one[0] for one in before[:2]) - sum(one[0] for one in after[:2])
    assert abs(lost - (after[-1][0] - before[-1][0])) < 1 << 20
    assert dict(fewer.request.options)["override_tensor"] == dict(layers.beside)["override_tensor"]
    moved = planned("gpt-oss-120b", "2xRTX 3090", {**dict(shares.beside), "tensor_split": "13,24"})
    assert sizes(moved)[-1] == before[-1]
    assert sizes(moved)[0][0] < before[0][0]
    assert dict(moved.request.options)["override_tensor"] == dict(shares.beside)["override_tensor"]


def test_overrides_of_many_layers_are_one_pattern() -> None:
    one, exps = r"blk\.12\.ffn_(gate|gate_up|down).*=CPU", r"ffn_(up|down|gate_up|gate)_(ch|)exps"
    rules = [one, *(rf"blk\.{layer}\.{exps}=CPU" for layer in (13, 14, 15)), rf"blk\.20\.{exps}=CUDA1", r"^output=CPU"]
    assert joined(",".join(rules)) == ",".join(
        (one, rf"blk\.(13|14|15)\.{exps}=CPU", rf"blk\.20\.{exps}=CUDA1", r"^output=CPU")
    )
