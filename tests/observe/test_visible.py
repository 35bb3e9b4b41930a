"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

from __future__ import annotations

import pytest

from kvplanner.observe.snapshot import GpuSample
from kvplanner.observe.visible import visible


def gpu(number: int, name: str = "NVIDIA H100 80GB HBM3") -> GpuSample:
    return GpuSample(
        number, f"GPU-b100000{number}-0000-4000-8000-0000000001{number:02d}", f"0000:{number + 16:02x}:00.0", name
    )


ALIKE = tuple(gpu(i) for i in range(4))


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        (" 1 , 3", [1, 3]),
        ("", []),
        ("-1", []),
        ("0,-1,2", [0]),
        ("0,9,2", [0]),
        ("1,1,2", [1]),
        (f"0,{'9' * 5000}", [0]),
        ("²,0", []),
        ("GPU-b1000002", [2]),
        ("gpu-B1000003,0", [3, 0]),
        ("GPU-b1", []),  # fits several
        ("GPU-", []),
        ("nonsense", []),
    ],
)
def test_rules(value: str | None, numbers: list[int]) -> None:
    assert [g.number for g in visible(ALIKE, value).gpus] == numbers


def test_the_order_of_unlike_gpus_is_said_to_be_unsure() -> None:
    mixed = (gpu(0, "NVIDIA RTX A6000"), gpu(1))
    assert "CUDA_DEVICE_ORDER" in visible(mixed, "0").note
    assert visible(mixed, "0", "PCI_BUS_ID").note == ""
    assert visible(mixed, "GPU-b1000001").note == ""
    assert visible(ALIKE, "0").note == ""


def test_numbers_count_by_pci_not_by_the_drivers_order() -> None:
    assert [g.number for g in visible(tuple(reversed(ALIKE)), "0").gpus] == [0]


def test_both_forms_of_mig_names() -> None:
    parent = ALIKE[0]
    part = GpuSample(0, "MIG-11111111-0000-5000-8000-000000000001", parent.pci, "slice", "mig", parent.uuid, 1, 0)
    devices = (parent._replace(mig=True), part)
    assert visible(devices, "MIG-11111111").gpus == (part,)
    assert visible(devices, f"MIG-{parent.uuid}/1/0").gpus == (part,)
    assert visible(devices, f"MIG-{parent.uuid}/2/0").gpus == ()
