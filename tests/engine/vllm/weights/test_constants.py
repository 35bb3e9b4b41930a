"""The fitted constants: complete for every combination, banded, and with their reports named."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from kvplanner.engine.vllm import constants
from kvplanner.engine.vllm.gpu import Gpu
from tests.engine.vllm.weights.models import settings

TABLE = json.loads((files("kvplanner.resources") / "vllm_constants.json").read_bytes())["constants"]
GPUS = {
    "hbm": ("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30),
    "pcie": ("NVIDIA GeForce RTX 4090", (8, 9), 24 << 30),
    "unified": ("NVIDIA GB10", (12, 1), 120 << 30),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_version_gpu_and_rank_has_an_entry(name: str) -> None:
    for minor in range(34):
        for gpu, (title, arch, total) in GPUS.items():
            for tp, pp in ((1, 1), (2, 1), (4, 1), (1, 2)):
                for version in (f"0.{minor}.0", f"0.{minor}.9"):
                    here = settings(version, tp=tp, pp=pp)
                    card = Gpu(title, arch, total)
                    assert card.kind == gpu
                    for states in (False, True):
                        found = constants.lookup(name, here, card, pp - 1, states=states)
                        assert found.low <= found.value <= found.high
                        assert found.source


def test_calibrated_entries_name_their_reports() -> None:
    bare = [
        f"{name}: {item['why']}"
        for name, entries in TABLE.items()
        for item in entries
        if item["basis"] == "calibrated" and not item["rows"] and item["value"]
    ]
    assert not bare


@pytest.mark.parametrize(
    ("name", "arch", "total", "expected"),
    [
        ("NVIDIA H100 PCIe", (9, 0), 80 << 30, "pcie"),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 79 << 30, "hbm"),
        ("Tesla T4", (7, 5), 15 << 30, "pcie"),
        ("Custom 80 GB", None, 80 * 10**9, "hbm"),
        ("Custom 24 GB", None, 24 * 10**9, "pcie"),
        ("NVIDIA B200", (10, 0), 178 << 30, "hbm"),
    ],
)
def test_gpu_classes(name: str, arch: tuple[int, int] | None, total: int, expected: str) -> None:
    assert Gpu(name, arch, total).kind == expected


@pytest.mark.parametrize("total", [80 * 10**9, 24 * 10**9])
@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_gpu_of_unknown_kind_spans_every_kind_of_its_memory(name: str, total: int) -> None:
    """Attention and kernels take such a GPU for a Hopper; a term that the kind moves has the band of all kinds."""
    for version in ("0.16.0", "0.19.0", "0.23.0", "0.33.0"):
        here, custom = settings(version, tp=2), Gpu("Custom", None, total)
        found = constants.lookup(name, here, custom)
        for gpu in ("hbm", "pcie"):
            title, arch, _ = GPUS[gpu]
            size = 80 << 30 if gpu == "hbm" else 24 << 30
            known = constants.lookup(name, here, Gpu(title, arch, size))
            assert found.low <= known.low <= known.high <= found.high
            if gpu == custom.kind:
                assert found.value == known.value


def test_late_kernels_of_recurrent_states_have_a_band_of_their_own() -> None:
    """One hybrid in two took 2.5 GiB beside its weights (0.28 on an A100); no other single GPU since 0.21 0.3 GiB."""
    plain = constants.lookup("late_bytes", settings("0.33.0"), Gpu("NVIDIA GeForce RTX 4090", (8, 9), 24 << 30))
    hybrid = constants.lookup(
        "late_bytes", settings("0.33.0"), Gpu("NVIDIA GeForce RTX 4090", (8, 9), 24 << 30), states=True
    )
    assert plain.high < 1 << 30 < 2 << 30 < hybrid.high
