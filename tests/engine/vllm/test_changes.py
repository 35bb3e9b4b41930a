"""Which rules changed between two releases: each with its release and its source, and none that did not change."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kvplanner.engine.registry import engine, names
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.changes import _TITLES, between
from kvplanner.engine.vllm.releases import ByRelease
from kvplanner.errors import BadInput


def test_what_is_told_are_rules_and_they_changed() -> None:
    assert all(isinstance(getattr(rules, name), ByRelease) for name in _TITLES)
    told = between("0.20.0", "0.33.0")
    assert any("tokens of the cache are counted by: pool → concurrency (v1/core/kv_cache_utils.py" in t for t in told)
    assert any(text.startswith("since 0.26.0 bounded caches keep") for text in told)
    assert between("0.33.0", "0.20.0") == told
    assert between("0.33", "0.33.0") == between(None, None) == ()
    with pytest.raises(BadInput):
        between("x", "0.33")


def test_steps_in_between_tell_all_that_the_whole_way_tells() -> None:
    versions = [*reversed(engine("vllm").versions)]
    steps = {text for one, other in pairwise(versions) for text in between(one, other)}
    since = {text.partition(" (")[0].split(": ")[0] for text in steps}
    assert {text.partition(" (")[0].split(": ")[0] for text in between(versions[0], versions[-1])} <= since


def test_engines_that_tell_none_say_nothing() -> None:
    for name in names():
        chosen = engine(name)
        found = chosen.rules_between(chosen.versions[-1], chosen.versions[0])
        assert bool(found) == (name == "vllm")
