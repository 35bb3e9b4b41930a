"""Commands of llama.cpp and Ollama that start no server but load a model as one would, and the names they use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from kvplanner.catalog import models, shared_names
from kvplanner.errors import BadInput, PlannerError, UnknownName
from kvplanner.files import shipped
from kvplanner.model.model import Model
from kvplanner.model.whatif import WHATIF_FORMATS
from kvplanner.request.pasted import starts_server
from kvplanner.request.words import Built, PlanWords, Sources, build
from kvplanner.source.resolve import open_model
from tests.source.kit import add_to_ollama
from tests.source.make_gguf import llama_file

GPU = "RTX 4090"


@pytest.fixture(autouse=True)
def _no_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "nothing"))


def _open(name: str) -> Model:
    return open_model(name)


def _built(text: str, model: str = "") -> Built:
    return build(PlanWords(model=model, gpu=GPU, flags=(text,)), Sources(_open, lambda: None))


# Names and what they stand for: model pages of Ollama's library; owner/name-GGUF repositories.
OLLAMA = {
    "ollama run qwen3:8b": ("Qwen/Qwen3-8B", "GGUF Q4_K_M"),
    "ollama run qwen3": ("Qwen/Qwen3-8B", "GGUF Q4_K_M"),
    "ollama run --verbose llama3.1:70b-instruct-q8_0 why is the sky blue": (
        "meta-llama/Llama-3.1-70B-Instruct", "GGUF Q8_0"),
    "ollama run --keepalive 5m gpt-oss:20b": ("openai/gpt-oss-20b", None),
    "ollama run gemma3:27b-it-qat": ("google/gemma-3-27b-it", "GGUF Q4_0"),
    "ollama run llama2:13b": ("meta-llama/Llama-2-13b-chat-hf", "GGUF Q4_0"),
    "ollama show qwen3:30b-a3b-instruct-2507-q4_K_M --modelfile": (
        "Qwen/Qwen3-30B-A3B-Instruct-2507", "GGUF Q4_K_M"),
    "ollama pull qwen2.5-coder:32b": ("Qwen/Qwen2.5-Coder-32B-Instruct", "GGUF Q4_K_M"),
    "ollama run hf.co/bartowski/Qwen_Qwen3-8B-GGUF:Q6_K": ("Qwen/Qwen3-8B", "GGUF Q6_K"),
    "docker exec -it ollama ollama run deepseek-r1:7b": (
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "GGUF Q4_K_M"),
    "sudo OLLAMA_NUM_PARALLEL=2 ollama run phi4": ("microsoft/phi-4", "GGUF Q4_K_M"),
}  # fmt: skip


@pytest.mark.parametrize("text", OLLAMA)
def test_a_model_that_ollama_runs_is_planned_by_its_name(text: str) -> None:
    assert starts_server(text)
    built = _built(text)
    assert (built.request.model.id, built.request.weight_format) == OLLAMA[text]
    assert built.request.engine == "ollama"
    assert any("is not in Ollama's store on this machine" in warning for warning in built.warnings)


def test_variables_before_the_command_are_read() -> None:
    text = "OLLAMA_NUM_PARALLEL=2 OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_FLASH_ATTENTION=1 ollama"
    expected = {"num_parallel": 2, "kv_cache_type": "q8_0", "num_ctx": 8192, "flash_attention": True}
    assert _built(f"{text} run qwen3:8b").request.options == expected
    served = _built(f"{text} serve", model="Qwen3-8B")
    assert (served.request.engine, served.request.options) == ("ollama", expected)
    exported = "export OLLAMA_NUM_PARALLEL=2\nollama serve &\nollama run qwen3:14b\n"
    assert starts_server(exported)


def test_variables_stand_before_flags_without_a_command_too() -> None:
    words = ("OLLAMA_CONTEXT_LENGTH=16384", "OLLAMA_KV_CACHE_TYPE=q8_0", "--num-gpu", "30")
    asked = PlanWords(model="Qwen3-8B", gpu=GPU, engine="ollama", flags=words)
    options = build(asked, Sources(_open, lambda: None)).request.options
    assert options == {"num_ctx": 16384, "kv_cache_type": "q8_0", "num_gpu": 30}
    with pytest.raises(UnknownName, match=r"--num-ctx: is set by a variable.*Write OLLAMA_CONTEXT_LENGTH=4096"):
        build(asked._replace(flags=("--num-ctx", "4096")), Sources(_open, lambda: None))


def test_the_store_s_own_file_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_to_ollama(tmp_path, "tiny:1b", {"model": llama_file()})
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    built = _built("ollama run tiny:1b")
    assert built.request.model.source_kind == "ollama"
    assert built.request.weight_format is None


@pytest.mark.parametrize("text", ["ollama ps", "ollama list"])
def test_commands_that_load_nothing_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="starts no server"):
        _built(text)


def test_an_unknown_name_says_what_may_be_done() -> None:
    with pytest.raises(UnknownName, match="nosuch:1b"):
        _built("ollama run nosuch:1b")
    with pytest.raises(UnknownName, match="not fetched here"):
        _built("llama-server -hf nobody/nothing-GGUF")
    with pytest.raises(BadInput, match="kvplanner's flag"):
        _built("ollama run qwen3:8b --gpu H100")


FILES = {
    "llama-cli -m /x/Qwen3-8B-Q4_K_M.gguf -ngl 20 -p 'hello there' -cnv -n 64": ("Qwen/Qwen3-8B", "GGUF Q4_K_M"),
    "./main -m /x/Qwen3-8B-Q4_K_M.gguf -ngl 20 -p 'hello there' -n 64": ("Qwen/Qwen3-8B", "GGUF Q4_K_M"),
    "build/bin/server.exe --model=Qwen3-8B-Q4_K_M.gguf -ngl 99": ("Qwen/Qwen3-8B", "GGUF Q4_K_M"),
    "llama-server -m gpt-oss-120b-mxfp4-00001-of-00003.gguf": ("openai/gpt-oss-120b", "GGUF MXFP4"),
    "llama-server -m /m/google_gemma-3-12b-it-Q4_K_M.gguf -c 8192": ("google/gemma-3-12b-it", "GGUF Q4_K_M"),
    "llama-server -hf ggml-org/gpt-oss-20b-GGUF -c 0 --jinja": ("openai/gpt-oss-20b", "GGUF MXFP4"),
    "llama-server -hf ggml-org/gemma-3-27b-it-qat-GGUF": ("google/gemma-3-27b-it", "GGUF Q4_0"),
    "llama-server --hf-repo=unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q5_K_M": (
        "Qwen/Qwen3-Coder-30B-A3B-Instruct", "GGUF Q5_K_M"),
}  # fmt: skip


@pytest.mark.parametrize("text", FILES)
def test_a_file_or_a_repository_is_planned_by_its_name_and_mix(text: str) -> None:
    built = _built(text)
    model, mix = FILES[text]
    assert built.request.model.id.rpartition("/")[2] == model.rpartition("/")[2]
    assert (built.request.engine, built.request.weight_format) == ("llamacpp", mix)


def test_llama_cli_answers_one_at_a_time() -> None:
    options = _built("llama-cli -m Qwen3-8B-Q4_K_M.gguf -ngl 20 -c 8192 --temp 0.7 -p hi").request.options
    assert options == {"parallel": 1, "n_gpu_layers": "20", "ctx_size": 8192}


@pytest.mark.parametrize(
    ("flags", "context", "more"),
    [("", 512, {}), ("-p 512,4096 -n 128,256", 4096, {}), ("-p 0 -n 128 -d 0,8192", 8320, {}),
     ("-pg 4096,512 -fa 1 -ub 256,2048", 4608, {"flash_attn": "on", "ubatch_size": 2048}),
     ("-p 1024 -ngl 10,99 -nkvo 1 -mmp 0 -ctk q8_0", 1024,
      {"n_gpu_layers": "99", "kv_offload": False, "mmap": False, "cache_type_k": "q8_0"}),
     ("-d 0-16384+4096 -r 3 -o json", 16896, {}), ("-ts 3/1 -sm layer", 512, {"tensor_split": "3/1"})],
)  # fmt: skip
def test_llama_bench_is_planned_for_its_largest_test(flags: str, context: int, more: dict[str, object]) -> None:
    options = dict(_built(f"llama-bench -m Qwen3-8B-Q4_K_M.gguf {flags}").request.options)
    assert options.pop("ctx_size") == context
    base = {"parallel": 1, "n_gpu_layers": "all", "fit": "off", "all_outputs": True}
    assert {name: value for name, value in options.items() if value != "layer"} == {**base, **more}


PYTHON = "python3 -m llama_cpp.server --model /models/Qwen3-8B-Q4_K_M.gguf"
# llama_cpp/server/settings.py and llama_cpp/llama.py of llama-cpp-python 0.3.36.
PYTHONS: Final = {
    "n_gpu_layers": "0", "ctx_size": 2048, "batch_size": 512, "ubatch_size": 512, "parallel": 1, "fit": "off",
    "flash_attn": "off", "load_mode": "mlock", "swa_full": True, "all_outputs": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "more"),
    [
        ("", {}),
        ("--n_gpu_layers -1 --n_ctx 8192 --n_batch 1024 --n_ubatch 256 --flash_attn true",
         {"n_gpu_layers": "-1", "ctx_size": 8192, "batch_size": 1024, "ubatch_size": 256, "flash_attn": "on"}),
        ("--tensor_split 0.6 0.4 --main_gpu 1 --split_mode 0",
         {"tensor_split": "0.6,0.4", "main_gpu": 1, "split_mode": "none"}),
        ("--type_k 8 --type_v=2 --flash_attn 1", {"cache_type_k": "q8_0", "cache_type_v": "q4_0", "flash_attn": "on"}),
        ("--offload_kqv false --use_mmap no --use_mlock 0", {"kv_offload": False, "mmap": False, "load_mode": "mmap"}),
        ("--offload_kqv true --use_mmap=True --use_mlock True --flash_attn False", {}),
        ("--embedding true", {"embeddings": True, "parallel": 256, "kv_unified": True}),
        ("--n-ctx 0 --logits_all false --chat_format chatml --cache true --verbose False --rope_freq_base 0",
         {"ctx_size": 0}),
        ("--host 0.0.0.0 --port 9000 --api_key abc --n_threads 8", {}),
    ],
)  # fmt: skip
def test_llama_cpp_pythons_server_has_flags_and_defaults_of_its_own(flags: str, more: dict[str, object]) -> None:
    assert starts_server(f"{PYTHON} {flags}")
    built = _built(f"{PYTHON} {flags}")
    assert (built.request.model.id, built.request.weight_format) == ("Qwen/Qwen3-8B", "GGUF Q4_K_M")
    assert built.request.engine == "llamacpp"
    assert dict(built.request.options) == {**PYTHONS, **more}


def test_llama_cpp_pythons_server_takes_variables_and_repositories() -> None:
    given = "MODEL=/models/Qwen3-8B-Q8_0.gguf N_CTX=16384 N_GPU_LAYERS=20 FLASH_ATTN=1"
    built = _built(f"{given} python -m llama_cpp.server --n_gpu_layers 99")
    assert built.request.weight_format == "GGUF Q8_0"
    assert built.request.options == {**PYTHONS, "ctx_size": 16384, "n_gpu_layers": "99", "flash_attn": "on"}
    fetched = _built("python -m llama_cpp.server --hf_model_repo_id Qwen/Qwen3-8B-GGUF --model '*Q5_K_M.gguf'")
    assert (fetched.request.model.id, fetched.request.weight_format) == ("Qwen/Qwen3-8B", "GGUF Q5_K_M")


@pytest.mark.parametrize(
    ("start", "loads"),
    [
        ("llama-cli -hf {repo}:Q4_K_M", True), ("llama-completion -hf {repo}:Q4_K_M", False),
        ("llama-bench -hf {repo}:Q4_K_M", False),
        ("python -m llama_cpp.server --hf_model_repo_id {repo} --model '*Q4_K_M.gguf'", False),
    ],
)  # fmt: skip
def test_only_programs_that_load_a_repositorys_projector_unasked_count_it(start: str, loads: bool) -> None:
    """mmproj_examples of llama.cpp's common/arg.cpp; llama_cpp/server/model.py of llama-cpp-python 0.3.36."""
    built = _built(start.format(repo="ggml-org/gemma-3-27b-it-GGUF"))
    assert ("mmproj_size" in built.request.options) is loads
    assert any("projector" in warning for warning in built.warnings) is loads


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ("--config_file models.json", "what it sets is not read from here.*Write the settings"),
        ("--n_gpu_layerz 3", "n-gpu-layerz: is no known flag"),
        ("--rpc_servers a:1", "devices of other machines"),
        ("--clip_model_path /m/x.gguf", "the file is not on this machine.*--mmproj-size"),
    ],
)
def test_llama_cpp_pythons_server_refuses_what_cannot_be_planned(flags: str, error: str) -> None:
    with pytest.raises(PlannerError, match=error):
        _built(f"{PYTHON} {flags}")


def test_every_name_of_the_library_s_list_is_in_the_catalogue_or_is_said_to_be_missing() -> None:
    """Names whose model the catalogue lacks are found later by nobody: each is listed here until it comes."""
    data = json.loads(shipped("models", "ollama_library.json").read_bytes())
    assert "ollama.com/library" in data["source"]
    assert data["pages"] == {name: f"https://ollama.com/library/{name}" for name in data["names"]}, (
        "each has its source"
    )
    missing = set()
    for name, sizes in data["names"].items():
        for size, model in sizes.items():
            if size == "mix":
                assert f"GGUF {model}" in WHATIF_FORMATS
            elif "/" in model:
                try:
                    assert models.find(model).id == model
                    assert shared_names.find(f"{name}:{size}") is not None
                except UnknownName:
                    missing.add(f"{name}:{size}")
            else:
                assert model in sizes, (name, size)
    assert not missing
