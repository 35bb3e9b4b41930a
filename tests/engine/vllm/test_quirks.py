"""One row for each architecture: the right one is found, every row is of use, and a new one needs nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvplanner.engine.vllm.quirks import ROWS, Quirks, quirks
from kvplanner.engine.vllm.weights.rules import built
from kvplanner.model.families import read_config

ROOM = Path(__file__).parents[3] / "kvplanner" / "engine" / "vllm"
# Words that stand for a model only where a rule speaks of an architecture.
NAMES = re.compile(r'"(?:[A-Z]\w*(?:ForCausalLM|ForConditionalGeneration)|(?:gemma|qwen|glm|gpt_oss|minicpm)[0-9_]*)"')


@pytest.mark.parametrize(
    ("architecture", "key"),
    [
        ("Qwen3MoeForCausalLM", "Qwen3Moe*"), ("Qwen3VLMoeForConditionalGeneration", "Qwen3VL*"),
        ("Gemma3ForCausalLM", "Gemma3ForCausalLM"), ("Gemma3nForConditionalGeneration", "Gemma3*"),
        ("Glm4vMoeForConditionalGeneration", "Glm4v*"), ("MiniMaxM2ForCausalLM", "MiniMaxM2*"),
    ],
)  # fmt: skip
def test_the_longest_name_that_fits_is_the_row(architecture: str, key: str) -> None:
    assert quirks(architecture) is ROWS[key]


def test_others_follow_the_general_rules() -> None:
    assert quirks("BrookForCausalLM") == Quirks()


def test_every_row_says_something() -> None:
    assert not [key for key, row in ROWS.items() if row == Quirks()]


def test_no_other_module_names_an_architecture() -> None:
    """What the engine does for one model is a row; options name families of drafts."""
    allowed = {"quirks.py", "rules.py", "options/model.py", "options/serving.py"}
    named = {
        path.relative_to(ROOM).as_posix(): found
        for path in ROOM.rglob("*.py")
        if path.relative_to(ROOM).as_posix() not in allowed and (found := NAMES.findall(path.read_text("utf-8")))
    }
    assert not named


@pytest.mark.parametrize("tied", [True, False])
def test_falcon_builds_a_head_of_its_own_only_where_it_is_not_tied(tied: bool) -> None:
    """models/falcon.py: 11B alone does not share its head; older files store the shared one twice."""
    config = {
        "architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_kv_heads": 2, "vocab_size": 1024, "new_decoder_architecture": True,
        "multi_query": True, "bias": False, "parallel_attn": True, "tie_word_embeddings": tied,
    }  # fmt: skip
    spec, inventory = read_config(config)
    heads = [group for group, _ in inventory.groups() if group.kind == "head"]
    assert [built(group, spec) for group in heads] == [0 if tied else 1]
