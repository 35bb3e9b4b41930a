"""Commands of llama.cpp and Ollama as people paste them: how they name a model, and what they load beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplanner.engine.registry import engine
from kvplanner.errors import BadInput, UnknownName
from kvplanner.request.unasked import projector_near
from kvplanner.request.words import Built, PlanWords, Sources, build
from kvplanner.source.resolve import open_model
from tests.source import make_gguf

GEMMA = "google/gemma-3-27b-it"


def built(text: str, gpu: str = "RTX 3090") -> Built:
    return build(PlanWords(gpu=gpu, flags=(text,)), Sources(open_model, lambda: None))


@pytest.mark.parametrize(
    ("text", "model", "weight_format", "options"),
    [
        ("LLAMA_ARG_HF_REPO=unsloth/Qwen3-8B-GGUF LLAMA_ARG_HF_FILE=Qwen3-8B-IQ4_XS.gguf llama-server -ngl 20",
         "Qwen/Qwen3-8B", "GGUF IQ4_XS", {"n_gpu_layers": "20"}),
        ("llama-server -hf unsloth/Qwen3-8B-GGUF -hff Qwen3-8B-Q6_K-00001-of-00002.gguf", "Qwen/Qwen3-8B",
         "GGUF Q6_K", {}),
        ("docker run --gpus all -e LLAMA_ARG_MODEL=/models/Qwen3-8B-Q5_K_M.gguf ghcr.io/ggml-org/llama.cpp:server-cuda",
         "Qwen/Qwen3-8B", "GGUF Q5_K_M", {}),
        # Presets of common/arg.cpp: a model of the Hub and its settings; what stands behind them wins.
        ("llama-server --gpt-oss-20b-default -c 65536", "openai/gpt-oss-20b", "GGUF MXFP4",
         {"parallel": 2, "ubatch_size": 2048, "batch_size": 32768, "ctx_size": 65536}),
        ("llama-server --fim-qwen-7b-spec", "Qwen/Qwen2.5-Coder-7B", "GGUF Q8_0",
         {"ctx_size": 0, "ubatch_size": 1024, "spec_draft_model": "Qwen2.5-Coder-0.5B-Q8_0-GGUF"}),
        ("llama-server -m Qwen3-8B-Q8_0.gguf --reranking", "Qwen/Qwen3-8B", "GGUF Q8_0", {"embeddings": True}),
        ("LLAMA_ARG_NO_MMAP=1 LLAMA_ARG_NO_KV_OFFLOAD=0 llama-server -m Qwen3-8B-Q8_0.gguf", "Qwen/Qwen3-8B",
         "GGUF Q8_0", {"mmap": False, "kv_offload": False}),
    ],
)  # fmt: skip
def test_a_model_is_named_in_many_ways(text: str, model: str, weight_format: str, options: dict[str, object]) -> None:
    request = built(text).request
    name = model.rpartition("/")[2]
    assert (request.model.id.rpartition("/")[2], request.weight_format, request.engine) == (
        name,
        weight_format,
        "llamacpp",
    )
    assert options.items() <= request.options.items()


def test_a_repositorys_projector_is_loaded_unasked() -> None:
    """847 MB of 16-bit matrices; the published mmproj files of gemma-3-27b-it have 858 MB, some of them in 32 bits."""
    found = built("llama-server -hf ggml-org/gemma-3-27b-it-GGUF:Q4_K_M -c 8192")
    assert found.request.options["mmproj_size"] == pytest.approx(858e6, rel=0.02)
    assert any("projector is loaded with its model" in warning for warning in found.warnings)
    plain = built("llama-server -hf ggml-org/gemma-3-27b-it-GGUF:Q4_K_M -c 8192 --no-mmproj")
    assert "mmproj_size" not in plain.request.options
    assert "mmproj_size" not in built("llama-server -hf unsloth/Qwen3-8B-GGUF:Q8_0").request.options


def test_files_of_one_engine_are_planned_for_it_where_none_is_named(tmp_path: Path) -> None:
    path = make_gguf.write(tmp_path / "a.gguf", make_gguf.llama_pairs(), make_gguf.llama_tensors())
    (tmp_path / "folder").mkdir()
    make_gguf.write(tmp_path / "folder" / "b.gguf", make_gguf.llama_pairs(), make_gguf.llama_tensors())

    def asked(model: str, *flags: str, named: str = "", version: str = "") -> Built:
        words = PlanWords(model=model, gpu="RTX 3090", flags=flags, engine=named, version=version)
        return build(words, Sources(open_model, lambda: None))

    for found in (asked(str(path)), asked(str(path), "-ngl", "1"), asked(str(tmp_path / "folder" / "b.gguf"))):
        assert found.request.engine == "llamacpp"
        assert any("Planned for llama.cpp" in warning for warning in found.warnings)
    assert asked(str(path), "-ngl", "1").request.options == {"n_gpu_layers": "1"}
    for found in (asked(str(path), named="vllm"), asked(str(path), version="0.16"), asked("Qwen/Qwen3-8B")):
        assert found.request.engine == "vllm"
        assert not any("Planned for" in warning for warning in found.warnings)
    # What lies in no file of that name, its content tells.
    path.rename(tmp_path / "blob")
    assert asked(str(tmp_path / "blob")).request.engine == "llamacpp"
    assert asked("ollama:qwen3:8b").request.engine == "ollama"


@pytest.mark.parametrize(
    ("model", "chosen"),
    [("x-F16.gguf", "mmproj-F16.gguf"), ("x-Q8_0.gguf", "mmproj-Q8_0.gguf"), ("x-Q4_K_M.gguf", "mmproj-Q8_0.gguf"),
     ("x-BF16-00001-of-00002.gguf", "mmproj-BF16.gguf"), ("x.gguf", "mmproj-Q8_0.gguf")],
)  # fmt: skip
def test_of_several_projectors_that_of_the_nearest_bits_is_loaded(tmp_path: Path, model: str, chosen: str) -> None:
    """find_best_sibling of llama.cpp's common/download.cpp; of two alike the first by name."""
    for size, name in enumerate(("mmproj-Q8_0.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf", "mmproj-BF16.gguf"), 1):
        if name != "mmproj-BF16.gguf" or "BF16" in model:
            (tmp_path / name).write_bytes(bytes(size))
    found = projector_near(tmp_path / model)
    assert found is not None
    assert found[0] == chosen


