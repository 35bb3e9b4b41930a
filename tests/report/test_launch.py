"""What starts a server as planned, pasted back, is the same request; whatever a name holds stays within its quotes."""

from __future__ import annotations

import ast
import importlib
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.catalog import gpus, models
from kvplanner.cli import plan as command
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from kvplanner.report.launch import FORMS, Form, snippet, started, unit_word, yaml_text
from kvplanner.request.words import PlanWords, Sources, build

LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B"
NASTY = """a b'c"d$(id) `id` %h $HOME \\ ; # é"""
yaml: Any = importlib.import_module("yaml")

Options = dict[str, OptionValue]
CASES: list[tuple[str, str, str, str | None, Options]] = [
    ("vllm", LLAMA, "H100", None, {}),
    ("vllm", LLAMA, "2xH100", None, {}),  # the plan spreads over both by itself, a server does not
    ("vllm", LLAMA, "4xH100", "0.20", {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "enforce_eager": True}),
    ("vllm", LLAMA, "H100", None, {"max_model_len": 32_000, "kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.85}),
    ("vllm", LLAMA, "H100", None, {"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": "1,2,4"}),
    ("vllm", LLAMA, "H100", None,
     {"enable_prefix_caching": False, "hf_overrides": '{"max_position_embeddings": 8192}'}),
    ("vllm", "Qwen/Qwen3-30B-A3B", "2xH100", None, {"data_parallel_size": 2, "enable_expert_parallel": True}),
    ("sglang", QWEN, "2xH100", None, {"mem_fraction_static": 0.8, "kv_cache_dtype": "fp8_e5m2"}),
    ("sglang", QWEN, "H100", "0.5.20", {"context_length": 8192}),
    ("ollama", QWEN, "RTX 4090", None, {"num_ctx": 8192, "num_parallel": 2, "flash_attention": True}),
    ("llamacpp", QWEN, "RTX 4090", None, {"ctx_size": 8192, "parallel": 2, "cache_type_k": "q8_0"}),
]  # fmt: skip


def planned(name: str, model: str, gpu: str, version: str | None, options: Options) -> Plan:
    return engine(name).plan(PlanRequest(models.load(model), gpus.machine(gpu), name, version, options))


def pasted(text: str, gpu: str, model: str, *, named: bool) -> PlanRequest:
    """The request of a pasted text; named: its words name the model, a file or nothing otherwise."""

    def opened(name: str) -> Any:
        assert not named or name == model, name
        return models.load(model)

    words = PlanWords(model="" if named else model, gpu=gpu, flags=(text,))
    return build(words, Sources(opened, lambda: None)).request


@pytest.mark.parametrize("form", ["shell", "docker", "compose", "kubernetes", "systemd"])
@pytest.mark.parametrize(("name", "model", "gpu", "version", "options"), CASES)
def test_pasted_back_it_is_the_same_request(
    form: Form, name: str, model: str, gpu: str, version: str | None, options: Options
) -> None:
    plan = planned(name, model, gpu, version, options)
    text = snippet(form, plan)
    again = pasted(text, gpu, model, named=name != "ollama")
    wanted = started(plan)
    assert again.engine == name
    assert again.machine == wanted.machine
    assert dict(again.options) == engine(name).as_started(wanted.options, version)
    same = engine(name).plan(again._replace(version=again.version or version))
    assert same.engine_version.removesuffix(".0") == plan.engine_version.removesuffix(".0")
    assert (same.verdict, same.kv_cache, same.devices) == (plan.verdict, plan.kv_cache, plan.devices)
    if form in ("docker", "compose", "kubernetes"):
        assert again.version is not None


@pytest.mark.parametrize(
    ("name", "model", "gpu", "version", "options"), [c for c in CASES if c[0] in ("vllm", "sglang")]
)
def test_a_call_in_python_is_the_same_plan(
    name: str, model: str, gpu: str, version: str | None, options: Options
) -> None:
    plan = planned(name, model, gpu, version, options)
    again = pasted(snippet("python", plan), gpu, model, named=True)
    same = engine(name).plan(again._replace(version=version))
    assert (same.verdict, same.kv_cache, same.devices) == (plan.verdict, plan.kv_cache, plan.devices)


@pytest.mark.parametrize("form", ["shell", "docker", "compose", "kubernetes", "systemd", "modelfile"])
def test_what_no_command_says_stands_in_its_remarks(form: Form) -> None:
    plan = planned("ollama", QWEN, "RTX 4090", None, {"num_ctx": 8192, "num_gpu": 20, "num_parallel": 2})
    plan = engine("ollama").plan(plan.request._replace(weight_format="GGUF Q4_K_M"))
    text = snippet(form, plan)
    again = pasted(text, "RTX 4090", QWEN, named=False)
    assert dict(again.options) == {"num_ctx": 8192, "num_gpu": 20, "num_parallel": 2}
    assert again.weight_format == "GGUF Q4_K_M"


@pytest.mark.parametrize("name", ["vllm", "sglang", "llamacpp", "ollama"])
def test_only_what_was_set_is_written(name: str) -> None:
    plan = planned(name, QWEN, "H100", None, {})
    words = shlex.split(snippet("shell", plan))
    assert len(words) <= len(engine(name).launch) + 2


@pytest.mark.parametrize("form", ["compose", "kubernetes"])
@pytest.mark.parametrize(("name", "model", "gpu", "version", "options"), CASES)
def test_yaml_holds_the_same_words(
    form: str, name: str, model: str, gpu: str, version: str | None, options: Options
) -> None:
    plan = planned(name, model, gpu, version, options)
    shell = shlex.split(snippet("docker", plan).replace("\\\n", " "))
    behind = shell[shell.index(next(w for w in shell if w.startswith(("vllm/", "lmsysorg/", "ghcr.io/", "ollama/")))) :]
    gpus_used = sum(d.device.kind == "gpu" for d in plan.devices)
    document = yaml.safe_load(snippet("compose" if form == "compose" else "kubernetes", plan))
    if form == "compose":
        service = document["services"][name]
        assert [service["image"], *service.get("command", [])] == behind
        assert service["deploy"]["resources"]["reservations"]["devices"][0]["count"] == gpus_used
        return
    [container] = document["spec"]["template"]["spec"]["containers"]
    assert [container["image"], *container.get("command", []), *container.get("args", [])] == behind
    assert container["resources"]["limits"]["nvidia.com/gpu"] == gpus_used


@pytest.mark.parametrize(("name", "options"), [
    ("vllm", {"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": "1,2,4", "max_model_len": 4096,
              "enable_prefix_caching": False}),
    ("sglang", {"context_length": 4096}),
])  # fmt: skip
def test_python_is_a_call_with_typed_arguments(name: str, options: Options) -> None:
    tree = ast.parse(snippet("python", planned(name, QWEN, "2xH100", None, options)))
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call))
    given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    assert given.pop("model", None) or given.pop("model_path") == QWEN
    assert given == {
        "vllm": {"tensor_parallel_size": 2, "max_model_len": 4096, "enable_prefix_caching": False,
                 "compilation_config": {"cudagraph_mode": "PIECEWISE"}, "cudagraph_capture_sizes": [1, 2, 4],
                 "max_num_batched_tokens": 8192, "max_num_seqs": 1024},
        "sglang": {"tp_size": 2, "context_length": 4096},
    }[name]  # fmt: skip


