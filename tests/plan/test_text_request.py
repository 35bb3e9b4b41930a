"""From typed words to a request: every form that the contract names, and a clear refusal of the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.catalog import models
from kvplanner.engine.base import Load, Model
from kvplanner.errors import BadInput, PlannerError, UnknownName
from kvplanner.gpu.spec import Machine
from kvplanner.plan import planfile
from kvplanner.plan.planfile import PlanFile
from kvplanner.plan.text_request import (
    START_GPU,
    PlanWords,
    Sources,
    build,
    format_name,
    machine_of,
    parse_load,
    parse_measured,
    take_apart,
    with_free,
)
from kvplanner.units import GIB
from tests import sample_plans

VLLM = ("vllm", "serve")


def _open(text: str) -> Model:
    return replace(sample_plans.llama_8b(), id=text)


def _no_gpu() -> Machine | None:
    return None


HERE = Sources(_open, _no_gpu)


def test_words_become_a_request_with_only_what_was_said() -> None:
    words = PlanWords("m", "2xH100", version="0.33", load="32@1500+500", measured=("activations=3GB,runtime=0",))
    built = build(words, HERE)
    request = built.request
    assert (request.model.id, request.engine, request.version) == ("m", "vllm", "0.33")
    assert [d.gpu.name for d in request.machine.devices] == ["NVIDIA H100 80GB HBM3"] * 2
    assert request.load == Load(32, 1500, 500)
    assert dict(request.measured) == {"activations": 3_000_000_000, "runtime": 0}
    assert dict(request.options) == {}
    assert request.weight_format is None
    assert built.warnings == ()


@pytest.mark.parametrize(
    "command",
    [
        ("vllm", "serve", "org/m", "-tp", "2"),
        ("/opt/venv/bin/vllm", "serve", "--tensor-parallel-size=2", "org/m"),
        ("vllm serve org/m -tp 2",),
        ("  CUDA_VISIBLE_DEVICES=0,1 vllm serve 'org/m' \\\n  --tensor-parallel-size 2  # two",),
        ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/m", "-tp", "2"),
        ("docker", "run", "--gpus", "all", "-e", "HF_TOKEN=x", "vllm/vllm-openai:v0.33.0", "--model=org/m", "-tp", "2"),
        ("nohup", "vllm", "serve", "--model", "org/m", "-tp", "2"),
    ],
)
def test_a_whole_command_line_names_model_and_flags(command: tuple[str, ...]) -> None:
    built = build(PlanWords(gpu="2xH100", flags=command), HERE)
    assert built.model == built.request.model.id == "org/m"
    assert dict(built.request.options) == {"tensor_parallel_size": 2}


def test_flags_alone_leave_the_model_to_its_own_word() -> None:
    built = build(PlanWords("m", "H100", flags=("--max-model-len", "32k")), HERE)
    assert built.model == "m"
    assert dict(built.request.options) == {"max_model_len": 32_000}


def test_one_model_may_be_named_twice_but_not_two() -> None:
    assert build(PlanWords("m", "H100", flags=("vllm", "serve", "m")), HERE).model == "m"
    with pytest.raises(BadInput, match="'n' stands where 'm'"):
        build(PlanWords("m", "H100", flags=("vllm", "serve", "n")), HERE)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (PlanWords(gpu="H100"), "no model is named"),
        (PlanWords("m", "H1OO"), "H1OO"),
        (PlanWords("m", "0xH100"), "0 GPUs"),
        (PlanWords("m", "local"), "no NVIDIA GPU can be seen"),
        (PlanWords("m", "H100", engine="sglang"), "no engine is called 'sglang'"),
        (PlanWords("m", "H100", flags=("--max-model-lenn", "1")), "--max-model-lenn"),
        (PlanWords("m", "H100", flags=("--max-model-len",)), "--max-model-len"),
        (PlanWords("m", "H100", flags=("--max-model-len", "many")), "many"),
        (PlanWords("m", "H100", flags=("stray",)), "'stray' stands where 'm'"),
        (PlanWords("m", "H100", flags=("vllm serve 'm",)), "quotes"),
        (PlanWords("m", "H100", load="32"), "--load"),
        (PlanWords("m", "H100", load="0@1+1"), "--load"),
        (PlanWords("m", "H100", load="1@x+1"), "--load"),
        (PlanWords("m", "H100", free=("1=3GB",)), "no GPU '1'"),
        (PlanWords("m", "H100", free=("3 apples",)), "--free"),
        (PlanWords("m", "H100", free=("100GiB",)), "more than NVIDIA H100"),
        (PlanWords("m", "H100", measured=("weights",)), "KIND=SIZE"),
        (PlanWords("m", "H100", measured=("headroom=1GB",)), "KIND=SIZE"),
        (PlanWords("m", "H100", measured=("weights=-1GB",)), "--measured"),
    ],
)
def test_what_cannot_be_right_is_named(words: PlanWords, named: str) -> None:
    with pytest.raises(PlannerError) as caught:
        build(words, HERE)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_stray_words_are_refused() -> None:
    with pytest.raises(BadInput, match="'b' belongs to no flag"):
        build(PlanWords(gpu="H100", flags=("vllm", "serve", "a", "b")), HERE)


def test_without_a_gpu_the_start_gpu_or_this_machines_is_planned_and_said() -> None:
    assert (built := build(PlanWords("m"), HERE)).machine == START_GPU
    assert START_GPU in built.warnings[0]
    here = Machine(sample_plans.machine(sample_plans.RTX4090).devices, "this machine")
    machine, words, said = machine_of("", lambda: here)
    assert (machine, words) == (here, "local")
    assert "this machine's NVIDIA GeForce RTX 4090" in said[0]
    assert machine_of("local", lambda: here) == (here, "local", ())


def test_free_memory_of_all_or_of_one() -> None:
    machine = sample_plans.machine(sample_plans.H100, sample_plans.H100)
    assert [d.free_bytes for d in with_free(machine, ["70GiB"]).devices] == [70 * GIB, 70 * GIB]
    assert [d.free_bytes for d in with_free(machine, ["1=70GiB"]).devices] == [None, 70 * GIB]
    assert [d.free_bytes for d in with_free(machine, ["60GiB", "1=70GiB"]).devices] == [60 * GIB, 70 * GIB]
    assert {d.free_source for d in with_free(machine, ["1=70GiB"]).devices} == {"", "--free"}


def test_measured_takes_dashes_and_lists() -> None:
    assert parse_measured(["cuda-graphs=1GiB", "weights=2GB,workspace=0"]) == {
        "cuda_graphs": GIB, "weights": 2_000_000_000, "workspace": 0,
    }  # fmt: skip


def test_load_reads_counts() -> None:
    assert parse_load("32@1.5k+0") == Load(32, 1500, 0)


def test_environment_of_the_engine_is_read_or_named() -> None:
    launch = take_apart(VLLM, ("VLLM_USE_V2=1", "A=b=c", "vllm", "serve", "m"))
    assert launch.environment == {"VLLM_USE_V2": "1", "A": "b=c"}
    built = build(PlanWords(gpu="H100", flags=("VLLM_NO_SUCH_THING=1", "OTHER=2", "vllm", "serve", "m")), HERE)
    assert built.warnings == ("VLLM_NO_SUCH_THING is not modelled: left out",)


def test_a_plan_file_is_a_model_word_and_flags_go_over_it(tmp_path: Path) -> None:
    path = str(tmp_path / "a.kvplan.json")
    kept = PlanFile(
        "m", "2xH100", "vllm", "0.33", {"max_model_len": 8192, "enforce_eager": True}, Load(1, 2, 3), None, {}, {0: GIB}
    )
    planfile.save(path, kept)
    built = build(PlanWords(path, load="4@5+6", flags=("--max-model-len", "4096")), HERE)
    request = built.request
    assert (built.model, request.version, len(request.machine.devices)) == ("m", "0.33", 2)
    assert dict(request.options) == {"max_model_len": 4096, "enforce_eager": True}
    assert request.load == Load(4, 5, 6)
    assert request.machine.devices[0].free_bytes == GIB


@given(st.text(max_size=40))
def test_any_text_is_a_load_or_refused(text: str) -> None:
    try:
        load = parse_load(text)
    except BadInput:
        return
    assert load.users >= 1
    assert load.tokens_per_user >= 1


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_command_line_is_taken_apart_or_refused(words: list[str]) -> None:
    try:
        launch = take_apart(VLLM, words)
    except BadInput:
        return
    assert len(words) == 1 or set(launch.flags) <= set(words)


def test_unknown_gpu_lists_near_ones() -> None:
    with pytest.raises(UnknownName) as caught:
        build(PlanWords("m", "RTX 409"), HERE)
    assert any("4090" in name for name in caught.value.near)


@pytest.mark.parametrize(
    ("text", "name"),
    [("fp8", "FP8"), ("FP8 block", "FP8 block"), ("fp8-block", "FP8 block"), ("awq", "AWQ 4-bit"), ("int8", "INT8"),
     ("Q4_K_M", "GGUF Q4_K_M"), ("gguf q8_0", "GGUF Q8_0"), ("nvfp4", "NVFP4"), ("bitsandbytes", "bitsandbytes 4-bit")],
)  # fmt: skip
def test_weight_formats_by_any_spelling(text: str, name: str) -> None:
    assert format_name(text) == name


@pytest.mark.parametrize("text", ["", "fp1", "gguf q", "4-bit"])
def test_other_formats_are_refused_with_the_list(text: str) -> None:
    with pytest.raises(UnknownName) as caught:
        format_name(text)
    assert caught.value.near


def test_another_format_is_asked_for_by_name() -> None:
    model = models.load("meta-llama/Llama-3.1-8B-Instruct")
    built = build(PlanWords("m", "H100", weight_format="fp8"), Sources(lambda _: model, _no_gpu))
    assert built.request.weight_format == "FP8"
    assert built.request.model is model
