"""All configs at once: how many are refused, and how long a reader is, as the README states."""

from __future__ import annotations

import ast
import re
import statistics
from pathlib import Path

import pytest

from kvplanner import jsonfile
from kvplanner.catalog import models
from kvplanner.errors import NotModelled, PlannerError
from kvplanner.model.families import READERS, conversions, drafts, read_config, unread
from kvplanner.model.served import served
from tests.model.cases import CASES

ROOT = Path(__file__).parents[2]
README = re.sub(r"\s+", " ", (ROOT / "README.md").read_text(encoding="utf-8"))


def refused() -> list[str]:
    """What no reader understands of the catalogue's configs and of the public ones."""
    out = []
    for entry in models.index():
        if entry.like:
            continue
        facts = models.record(entry.id)
        try:
            read_config(facts["config"], where=entry.id, side_quant=facts.get("side_quant"))
        except PlannerError as error:
            out.append(f"{entry.id}: {error}")
    for name, case in CASES.items():
        try:
            read_config(jsonfile.parse_config(case["text"].encode(), name), where=name)
        except PlannerError:
            out.append(name)
    return out


@pytest.mark.slow
def test_the_readme_counts_the_refusals() -> None:
    found = re.search(r"and (\d+) public ones that the readers had never seen, (\d+) are refused", README)
    assert found is not None
    assert len(CASES) == int(found[1])
    names = refused()
    assert len(names) == int(found[2]), names


def entry_lines() -> list[int]:
    """Lines of each READERS entry, with those of the functions and traits of its module that it names."""
    sizes = []
    for path in (ROOT / "kvplanner" / "model" / "families").glob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        lines: dict[str, int] = {}
        for node in body:
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                lines[node.name] = length
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id != "READERS":
                lines[node.target.id] = length
        for node in body:
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value):
                continue
            if node.target.id == "READERS" and isinstance(node.value, ast.Dict):
                for value in node.value.values:
                    used = {n.id for n in ast.walk(value) if isinstance(n, ast.Name) and n.id in lines}
                    own = (value.end_lineno or value.lineno) - value.lineno + 1
                    sizes.append(own + sum(lines[name] for name in used))
    return sizes


@pytest.mark.slow
def test_a_reader_is_as_small_as_the_readme_says() -> None:
    found = re.search(r"half of the entries take (\d+) lines or fewer", README)
    assert found is not None
    sizes = entry_lines()
    assert len(sizes) > 200
    assert statistics.median(sizes) <= int(found[1])


def test_every_name_that_stands_for_another_leads_to_a_reader() -> None:
    made = (
        "Qwen2ForRewardModel", "InternLM2ForRewardModel", "LlamaForSequenceClassification", "Qwen3RewardModel",
        "MistralForRewardModeling", "Gemma2EmbeddingModel",
    )  # fmt: skip
    names = (*conversions.ALIASES, *drafts.MTP_OF, *drafts.EAGLE_OF, *made)
    assert not [name for name in names if name not in READERS]


def test_a_name_of_nothing_leads_nowhere() -> None:
    for name in ("BrookForCausalLM", "BrookForSequenceClassification", "BrookModel", "ForCausalLM", "Model", ""):
        assert name not in READERS


def refused_by_name() -> list[str]:
    return [name for name in served() if name not in READERS]


@pytest.mark.parametrize("name", refused_by_name())
def test_what_vllm_serves_and_nothing_reads_is_refused_by_name(name: str) -> None:
    with pytest.raises(NotModelled, match=f"{name}.*which vLLM serves"):
        read_config({"architectures": [name], "num_hidden_layers": 2})


def test_a_name_that_no_registry_lists_is_told_so() -> None:
    assert unread.why("BrookForCausalLM") == ""
    with pytest.raises(NotModelled, match="in no registry of vLLM"):
        read_config({"architectures": ["BrookForCausalLM"], "num_hidden_layers": 2})


def test_the_registries_that_were_read_say_when_an_architecture_came_and_went() -> None:
    """Release notes of vLLM: Qwen3 with 0.8.4, gpt-oss with 0.10.1, Qwen3-Next with 0.10.2, Mllama to 0.10.2."""
    firsts = {name: served()[f"{name}ForCausalLM"].first for name in ("Qwen3", "GptOss", "Qwen3Next")}
    assert firsts == {"Qwen3": (8, 4), "GptOss": (10, 1), "Qwen3Next": (10, 2)}
    assert served()["MllamaForConditionalGeneration"].last == (10, 2)
    assert served()["LlamaForCausalLM"].absent is None