def nasty(value: str) -> Plan:
    plan = planned("vllm", QWEN, "H100", None, {})
    model = plan.request.model._replace(id=f"org/{value}")
    request = plan.request._replace(model=model, options={"hf_overrides": value})
    return plan._replace(request=request)


def test_a_hostile_name_stays_one_word_everywhere() -> None:
    plan = nasty(NASTY)
    for form in ("shell", "docker"):
        words = shlex.split(snippet("docker" if form == "docker" else "shell", plan).replace("\\\n", " "))
        assert words[-1] == NASTY
        assert f"org/{NASTY}" in words
    service = yaml.safe_load(snippet("compose", plan))["services"]["vllm"]
    assert [word.replace("$$", "$") for word in service["command"]] == [
        "--model",
        f"org/{NASTY}",
        "--hf-overrides",
        NASTY,
    ]
    [container] = yaml.safe_load(snippet("kubernetes", plan))["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == NASTY.replace("$(", "$$(")
    assert NASTY in ast.literal_eval(
        next(n for n in ast.walk(ast.parse(snippet("python", plan))) if isinstance(n, ast.Call)).keywords[0].value
    )
    line = next(li for li in snippet("systemd", plan).splitlines() if li.startswith("ExecStart="))
    assert shlex.split(line)[-1].replace("%%", "%").replace("$$", "$") == NASTY


@given(st.text(max_size=12))
@settings(max_examples=100, deadline=None)
def test_any_text_is_one_scalar_and_one_word(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()  # no lone surrogates: no file has them
    assert yaml.safe_load(yaml_text(text)) == text
    word = unit_word(text)
    assert "\n" not in word
    if text.isprintable():
        assert [w.replace("%%", "%").replace("$$", "$") for w in shlex.split(word)] == [text]


def test_a_local_model_keeps_its_path_in_a_container() -> None:
    plan = planned("vllm", LLAMA, "H100", None, {})
    text = snippet("docker", plan, "/srv/my models/llama")
    words = shlex.split(text.replace("\\\n", " "))
    assert "/srv/my models/llama:/srv/my models/llama:ro" in words
    assert words[words.index("--model") + 1] == "/srv/my models/llama"
    assert "HF_TOKEN" not in text


def test_an_offline_start_is_given_the_servers_batches_unless_it_was_planned() -> None:
    text = snippet("python", planned("vllm", QWEN, "H100", None, {"usage": "llm"}))
    assert "max_num" not in text
    assert "# Not on a command line:" in snippet("shell", planned("vllm", QWEN, "H100", None, {"usage": "llm"}))


def test_a_model_file_sets_what_it_can_and_names_the_rest() -> None:
    plan = planned("ollama", QWEN, "RTX 4090", None, {"num_ctx": 8192, "num_gpu": 20, "num_parallel": 2})
    assert snippet("modelfile", plan, "/m/q.gguf").splitlines() == [
        "# Of the service: OLLAMA_NUM_PARALLEL=2", "FROM /m/q.gguf", "PARAMETER num_ctx 8192", "PARAMETER num_gpu 20",
    ]  # fmt: skip
    with pytest.raises(BadInput, match="no model files"):
        snippet("modelfile", planned("vllm", QWEN, "H100", None, {}))


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(BadInput, match="not started from Python"):
        snippet("python", planned("ollama", QWEN, "H100", None, {}))
    failing = planned("vllm", "meta-llama/Llama-3.1-70B-Instruct", "RTX 4090", None, {})
    assert snippet("shell", failing).startswith("# By the plan this does not start\n")


def test_the_terminal_offers_every_form() -> None:
    assert command.LAUNCHED == FORMS
