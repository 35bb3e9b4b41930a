"""kvplanner plan: verdicts, exit statuses, JSON, and one line for each mistake."""

from __future__ import annotations

import json
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from kvplanner.engine.request import Ask
from kvplanner.request import planfile
from kvplanner.request.planfile import PlanFile
from tests.cli.kit import Terminal
from tests.report.contract import check_plan
from tests.source.checkpoints_dense import llama
from tests.source.kit import CONFIG
from tests.source.make_models import write_folder

MODEL = "Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    ("words", "status", "fits", "stage"),
    [
        ([MODEL, "--gpu", "H100"], 0, True, None),
        ([MODEL, "--gpu", "2xRTX 4090", "--load", "8@1500+500", "--", "--max-model-len", "16k"], 0, True, None),
        (["Llama-3.1-70B-Instruct", "--gpu", "H100"], 1, False, "weights"),
        ([MODEL, "--gpu", "RTX 4090"], 1, False, "kv_cache_too_small"),
        ([MODEL, "--gpu", "H100", "--free", "40GiB"], 1, False, "free_memory_check"),
        ([MODEL, "--gpu", "AMD Instinct MI300X"], 2, None, None),
        (["--gpu", "4xH100", "--", "vllm", "serve", "meta-llama/Llama-3.1-70B-Instruct", "-tp", "4"], 0, True, None),
    ],
)
def test_verdict_status_and_json_agree(
    terminal: Terminal, words: list[str], status: int, fits: bool | None, stage: str | None
) -> None:
    at = words.index("--") if "--" in words else len(words)
    ran = terminal("plan", *words[:at], "--json", *words[at:])
    document = json.loads(ran.out)
    check_plan(document)
    assert (ran.status, document["fits"], document["stage"]) == (status, fits, stage)
    told = terminal("plan", *words)
    assert told.status == status
    assert told.out.splitlines()[0] == document["summary"]
    assert (told.err, ran.err) == ("", "") if fits is not None else told.err == ran.err != ""


def test_what_cannot_be_told_is_one_line_with_what_to_do(terminal: Terminal) -> None:
    ran = terminal("plan", MODEL, "--gpu", "AMD Instinct MI300X")
    (line,) = ran.err.splitlines()
    assert ran.out.splitlines()[0] in line
    assert "Name an NVIDIA GPU" in line
    assert ran.status == 2


@pytest.mark.parametrize("flag", ["--gpu", "--engine", "--engine-version", "--weight-format", "--load", "--free"])
def test_an_empty_value_is_refused(terminal: Terminal, flag: str) -> None:
    ran = terminal("plan", MODEL, flag, "")
    assert ran.status == 2
    assert ran.err.startswith(f"kvplanner: {flag}: is empty. Give a value")


SERVE = ["vllm", "serve", MODEL, "--max-model-len", "8192"]


