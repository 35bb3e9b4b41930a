"""The bundled model catalogue: index, names, search, records."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files

import pytest

from kvplanner.catalog import models
from kvplanner.errors import PlannerError, UnknownName

FOLDER = files("kvplanner.resources") / "models"


def test_the_index_holds_every_record_and_every_shape() -> None:
    entries = models.index()
    assert len([e for e in entries if not e.like]) == 727
    assert len([e for e in entries if e.like]) == 304
    assert len({e.id.lower() for e in entries}) == len(entries)


def test_records_lie_where_the_index_says() -> None:
    lines = (FOLDER / "records.jsonl").read_bytes().splitlines(keepends=True)
    offsets, at = {}, 0
    for line in lines:
        offsets[json.loads(line)["id"]] = at
        at += len(line)
    assert {e.id: e.offset for e in models.index() if not e.like} == offsets


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("qwen3:8b", "Qwen/Qwen3-8B"),
        ("gemma3:27b", "google/gemma-3-27b-it"),
        ("llama 3.3 70b", "meta-llama/Llama-3.3-70B-Instruct"),
    ],
)
def test_near_names_are_found_by_their_words(text: str, near: str) -> None:
    with pytest.raises(UnknownName) as unknown:
        models.find(text)
    assert near in unknown.value.near


@pytest.mark.parametrize("text", [":::", "", "/", "7", "é"])
def test_names_without_words_are_refused(text: str) -> None:
    with pytest.raises(UnknownName, match="no model is called"):
        models.find(text)


def test_resources_stay_small() -> None:
    assert len((FOLDER / "index.json").read_bytes()) < 200_000
    assert len((FOLDER / "records.jsonl").read_bytes()) < 1_200_000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("META-LLAMA/llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        (" qwen3-30b-a3b ", "Qwen/Qwen3-30B-A3B"),
        ("deepseek-v3", "deepseek-ai/DeepSeek-V3"),
        ("qwen3-8b-fp8", "Qwen/Qwen3-8B-FP8"),
        ("glm-5.2-fp8", "zai-org/GLM-5.2-FP8"),
        ("Qwen2.5-Coder-3B", "Qwen/Qwen2.5-Coder-3B"),
        ("qwen3.6-35b-a3b-nvfp4", "nvidia/Qwen3.6-35B-A3B-NVFP4"),
        ("Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)
def test_names_are_found(text: str, found: str) -> None:
    assert models.find(text).id == found


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("llama 3.1 8b", "meta-llama/Llama-3.1-8B"),
        ("Qwen3-9B", "Qwen/Qwen3-8B"),
        ("gemma3 27b", "google/gemma-3-27b-it"),
    ],
)
def test_unknown_names_list_near_ones(text: str, near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        models.find(text)
    assert near in caught.value.near
    assert near in str(caught.value)


def test_an_empty_name_is_unknown() -> None:
    with pytest.raises(UnknownName):
        models.find("")


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("qwen3 8b fp8", "Qwen/Qwen3-8B-FP8"),
        ("8b instruct llama 3.1", "meta-llama/Llama-3.1-8B-Instruct"),
        ("gpt-oss-20b", "openai/gpt-oss-20b"),
        ("kimi k2.5 nvfp4", "nvidia/Kimi-K2.5-NVFP4"),
        ("qwen32b", "Qwen/Qwen3-32B"),
        ("llama 8b fp8", "nvidia/Llama-3.1-8B-Instruct-FP8"),
        ("gpt oss", "openai/gpt-oss-20b"),
        ("gptoss 120b", "openai/gpt-oss-120b"),
        ("llama3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("1.6t deepseek", "deepseek-ai/DeepSeek-V4-Pro"),
    ],
)
def test_search_ranks_what_was_meant_first(words: str, first: str) -> None:
    assert models.search(words)[0].id == first


@pytest.mark.parametrize("words", ["apache-2.0 awq", "2025-04 qwen3", "671b deepseek", "mixtral", "nemotronh"])
def test_search_reads_licence_release_size_and_architecture(words: str) -> None:
    found = models.search(words)
    assert found
    assert len(found) < len(models.index()) / 3


def test_mirrors_are_likened_to_what_they_mirror() -> None:
    assert models.find("unsloth/Meta-Llama-3.1-8B-Instruct").like == "meta-llama/Llama-3.1-8B-Instruct"
    assert models.find("unsloth/Qwen3-8B").like == "Qwen/Qwen3-8B"


def test_a_size_is_a_whole_one() -> None:
    assert not [e.id for e in models.search("qwen 2b") if "32B" in e.id or "-72B" in e.id or "A22B" in e.id]
    assert [e.id for e in models.search("kimi k2.5 nvfp4")] == ["nvidia/Kimi-K2.5-NVFP4"]


def test_what_is_not_quantised_comes_first_unless_asked_for() -> None:
    found = models.search("qwen3 32b")
    assert found[0].quantization is None
    assert models.search("qwen3 32b awq")[0].quantization == "awq"


def test_search_keeps_every_word_and_all_for_none() -> None:
    assert models.search("no-such-model-anywhere") == ()
    assert models.search("  ") == models.index()


@pytest.mark.parametrize("entry", models.index(), ids=lambda e: e.id)
def test_every_entry_loads_as_the_index_says(entry: models.ModelEntry) -> None:
    model = models.load(entry.id)
    assert (model.id, model.source_kind) == (entry.id, "catalogue")
    assert model.spec.architecture == entry.architecture
    assert model.parameters == entry.parameters
    assert model.spec.context_length == entry.context_length
    assert bool(model.spec.assumed_fields) == entry.lower_confidence
    assert model.inventory is not None
    assert model.stored is not None
    assert model.stored.low <= model.stored.value <= model.stored.high
    assert model.stored.in_numbers()
    assert model.stored.value == entry.stored_bytes
    assert model.spec.quantization == entry.quantization
    if entry.like:
        assert any(entry.like in problem for problem in model.problems)


def test_provenance_is_told() -> None:
    model = models.load("meta-llama/Llama-3.1-405B-Instruct-FP8")
    assert "github" in model.source_detail
    assert any("completed" in problem for problem in model.problems)
    published = models.load("meta-llama/Llama-3.1-8B-Instruct").stored
    assert published is not None
    assert (published.value, published.basis) == (16_060_522_496, "exact")
    assert "safetensors" in published.inputs[0].source


def test_a_twice_stored_head_counts_on_disk_only() -> None:
    model = models.load("Qwen/Qwen3-0.6B-FP8")
    assert model.stored is not None
    assert model.inventory is not None
    assert model.stored.value == model.inventory.stored_bytes() + 2 * 151_936 * 1024


def test_the_index_needs_no_reader() -> None:
    code = (
        "import sys; from kvplanner.catalog import models; models.index(); models.search('qwen'); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.startswith("kvplanner.model.families")]


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("google/gemma-3-4b-it", 131_072),
        ("google/gemma-3-12b-it", 131_072),
        ("google/gemma-3-27b-it", 131_072),
        ("nvidia/Nemotron-3-Content-Safety", 131_072),
        ("nvidia/Nemotron-Content-Safety-Reasoning-4B", 131_072),
        ("allenai/Olmo-3-7B-Instruct", 65_536),
        ("allenai/Olmo-3-1025-7B", 65_536),
        ("allenai/Olmo-3-1125-32B", 65_536),
        ("meta-llama/Llama-2-13b-hf", 4096),
        ("meta-llama/Llama-2-13b-chat-hf", 4096),
        ("meta-llama/Llama-2-70b-hf", 4096),
        ("meta-llama/Llama-2-70b-chat-hf", 4096),
        ("mistralai/Mistral-Large-Instruct-2407", 131_072),
    ],
)
def test_lengths_that_a_copy_has_wrong_are_the_repositorys(name: str, length: int) -> None:
    assert models.find(name).context_length == length
    assert models.load(name).spec.context_length == length


def test_no_record_doubts_its_own_context() -> None:
    """A length that is known to be another one is amended, with the reason, not told in a remark."""
    for entry in models.index():
        assert not any("max_position_embeddings" in note for note in models.record(entry.id).get("notes", ())), entry.id


def test_alike_models_have_alike_lengths() -> None:
    """Multimodal Gemma 3 of any size, and Olmo 3, whose repositories agree."""
    for architecture in ("Gemma3ForConditionalGeneration", "Olmo3ForCausalLM"):
        lengths = {e.context_length for e in models.index() if e.architecture == architecture}
        assert len(lengths) == 1, f"{architecture}: {lengths}"


def test_a_word_is_sought_from_a_words_start() -> None:
    """ "r1" is no part of "Coder-1.5B"."""
    assert models.search("deepseek r1 awq") == ()
    assert models.search("r1 awq") == ()
    assert models.search("gptoss")[0].id == "openai/gpt-oss-20b"


@pytest.mark.parametrize(
    ("text", "held", "not_held"),
    [
        ("vision 27b", "Qwen/Qwen3.5-27B", "meta-llama/Llama-3.1-8B-Instruct"),
        ("moe apache", "openai/gpt-oss-20b", "Qwen/Qwen3-8B"),
        ("hybrid 9b", "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "Qwen/Qwen3-8B"),
        ("embedding", "BAAI/bge-m3", "Qwen/Qwen3-8B"),
        ("audio", "openai/whisper-small", "google/gemma-3-27b-it"),
    ],
)
def test_models_are_found_by_their_kind(text: str, held: str, not_held: str) -> None:
    found = {entry.id for entry in models.search(text)}
    assert held in found
    assert not_held not in found


def test_kinds_are_those_of_the_specs() -> None:
    """When this fails, a record or a reader changed: run packaging/preread_models.py."""
    kept = models._kinds()
    for entry in models.index()[::7]:
        try:
            kinds = models.kinds_of(models.load(entry.id).spec)
        except PlannerError:
            continue
        assert tuple(kept.get(entry.id, ())) == kinds, entry.id
