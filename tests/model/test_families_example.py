"""The worked example of the families' documentation runs, is short, and comes out right."""

from __future__ import annotations

import textwrap
from typing import Any

from kvplanner.model import families
from kvplanner.model.spec import Attention, Moe


def example() -> str:
    """The indented block of the documentation."""
    lines = (families.__doc__ or "").splitlines()
    block = [line for line in lines if line.startswith("    ") or not line.strip()]
    return textwrap.dedent("\n".join(block)).strip()


def test_the_example_is_under_thirty_lines() -> None:
    assert len([line for line in example().splitlines() if line.strip()]) <= 30


def test_the_example_reads_its_config() -> None:
    names: dict[str, Any] = {}
    exec(compile(example(), "families.__doc__", "exec"), names)
    spec, inventory = names["spec"], names["inventory"]
    windows = [m.window for kind in spec.layer_of for m in spec.layers[kind].mixers if isinstance(m, Attention)]
    assert windows == [2048, 2048, 2048, None] * 2
    sparse = [any(isinstance(m, Moe) for m in spec.layers[kind].mlps) for kind in spec.layer_of]
    assert sparse == [False, False] + [True] * 6
    hidden, vocab, attention = 1024, 32_000, 1024 * 64 * (16 + 4 + 4 + 16) + 2 * 64
    dense, experts = 3 * hidden * 4096, 33 * 3 * hidden * 512 + 32 * hidden
    total = 2 * vocab * hidden + hidden + 8 * (attention + 2 * hidden) + 2 * dense + 6 * experts
    assert inventory.parameters() == total
    assert "layer_types" in spec.defaulted
    assert "BrookForCausalLM" not in families.architectures()