@pytest.mark.parametrize(
    "words",
    [
        ["--gpu", "2xH100", *SERVE],
        ["--gpu=2xH100", *SERVE],
        ["--gpu", "2xH100", " ".join(SERVE)],
        [" ".join(SERVE), "--gpu", "2xH100"],
        [" ".join(SERVE[:3]), "--gpu=2xH100", "--", *SERVE[3:]],
        [f"docker run --gpus all vllm/vllm-openai --model {' '.join(SERVE[2:])}", "--gpu", "2xH100"],
        ["--gpu", "2xH100", "--", "--", *SERVE],
        [MODEL, "--gpu", "2xH100", "--", "vllm", "serve", f"meta-llama/{MODEL}", "--max-model-len", "8192"],
        ["--gpu", "2xH100", "HF_HOME=/x", "sudo", *SERVE],
        ["--gpu", "2xH100", "uv", "run", *SERVE],
        ["--gpu", "2xH100", "time", "./.venv/bin/vllm", *SERVE[1:]],
        ["--gpu", "2xH100", "python3.11", "-m", "vllm.entrypoints.openai.api_server", "--model", *SERVE[2:]],
        ["--gpu", "2xH100", "python", "-m", "vllm.entrypoints.openai.api_server", "--model", *SERVE[2:]],
        ["--gpu", "2xH100", "docker", "run", "--gpus", "all", "vllm/vllm-openai", "--model", *SERVE[2:]],
    ],
)
def test_a_command_line_is_known_without_dashes(terminal: Terminal, words: list[str]) -> None:
    expected = terminal("plan", "--gpu", "2xH100", "--", *SERVE)
    assert expected.status == 0
    ran = terminal("plan", *words)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == expected.out.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([MODEL, "--gpus", "H100"], "--gpus is no flag of kvplanner. Near: --gpu"),
        ([MODEL, "-tp", "2"], "-tp is no flag of kvplanner. The engine's go after --: kvplanner plan MODEL -- -tp 2"),
        ([MODEL, "H100"], "'H100' belongs to no flag. Name one model; GPUs go with --gpu"),
        ([MODEL, "--gpu", "RTX", "4090"], '"RTX 4090"'),
        (["--gpu", "RTX", "4090", MODEL], '"RTX 4090"'),
        ([MODEL, "--", "--max-model-len", "8k", "--gpu", "H100"], "--gpu: is kvplanner's flag, not the engine's"),
        (["--", "vllm", MODEL], "Write vllm serve MODEL and its flags, or flags alone"),
        (["vllm", "serve", MODEL, "--load=8@100+100"], "--load: is kvplanner's flag"),
        ([MODEL, "--json", "--markdown"], "two forms of the plan"),
        ([MODEL, "--markdown", "--explain"], "two forms of the plan"),
        ([MODEL, "--unit", "tb"], "--unit: invalid choice"),
        ([MODEL, "--free", "70"], "70 has no unit and would be bytes. Write for example 70GiB"),
        ([MODEL, "--gpu", "2xH100", "--free", "70GiB,60GiB"], "Write 0=70GiB,1=60GiB"),
        ([MODEL, "--measured", "foo=1GiB"], "KIND is one of other, runtime_outside"),
        ([MODEL, "--measured", "driver=1GiB"], "KIND is one of other, runtime_outside"),
        ([MODEL, "--explain", "nonsense"], "Name one, or none for all"),
        ([MODEL, "--weight-format", "int4"], "Near: AWQ 4-bit, GPTQ 4-bit"),
        ([MODEL, "--weight-format", "awq-int4"], "Near: AWQ 4-bit. Name"),
    ],
)
def test_a_slip_is_told_with_the_right_spelling(terminal: Terminal, words: list[str], told: str) -> None:
    ran = terminal("plan", *words)
    assert (ran.status, ran.out) == (2, "")
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1


def test_the_page_of_a_model_stands_for_its_name(terminal: Terminal) -> None:
    named = terminal("plan", f"meta-llama/{MODEL}", "--gpu", "H100")
    for page in ("https://huggingface.co/{}", "hf.co/{}/tree/main", "http://www.huggingface.co/{}?x=1#y"):
        assert terminal("plan", page.format(f"meta-llama/{MODEL}"), "--gpu", "H100") == named
    unknown = terminal("plan", "https://huggingface.co/Qwen/Qwen3-9B")
    assert "no model is called 'Qwen/Qwen3-9B'" in unknown.err
    assert "hub:Qwen/Qwen3-9B asks the Hub" in unknown.err
    assert "ollama:qwen3:9b opens Ollama's" in terminal("plan", "qwen3:9b").err


def test_kinds_and_units_are_read_as_people_write_them(terminal: Terminal) -> None:
    def out(*words: str) -> str:
        ran = terminal("plan", MODEL, "--gpu", "H100", *words)
        assert ran.status == 0
        return ran.out

    assert out("--explain", "KV") == out("--explain", "kv cache") == out("--explain", "kv_cache")
    assert out("--explain", "graphs,act") == out("--explain", "activations,cuda_graphs")
    assert out("--explain", "all") == out("--explain")
    assert out("--measured", "Activations=2GiB") == out("--measured", "activations=2GiB")
    assert out("--unit", "gb") == out("--unit", "GB")


def test_a_model_after_explain_is_the_model(terminal: Terminal) -> None:
    behind = terminal("plan", "--explain", MODEL, "--gpu", "H100")
    assert behind.status == 0
    assert behind.out == terminal("plan", MODEL, "--gpu", "H100", "--explain").out
    assert terminal("plan", "--explain", "weights", "--gpu", "H100").err.startswith("kvplanner: MODEL: no model")


