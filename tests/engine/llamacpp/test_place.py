"""Placement: -ngl, -ts, overrides and what each counts."""

from __future__ import annotations

import pytest

from kvplanner.engine.llamacpp.place import HOST, overrides_of, place, split_points


def test_the_last_layers_are_offloaded_first_and_the_output_before_all() -> None:
    placed = place(32, 1, [1.0])
    assert placed.output == 0
    assert set(placed.layers) == {HOST}
    placed = place(32, 12, [1.0])
    assert placed.layers[:21] == (HOST,) * 21
    assert set(placed.layers[21:]) == {0}


def test_older_builds_put_n_layers_without_the_output_on_the_gpu() -> None:
    """b5466 prints "offloading 30 repeating layers" and 30/49 for -ngl 30 of 48 layers, and no output line."""
    placed = place(48, 30, [1.0], output_first=False)
    assert placed.layers.count(0) == 30
    assert placed.output == HOST
    assert place(48, 49, [1.0], output_first=False).output == 0


def test_shares_split_layers_by_their_running_sum() -> None:
    assert split_points([3, 1]) == [0.75, 1.0]
    placed = place(32, None, [3, 1])
    assert placed.layers.count(0) == 25
    assert placed.output == 1


def test_no_gpu_leaves_all_on_the_host() -> None:
    assert place(4, None, []) == ((HOST,) * 4, HOST)


def test_overrides_name_buffers_and_patterns() -> None:
    found = overrides_of(r"blk\.1\..*=CPU,output=CUDA1", ["CUDA0", "CUDA1"], ["CPU"])
    assert [(rule.pattern, rule.device) for rule in found] == [(r"blk\.1\..*", HOST), ("output", 1)]
    for bad in ("output=CUDA7", "output", "(=CPU"):
        with pytest.raises(ValueError, match=r"is no|is not"):
            overrides_of(bad, ["CUDA0"], ["CPU"])