def test_a_fetched_repositorys_projector_counts_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the Hub's cache and in llama.cpp's own, where files of all repositories lie together."""
    hub, own = tmp_path / "hub", tmp_path / "own"
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    monkeypatch.setenv("LLAMA_CACHE", str(own))
    snapshot = hub / "models--org--Seeing-GGUF" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    own.mkdir()
    pairs = make_gguf.llama_pairs(arch="gemma3")
    make_gguf.write(snapshot / "Seeing-Q8_0.gguf", pairs, make_gguf.llama_tensors())
    make_gguf.write(own / "org_Other-GGUF_other-Q8_0.gguf", pairs, make_gguf.llama_tensors())
    (own / "else_Third-GGUF_mmproj-f16.gguf").write_bytes(bytes(77))
    seeing, other = "llama-server -hf org/Seeing-GGUF:Q8_0 -c 4096", "llama-server -hf org/Other-GGUF:Q8_0 -c 4096"
    for text in (seeing, other):
        alone = built(text)
        assert "mmproj_size" not in alone.request.options
        assert any("is not counted here: give its size as --mmproj-size" in warning for warning in alone.warnings)
        for more in ("--no-mmproj", "--mmproj-size 5MB"):
            assert not any("projector" in warning for warning in built(f"{text} {more}").warnings)
        assert not any("projector" in warning for warning in built(f"LLAMA_ARG_NO_MMPROJ=1 {text}").warnings)
    (snapshot / "mmproj-f32.gguf").write_bytes(bytes(9000))
    (snapshot / "mmproj-f16.gguf").write_bytes(bytes(5000))
    (own / "org_Other-GGUF_mmproj-f16.gguf").write_bytes(bytes(6000))
    for text, size in ((seeing, 5000), (other, 6000)):
        found = built(text)
        assert found.request.options["mmproj_size"] == size
        assert any(
            "is loaded with its model: " in warning and "mmproj-f16.gguf" in warning for warning in found.warnings
        )
    # A model that was named by its own file has none but what is named.
    assert "mmproj_size" not in built(f"llama-server -m {snapshot}/Seeing-Q8_0.gguf").request.options


def test_files_beside_the_model_count_by_their_size(tmp_path: Path) -> None:
    for name, size in (("mmproj.gguf", 7_000_000), ("one.gguf", 3_000), ("two.gguf", 500)):
        (tmp_path / name).write_bytes(bytes(size))
    model = "llama-server -m /models/gemma-3-27b-it-Q4_K_M.gguf"
    found = built(
        f"{model} --mmproj {tmp_path}/mmproj.gguf --lora-scaled {tmp_path}/one.gguf:0.5,{tmp_path}/two.gguf:1"
    )
    assert found.request.options["mmproj_size"] == 7_000_000
    assert found.request.options["lora_size"] == 3_500
    assert built(f"LLAMA_ARG_MMPROJ={tmp_path}/mmproj.gguf {model}").request.options["mmproj_size"] == 7_000_000
    # Of another machine, where the model says what its projector holds; an adapter's size nothing says.
    elsewhere = built(f"{model} -mm /models/mmproj-F16.gguf")
    assert elsewhere.request.options["mmproj_size"] == pytest.approx(858e6, rel=0.02)
    assert any("/models/mmproj-F16.gguf is not on this machine" in warning for warning in elsewhere.warnings)
    with pytest.raises(BadInput, match=r"--lora /models/a.gguf: the file is not on this machine.*--lora-size 200MiB"):
        built(f"{model} --lora /models/a.gguf")
    with pytest.raises(BadInput, match=r"--mmproj .*--mmproj-size 880MiB"):
        built("llama-server -m Qwen3-8B-Q8_0.gguf --mmproj /models/x.gguf")


def test_sizes_that_are_no_flags_of_the_engine_take_any_unit() -> None:
    found = built("llama-server -m Qwen3-8B-Q8_0.gguf --mmproj-size 880MiB --host-memory 64GiB --lora-size 200MB")
    assert found.request.options["mmproj_size"] == 880 << 20
    assert found.request.options["host_memory"] == 64 << 30
    assert found.request.options["lora_size"] == 200_000_000


def test_a_draft_of_another_machine_or_of_a_repository_counts() -> None:
    for flag in ("-md /models/qwen3-0.6b-q8_0.gguf", "-hfd unsloth/Qwen3-0.6B-GGUF:Q8_0"):
        draft = built(f"llama-server -m Qwen3-8B-Q8_0.gguf {flag}").request.draft
        assert draft is not None
        assert draft.spec.num_layers == 28
        assert draft.weight_format == "GGUF Q8_0"


def test_variables_that_nothing_reads_are_named() -> None:
    found = built("LLAMA_ARG_PORT=1 LLAMA_ARG_SHINY=1 llama-server -m Qwen3-8B-Q8_0.gguf --mtp")
    assert [warning for warning in found.warnings if "LLAMA_ARG" in warning] == [
        "LLAMA_ARG_SHINY is not modelled: left out"
    ]
    assert "--mtp is not modelled: planned without it" in found.warnings
    with pytest.raises(BadInput, match="LLAMA_ARG_RPC=10"):
        built("LLAMA_ARG_RPC=10.0.0.1:50052 llama-server -m Qwen3-8B-Q8_0.gguf")


@pytest.mark.parametrize("text", ["llama-imatrix -m a.gguf -f b.txt", "./llama-perplexity -m a.gguf -f wiki.txt"])
def test_other_programs_start_no_server(text: str) -> None:
    with pytest.raises(BadInput, match=r"starts no server\. Write -- llama-server"):
        built(text)


def test_a_tag_finds_its_file_in_the_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, own = tmp_path / "hub", tmp_path / "own"
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    monkeypatch.setenv("LLAMA_CACHE", str(own))
    snapshot = hub / "models--org--Tiny-GGUF" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    own.mkdir()
    for kind in ("Q4_0", "Q8_0"):
        make_gguf.write(snapshot / f"Tiny-{kind}.gguf", make_gguf.llama_pairs(), make_gguf.llama_tensors())
    make_gguf.write(own / "org_Other-GGUF_other-Q8_0.gguf", make_gguf.llama_pairs(), make_gguf.llama_tensors())
    model = open_model("org/Tiny-GGUF:Q8_0")
    assert model.source_detail.endswith("Tiny-Q8_0.gguf")
    assert model.id == "org/Tiny-GGUF:Q8_0"
    assert open_model("org/Other-GGUF:q8_0").source_detail.endswith("other-Q8_0.gguf")
    with pytest.raises(UnknownName):
        open_model("org/Tiny-GGUF:Q2_K")
    # A command finds it there too, the usual mix where it names none.
    found = built("llama-server -hf org/Tiny-GGUF:Q4_0")
    assert found.request.model.source_detail.endswith("Tiny-Q4_0.gguf")
    make_gguf.write(snapshot / "Tiny-Q4_K_M.gguf", make_gguf.llama_pairs(), make_gguf.llama_tensors())
    assert built("llama-server -hf org/Tiny-GGUF").request.model.source_detail.endswith("Tiny-Q4_K_M.gguf")


def test_a_name_of_ollamas_library_is_planned_before_it_is_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    found = build(
        PlanWords(model="ollama:gpt-oss:20b", gpu="RTX 3090", engine="ollama"), Sources(open_model, lambda: None)
    )
    assert (found.request.model.id, found.request.weight_format) == ("openai/gpt-oss-20b", None)
    assert any("is not in Ollama's store on this machine" in warning for warning in found.warnings)
    with pytest.raises(UnknownName, match="nosuch:1b"):
        build(PlanWords(model="ollama:nosuch:1b", gpu="RTX 3090"), Sources(open_model, lambda: None))


def test_a_model_file_with_an_adapter_a_projector_and_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "lora.gguf").write_bytes(bytes(4000))
    (tmp_path / "mmproj.gguf").write_bytes(bytes(300))
    text = (
        "# mine\nfrom /models/qwen3-8b-q4_k_m.gguf\nPARAMETER num_ctx 8192\nPARAMETER stop x\n"
        f'SYSTEM """You\nFROM here\n"""\nADAPTER {tmp_path}/lora.gguf\nFROM "{tmp_path}/mmproj.gguf"\n'
    )
    request = built(text).request
    assert (request.model.id, request.weight_format, request.engine) == ("Qwen/Qwen3-8B", "GGUF Q4_K_M", "ollama")
    assert request.options == {"num_ctx": 8192, "lora_size": 4000, "mmproj_size": 300}
    plan = engine("ollama").plan(request)
    terms = {one.name: one.value for s in plan.devices[0].segments if s.kind == "weights" for one in s.estimate.inputs}
    assert (terms["adapters"], terms["projector"]) == (4000, 300)
    with pytest.raises(BadInput, match=r"--adapter ./lora.gguf: the file is not on this machine.*--lora-size"):
        built("FROM qwen3:8b\nADAPTER ./lora.gguf\n")
    with pytest.raises(BadInput, match="the model file names no model"):
        built('PARAMETER num_ctx 8192\nSYSTEM """\nFROM here\n"""\n')