def test_what_is_free_is_told_as_given_and_as_the_engine_finds_it(terminal: Terminal) -> None:
    told = terminal("plan", MODEL, "--gpu", "H100", "--free", "60GB").out
    line = "55.88 GiB free (--free) less 0.50 GiB of runtime outside the budget = 55.38 GiB at start"
    assert line in told.splitlines()
    assert "has 55.38 GiB free at start" in told.splitlines()[0]
    assert line in terminal("plan", MODEL, "--gpu", "H100", "--free", "60GB", "--markdown").out
    assert "at start" not in terminal("plan", MODEL, "--gpu", "H100").out


def test_a_size_copied_from_what_is_shown_is_not_too_much(terminal: Terminal) -> None:
    assert terminal("plan", MODEL, "--gpu", "H100", "--free", "79.18GiB").status == 0
    refused = terminal("plan", MODEL, "--gpu", "H100", "--free", "79.2GiB")
    assert (refused.status, "Give at most 79.18 GiB" in refused.err) == (2, True)


def test_json_tells_the_options_origins(terminal: Terminal) -> None:
    document = json.loads(terminal("plan", MODEL, "--gpu", "H100", "--json", "--", "--max-model-len", "32k").out)
    options = document["options"]
    assert (options["max_model_len"]["value"], options["max_model_len"]["origin"]) == (32_000, "user")
    assert (options["max_num_batched_tokens"]["value"], options["max_num_seqs"]["value"]) == (8192, 1024)
    assert options["max_num_batched_tokens"]["origin"] == "default"
    small = json.loads(terminal("plan", MODEL, "--gpu", "RTX 4090", "--json").out)["options"]
    assert (small["max_num_batched_tokens"]["value"], small["max_num_seqs"]["value"]) == (2048, 256)


def test_measured_values_replace_estimates(terminal: Terminal) -> None:
    ran = terminal(
        "plan", MODEL, "--gpu", "80GB", "--measured", "activations=3GB", "--measured",
        "runtime_outside=0,runtime=0,workspace=0,cuda_graphs=0", "--json", "--", "--gpu-memory-utilization", "0.9",
    )  # fmt: skip
    segments = {s["kind"]: s for s in json.loads(ran.out)["devices"][0]["segments"]}
    assert segments["activations"]["bytes"] == 3_000_000_000
    assert segments["activations"]["basis"] == "measured"
    assert segments["weights"]["bytes"] == 16_060_522_496
    assert segments["runtime"]["bytes"] == segments["cuda_graphs"]["bytes"] == 0


def test_another_weight_format(terminal: Terminal) -> None:
    plain = json.loads(terminal("plan", MODEL, "--gpu", "H100", "--json").out)
    ran = terminal("plan", MODEL, "--gpu", "H100", "--weight-format", "fp8", "--json")
    document = json.loads(ran.out)
    check_plan(document)
    assert document["model"]["weight_format"] == "FP8"
    assert document["model"]["stored_bytes"] < 0.6 * plain["model"]["stored_bytes"]
    assert document["kv_cache"]["num_blocks"] > plain["kv_cache"]["num_blocks"]


def test_explain_and_markdown_tell_the_same_numbers(terminal: Terminal) -> None:
    document = json.loads(terminal("plan", MODEL, "--gpu", "H100", "--json").out)
    explained = terminal("plan", MODEL, "--gpu", "H100", "--explain").out
    for segment in document["devices"][0]["segments"]:
        assert f"= {segment['bytes']:,} bytes" in explained
        assert segment["formula"] in explained
    only = terminal("plan", MODEL, "--gpu", "H100", "--explain", "kv-cache").out
    assert "KV cache:" in only
    assert "activations:" not in only
    marked = terminal("plan", MODEL, "--gpu", "H100", "--markdown").out
    assert marked.startswith(f"**{document['summary']}**")


def test_both_units(terminal: Terminal) -> None:
    out = terminal("plan", MODEL, "--gpu", "H100", "--unit", "GB").out
    assert "16.06 GB = 14.96 GiB stored" in out
    assert out.split("W weights")[1].split()[0] == "16.06"


