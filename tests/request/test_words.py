"""From typed words to a request: every form that the contract names, and a clear refusal of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.catalog import models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Ask, Load, Part
from kvplanner.errors import BadInput, PlannerError, UnknownName
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model
from kvplanner.request import planfile
from kvplanner.request.launch import take_apart, visible
from kvplanner.request.named import format_name, load_text, machine_of, parse_load
from kvplanner.request.planfile import PlanFile
from kvplanner.request.start import START_GPU
from kvplanner.request.words import (
    PlanWords,
    Sources,
    build,
    parse_measured,
    with_free,
)
from kvplanner.units import GIB
from tests import sample_plans

ENGINE = engine("vllm")


def _open(text: str) -> Model:
    return sample_plans.llama_8b()._replace(id=text)


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


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve org/m -tp 2 2>&1 | tee serve.log",
        "vllm serve org/m -tp 2 > out.log 2>err.log &",
        "vllm serve org/m -tp 2 >> out.log && echo done",
        "export HF_TOKEN=x; vllm serve org/m -tp 2; echo done",
        "vllm serve org/m \\ \n  -tp 2 \\\n  --served-model-name a b \\\n  --dtype half 2>/dev/null",
        "vllm serve org/m ^\r\n -tp 2",
        "vllm serve org/m `\n -tp 2",
    ],
)
def test_what_the_shell_keeps_is_left_out(command: str) -> None:
    built = build(PlanWords(gpu="2xH100", flags=(command,)), HERE)
    assert built.model == "org/m"
    assert built.request.options["tensor_parallel_size"] == 2


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("vllm serve m", {"tensor_parallel_size": 1}),
        ("vllm serve m -pp 4", {"pipeline_parallel_size": 4}),
        ("vllm serve m -dp 2", {"data_parallel_size": 2}),
        ("docker run vllm/vllm-openai --model m", {"tensor_parallel_size": 1}),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve m",
         {"tensor_parallel_size": 1, "attention_backend": "FLASHINFER"}),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve m --attention-backend TRITON_ATTN",
         {"tensor_parallel_size": 1, "attention_backend": "TRITON_ATTN"}),
        ("docker run -e VLLM_USE_V2_MODEL_RUNNER=0 vllm/vllm-openai --model m",
         {"tensor_parallel_size": 1, "v2_model_runner": False}),
        ("docker run --env=VLLM_USE_V2_MODEL_RUNNER=0 vllm/vllm-openai --model m",
         {"tensor_parallel_size": 1, "v2_model_runner": False}),
        ("docker run --entrypoint vllm vllm/vllm-openai serve m", {"tensor_parallel_size": 1}),
    ],
)  # fmt: skip
def test_a_started_server_has_the_engines_own_defaults(command: str, options: dict[str, object]) -> None:
    built = build(PlanWords(gpu="4xH100", flags=(command,)), HERE)
    assert dict(built.request.options) == options


@pytest.mark.parametrize("setting", ["VLLM_USE_V1=0", "VLLM_MLA_DISABLE=1", "VLLM_ENABLE_STARTUP_PLAN=1"])
def test_environment_that_may_matter_is_refused(setting: str) -> None:
    with pytest.raises(BadInput, match=setting) as caught:
        build(PlanWords(gpu="H100", flags=(f"{setting} vllm serve m",)), HERE)
    assert caught.value.remedy
    harmless = PlanWords(gpu="H100", flags=("VLLM_USE_V1=1 VLLM_MLA_DISABLE=0 vllm serve m",))
    assert build(harmless, HERE).warnings == ()


def test_flags_alone_use_all_gpus() -> None:
    assert dict(build(PlanWords("m", "4xH100", flags=("--dtype", "half")), HERE).request.options) == {"dtype": "half"}


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.9.1", "0.9.1"),
        ("vllm/vllm-openai:v0.11.0-cu129", "0.11.0"),
        ("ghcr.io/vllm/vllm-openai:v0.30.0@sha256:ab", "0.30.0"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
    ],
)
def test_the_images_tag_tells_the_version(image: str, version: str | None) -> None:
    command = ("docker", "run", "-v", "/home/vllm/vllm:/x", image, "--model", "m")
    assert build(PlanWords(gpu="H100", flags=command), HERE).request.version == version
    assert build(PlanWords(gpu="H100", version="0.20", flags=command), HERE).request.version == "0.20"


@pytest.mark.parametrize(
    ("before", "gpus"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1", ["H100", "H100"]),
        ("CUDA_VISIBLE_DEVICES=3", ["RTX 4090"]),
        ("export CUDA_VISIBLE_DEVICES=3,0;", ["RTX 4090", "H100"]),
        ("", ["H100", "H100", "H100", "RTX 4090"]),
    ],
)
def test_only_visible_gpus_are_planned_for(before: str, gpus: list[str]) -> None:
    words = PlanWords(gpu="3xH100,1xRTX 4090", free=("3=20GiB",), flags=(f"{before} vllm serve m",))
    devices = build(words, HERE).request.machine.devices
    assert [d.index for d in devices] == list(range(len(gpus)))
    assert all(gpu in d.gpu.name for d, gpu in zip(devices, gpus, strict=True))
    assert {d.gpu.name for d in devices if d.free_bytes} == (
        {"NVIDIA GeForce RTX 4090"} if "RTX 4090" in gpus else set()
    )


def test_docker_devices_and_uuids_are_visible_gpus() -> None:
    words = ("docker", "run", "--gpus", '"device=1,2"', "vllm/vllm-openai", "--model", "m")
    assert len(build(PlanWords(gpu="4xH100", flags=words), HERE).request.machine.devices) == 2
    machine = sample_plans.machine(sample_plans.H100, sample_plans.H100)
    named = machine._replace(devices=tuple(d._replace(uuid=f"GPU-{d.index}abc") for d in machine.devices))
    assert [d.uuid for d in visible(named, {"CUDA_VISIBLE_DEVICES": "GPU-1"}).devices] == ["GPU-1abc"]


def test_as_many_alike_gpus_as_are_visible_are_those_meant() -> None:
    words = PlanWords(gpu="2xH100", flags=("CUDA_VISIBLE_DEVICES=2,3 vllm serve m -tp 2",))
    assert len(build(words, HERE).request.machine.devices) == 2


@pytest.mark.parametrize("value", ["", "-1", "4", "0,0", "x", "0,9", "9" * 400])
def test_gpus_that_are_not_there_are_refused(value: str) -> None:
    with pytest.raises(BadInput, match="CUDA_VISIBLE_DEVICES"):
        build(PlanWords(gpu="3xH100,1xRTX 4090", flags=(f"CUDA_VISIBLE_DEVICES={value}", "vllm", "serve", "m")), HERE)


def _drafts(text: str) -> Model:
    if text == "unknown":
        raise UnknownName("no model is called 'unknown'", "", ("x",))
    return _open(text)


@pytest.mark.parametrize(
    ("config", "draft"),
    [
        ('{"model": "d", "num_speculative_tokens": 3}', "d"),
        ('{"method": "draft_model", "model": "d", "num_speculative_tokens": 3}', "d"),
        ('{"method": "eagle3", "model": "d", "num_speculative_tokens": 3}', None),
        ('{"method": "ngram", "num_speculative_tokens": 3}', None),
    ],
)
def test_a_draft_model_is_opened(config: str, draft: str | None) -> None:
    words = PlanWords("m", "H100", flags=("--speculative-config", config))
    request = build(words, Sources(_drafts, _no_gpu)).request
    assert (request.draft.id if request.draft else None) == draft


@pytest.mark.parametrize(
    ("config", "where"),
    [('{"model": "unknown"}', "--speculative-config.model"), ('{"method": "draft_model"}', "--speculative-config")],
)
def test_a_draft_model_that_cannot_be_opened_is_an_error(config: str, where: str) -> None:
    with pytest.raises(BadInput) as caught:
        build(PlanWords("m", "H100", flags=("--speculative-config", config)), Sources(_drafts, _no_gpu))
    assert caught.value.where == where


def test_an_eagle_head_needs_no_file() -> None:
    words = PlanWords("m", "H100", flags=("--speculative-config.model", "org/EAGLE3-x"))
    refuses = Sources(lambda text: _drafts("unknown" if "EAGLE" in text else text), _no_gpu)
    assert build(words, refuses).request.draft is None


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "1" + "0" * 20 + "k"])
def test_absurd_numbers_are_refused(number: str) -> None:
    for words in (
        PlanWords("m", "H100", load=f"{number}@1+1"), PlanWords("m", f"{number}xH100"), PlanWords("m", f"{number}GB"),
        PlanWords("m", "H100", measured=(f"weights={number}GB",)), PlanWords("m", "H100", free=(f"{number}GB",)),
        PlanWords("m", "H100", version=f"0.{number}"), PlanWords("m", "H100", flags=("--max-model-len", number)),
    ):  # fmt: skip
        with pytest.raises(PlannerError) as caught:
            ENGINE.plan(build(words, HERE).request)
        assert len(str(caught.value)) < 400


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
        (PlanWords("m", "H100", engine="tgi"), "no engine is called 'tgi'"),
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


def test_a_load_of_several_kinds_has_their_shares_and_the_tokens_of_the_longest() -> None:
    load = parse_load("32@2:1500+500, 1 : 8k+1k")
    assert load == Load(32, 8000, 1000, (Part(2 / 3, 1500, 500), Part(1 / 3, 8000, 1000)))
    assert load_text(load) == "32@66.6667%:1500+500,33.3333%:8000+1000"
    assert parse_load("32@100%:1500+500") == Load(32, 1500, 500)
    for text in ("32@70%:1500", "0@1%:1+1,1%:2+2", "x@1%:1+1,1%:2+2", "32@0%:1+1", "32@1%:0+0,2%:1+1"):
        with pytest.raises(BadInput) as caught:
            parse_load(text)
        assert (caught.value.where, "32@" in caught.value.remedy) == ("--load", True)


def test_environment_of_the_engine_is_read_or_named() -> None:
    launch = take_apart(("VLLM_USE_V2=1", "A=b=c", "vllm", "serve", "m"))
    assert launch.environment == {"VLLM_USE_V2": "1", "A": "b=c"}
    built = build(PlanWords(gpu="H100", flags=("VLLM_NO_SUCH_THING=1", "OTHER=2", "vllm", "serve", "m")), HERE)
    assert built.warnings == ("VLLM_NO_SUCH_THING is not modelled: left out",)


def test_a_plan_file_is_a_model_word_and_flags_go_over_it(tmp_path: Path) -> None:
    path = str(tmp_path / "a.kvplan.json")
    ask = Ask("vllm", "0.33", {"max_model_len": 8192, "enforce_eager": True}, Load(1, 2, 3))
    kept = PlanFile("m", "2xH100", ask, {0: GIB})
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
        launch = take_apart(words)
    except BadInput:
        return
    assert len(words) == 1 or {*launch.flags} <= {*words, *(word.removesuffix(";") for word in words)}


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
