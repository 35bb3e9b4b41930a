"""What a plan tells is what the engine would say and what its own figures allow."""

from __future__ import annotations

import pytest

from tests.engine.test_planner import plan

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize("version", ["0.99", "0.9999.9999", "1.0", "9.9.1"])
def test_a_release_to_come_is_planned_by_the_newest_rules(version: str) -> None:
    newest, later = plan(LLAMA, "H100"), plan(LLAMA, "H100", version=version)
    assert later.engine_version.startswith(version)
    assert later.rules == newest.rules
    assert later.kv_cache is not None
    assert newest.kv_cache is not None
    assert later.kv_cache.tokens == newest.kv_cache.tokens
    assert any("newer than 0.33" in warning for warning in later.warnings)


def test_a_utilisation_of_one_is_printed_as_python_does() -> None:
    assert "(1.0, 79.18 GiB)" in plan(LLAMA, "H100", {"gpu_memory_utilization": 1}).engine_message