def test_a_plan_file_is_planned(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "a.kvplan.json"
    planfile.save(path, PlanFile(f"meta-llama/{MODEL}", "2xH100", Ask(options={"max_model_len": 8192})))
    document = json.loads(terminal("plan", str(path), "--json").out)
    assert len(document["devices"]) == 2
    assert document["options"]["max_model_len"] == {
        "value": 8192,
        "origin": "user",
        "reason": document["options"]["max_model_len"]["reason"],
    }
    assert terminal("plan", str(path), "--gpu", "RTX 4090", "--json").status == 0


def test_what_was_asked_is_saved_and_planned_again(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "a.kvplan.json"
    words = (MODEL, "--gpu", "2xRTX 4090", "--load", "8@1500+500", "--free", "1=20GiB", "--weight-format", "fp8",
             "--measured", "activations=1GiB", "--engine-version", "0.33")  # fmt: skip
    first = terminal("plan", *words, "--save", str(path), "--json", "--", "--max-model-len", "8k").out
    again = terminal("plan", str(path), "--json").out
    assert again.replace("plan file", "--free") == first
    kept = planfile.load(path)
    assert dict(kept.ask.options) == {"max_model_len": 8000}
    assert terminal("plan", MODEL, "--gpu", "H100", "--save", str(tmp_path / "a.txt")).status == 2


def test_what_was_assumed_is_said(terminal: Terminal) -> None:
    out = terminal("plan", MODEL).out
    assert "planned for one NVIDIA H100 80GB HBM3" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["plan"], "no model is named"),
        (["plan", "No-Such-Model-9B", "--gpu", "H100"], "No-Such-Model-9B"),
        (["plan", MODEL, "--gpu", "H1000"], "H1000"),
        (["plan", MODEL, "--gpu", "H100", "--engine", "tgi"], "tgi"),
        (["plan", MODEL, "--gpu", "H100", "--engine-version", "never"], "never"),
        (["plan", MODEL, "-tp", "2"], "go after --"),
        (["plan", MODEL, "--gpu"], "--gpu"),
        (["plan", MODEL, "--gpu", "H100", "--", "--no-such-flag", "1"], "--no-such-flag"),
        (["plan", MODEL, "--gpu", "H100", "--", "--max-model-len", "0"], "--max-model-len"),
        (["plan", MODEL, "--gpu", "H100", "--", "--gpu-memory-utilization", "9"], "--gpu-memory-utilization"),
        (["plan", MODEL, "--gpu", "H100", "--", "-tp", "3"], "3"),
        (["plan", MODEL, "--gpu", "H100", "--load", "9"], "--load"),
        (["plan", MODEL, "--gpu", "H100", "--weight-format", "fp1"], "fp1"),
        (["plan", MODEL, "--gpu", "H100", "--explain", "magic"], "magic"),
        (["plan", "./no/such/folder", "--gpu", "H100"], "no/such/folder"),
        (["plan", "none.kvplan.json"], "none.kvplan.json"),
        (["plans"], "plans"),
        (["gpus", "--watch"], "--local"),
        (["gpus", "nothing at all"], "nothing at all"),
        (["gpus", "--local", "H100"], "--local"),
        (["models", "no such words"], "no such words"),
        (["models", "--frob"], "--frob"),
        (["inspect"], "MODEL"),
        (["inspect", "./no/such/folder"], "no/such/folder"),
    ],
)
def test_a_mistake_is_one_line_and_status_two(terminal: Terminal, words: list[str], told: str) -> None:
    ran = terminal(*words)
    assert ran.status == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("kvplanner: ")
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_a_broken_config_names_file_and_field(terminal: Terminal, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": "wide"}')
    ran = terminal("plan", str(config), "--gpu", "H100")
    assert ran.status == 2
    assert ran.err.count("\n") == 1
    assert str(config) in ran.err
    config.write_text("{")
    assert terminal("plan", str(tmp_path), "--gpu", "H100").status == 2


def test_engine_flags_before_the_dashes_are_shown_their_place(terminal: Terminal) -> None:
    ran = terminal("plan", MODEL, "--gpu", "H100", "--max-model-len", "8k", "--", "-tp", "1")
    assert ran.status == 2
    assert "The engine's go after --: kvplanner plan MODEL -- --max-model-len" in ran.err


def test_an_unknown_model_is_shown_where_to_look(terminal: Terminal) -> None:
    assert "kvplanner models QUERY" in terminal("plan", "nosuch", "--gpu", "H100").err
    assert "hub:org/nosuch asks the Hub" in terminal("plan", "org/nosuch", "--gpu", "H100").err


def test_an_empty_folder_is_called_empty(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nothing" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert "the folder is empty" in terminal("plan", "nothing/here", "--gpu", "H100").err
    assert "holds no config.json" in terminal("plan", "nothing", "--gpu", "H100").err


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_model_len", "abc", "whole number"),
        ("max_num_seqs", True, "whole number"),
        ("enforce_eager", 1, "true or false"),
        ("gpu_memory_utilization", "0.9", "a number"),
        ("gpu_memory_utilization", 7, "out of range"),
        ("kv_cache_dtype", "fp7", "not one of"),
        ("kv_cache_dtype", 8, "a text"),
        ("max_model_len", 10**400, "out of range"),
        ("foo", 1, "no such option"),
    ],
)
def test_options_of_a_plan_file_are_checked(
    terminal: Terminal, tmp_path: Path, name: str, value: object, words: str
) -> None:
    path = tmp_path / "a.kvplan.json"
    document = {"schema": planfile.SCHEMA, "model": MODEL, "machine": "H100", "options": {name: value}}
    path.write_text(json.dumps(document))
    ran = terminal("plan", str(path))
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert f"options.{name}" in ran.err
    assert words in ran.err
    assert len(ran.err) < 400


