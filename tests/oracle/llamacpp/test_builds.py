"""Older builds beside what unmodified llama.cpp of their time printed on imitated CUDA devices.

builds.jsonl: of commits 8733e0cf (8 May 2025), 4227c9be (13 August 2025) and af6528e6 (1 June 2026), as vendored by
llama-cpp-python 0.3.9, 0.3.16 and 0.3.24, with headers of the oracle's own models: MiB of caches and compute buffers,
with one slot unless flags say another number, as the log has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kvplanner.engine.llamacpp.builds import BUILDS, build_of
from kvplanner.engine.llamacpp.settings import ContextSettings, PlaceSettings, Settings
from kvplanner.engine.llamacpp.sizes import size_up
from kvplanner.units import MIB
from tests.oracle.llamacpp.cases import model_of, wide, wide_model

ROWS = [json.loads(line) for line in (Path(__file__).parent / "builds.jsonl").read_text().splitlines()]


def planned(row: Mapping[str, Any]) -> dict[str, float]:
    """MiB of every buffer, by its name in the log."""
    flags, gpus = row["flags"], row["gpus"]
    model, tensors = wide_model(row["model"]) if row["model"] in wide()["models"] else model_of(row["model"])
    layers = int(flags["ngl"]) if "ngl" in flags else None
    context = ContextSettings(
        int(flags["ctx"]), int(flags.get("np", 1)), True, flash=flags["fa"], ubatch=int(flags.get("ubatch", 512)),
        key_type=flags.get("ctk", "f16"), value_type=flags.get("ctv", "f16"),
    )  # fmt: skip
    settings = Settings(build_of(row["build"]), context, PlaceSettings(gpu_layers=layers))
    sizes = size_up(model, tensors, settings, tuple(size * MIB for size in gpus))
    found = {"CUDA_Host compute": sizes.compute.host / MIB}
    for gpu in range(len(gpus)):
        found[f"CUDA{gpu} compute"], found[f"CUDA{gpu} KV"] = sizes.compute.gpus[gpu] / MIB, sizes.kv[gpu] / MIB
    return found


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_buffers_of_older_builds_are_what_they_printed(step: int) -> None:
    errors: dict[str, float] = {}
    for number, row in enumerate(ROWS[::step]):
        found = planned(row)
        for name, printed in row["printed"].items():
            error = abs(found[name] - printed)
            assert error <= 0.011 or not name.endswith("KV"), (row, found)
            errors[f"{number} {row['model']} {name}"] = 0.0 if error <= 0.011 else error / printed
    assert len(errors) >= 300 // step
    equal = sum(not error for error in errors.values())
    assert equal >= 0.96 * len(errors), {name: error for name, error in errors.items() if error}
    assert max(errors.values()) <= 0.09


def test_both_builds_are_there() -> None:
    assert {build_of(row["build"]).name for row in ROWS} == {"2025-05", "2025-08", "2026-05-28"}


@pytest.mark.parametrize("build", BUILDS)
def test_eras_are_in_order_and_each_is_its_own_first_build(build: Any) -> None:
    assert build_of(f"b{build.first}") is build
    assert [one.first for one in BUILDS] == sorted({one.first for one in BUILDS}, reverse=True)
