"""Remedies as the terminal and the JSON tell them."""

from __future__ import annotations

import json

from tests.cli.kit import Terminal

LLAMA = ("plan", "Llama-3.1-8B-Instruct", "--gpu")


def test_a_plan_that_fails_is_followed_by_ways_to_make_it_fit(terminal: Terminal) -> None:
    found = terminal(*LLAMA, "RTX 4090").out
    _, _, ways = found.partition("Ways to make it fit")
    assert "Context length 32," in ways
    assert "--max-model-len 32" in ways
    assert "requests may be no longer than" in ways


def test_a_plan_that_serves_its_load_tells_no_ways_unless_asked(terminal: Terminal) -> None:
    assert "To serve more" not in terminal(*LLAMA, "H100", "--load", "32@1500+500").out
    asked = terminal(*LLAMA, "H100", "--load", "32@1500+500", "--remedies").out
    assert "To serve more, or with less" in asked
    assert "--kv-cache-dtype fp8" in asked
    assert "room for this load and no more" in asked


def test_users_that_are_not_served_are_answered(terminal: Terminal) -> None:
    found = terminal(*LLAMA, "H100", "--load", "400@3000+1000").out
    assert "serves only" in found
    assert "To serve more" in found


def test_the_json_has_remedies_whose_flags_make_the_plan(terminal: Terminal) -> None:
    document = json.loads(terminal(*LLAMA, "RTX 4090", "--json").out)
    way = next(way for way in document["remedies"] if way["levers"] == ["context"])
    assert way["sure"]
    assert way["stage_before"] == document["stage"] == "kv_cache_too_small"
    again = json.loads(terminal(*LLAMA, "RTX 4090", "--json", *way["flags"].split()).out)
    assert again["fits"]
    assert again["verdict"]["certainty"] == "certain"
    assert again["kv_cache"]["tokens"] == way["tokens"]
    assert again["limits"]["sure_max_context_length"] == way["context_length"]


def test_where_nothing_can_be_told_there_is_no_remedy(terminal: Terminal) -> None:
    assert json.loads(terminal(*LLAMA, "MI300X", "--json").out)["remedies"] == []