def test_what_is_odd_about_a_models_files_is_told(terminal: Terminal, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", CONFIG, llama(CONFIG), shards=2)
    second = folder / "model-00002-of-00002.safetensors"
    with second.open("rb+") as file:
        file.truncate(second.stat().st_size - 100)
    (words,) = {w for w in json.loads(terminal("plan", str(folder), "--gpu", "H100", "--json").out)["warnings"]
                if "short" in w}  # fmt: skip
    assert words == "model-00002-of-00002.safetensors is 100 bytes short of what its header says"
    assert words in " ".join(terminal("plan", str(folder), "--gpu", "H100").out.split())
    second.unlink()
    assert "1 weight file is missing" in terminal("plan", str(folder), "--gpu", "H100").out


def test_a_saved_plan_finds_its_draft_from_anywhere(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = {**CONFIG, "vocab_size": 128256}
    write_folder(tmp_path / "draft", same, llama(same))
    monkeypatch.chdir(tmp_path)
    config = '{"model": "./draft", "num_speculative_tokens": 2}'
    saved = str(tmp_path / "a.kvplan.json")
    first = terminal("plan", MODEL, "--gpu", "H100", "--save", saved, "--json", "--", "--speculative-config", config)
    monkeypatch.chdir("/")
    again = terminal("plan", saved, "--json")
    assert (first.status, again.status) == (0, 0)
    assert json.loads(again.out)["kv_cache"] == json.loads(first.out)["kv_cache"]
    assert json.loads(again.out)["options"]["speculative_method"]["value"] == "draft_model"


LOGS = Path(__file__).parent.parent / "diagnose" / "logs" / "vllm"


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log"))[:3] or sorted(LOGS.iterdir())[:3], ids=lambda log: log.name)
def test_a_log_in_the_models_place_is_read_as_one(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path
) -> None:
    asked = terminal("diagnose", str(log), "--json")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(log.read_bytes())))
    given = terminal("plan", "-", "--json")
    assert (given.status, json.loads(given.out)) == (asked.status, json.loads(asked.out))
    (tmp_path / "server.log").write_bytes(log.read_bytes())
    named = terminal("plan", str(tmp_path / "server.log"), "--json")
    assert (named.status, json.loads(named.out)) == (asked.status, json.loads(asked.out))
    refused = terminal("plan", str(tmp_path / "server.log"), "--solve", "context")
    assert refused.status == 2
    assert "--solve" in refused.err


def test_a_model_is_named_beside_a_text_that_names_none(terminal: Terminal, tmp_path: Path) -> None:
    """A compose file of Ollama's sets everything but the model."""
    compose = tmp_path / "compose.yaml"
    compose.write_text(
        "services:\n  ollama:\n    image: ollama/ollama:0.11.4\n    environment:\n"
        "      - OLLAMA_CONTEXT_LENGTH=32768\n      - OLLAMA_NUM_PARALLEL=2\n"
    )
    alone = terminal("plan", str(compose), "--gpu", "RTX 3090")
    assert alone.status == 2
    assert "kvplanner plan ollama:qwen3:8b compose.yaml" in alone.err
    for words in (("ollama:qwen3:8b", str(compose)), (str(compose), "ollama:qwen3:8b")):
        document = json.loads(terminal("plan", *words, "--gpu", "RTX 3090", "--json").out)
        assert document["engine"]["name"] == "ollama"
        assert document["options"]["num_parallel"]["value"] == 2
        assert document["kv_cache"]["context_length"] == 32_768
