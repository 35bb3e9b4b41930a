"""Names of GPUs as people write them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvplanner.catalog import gpus
from kvplanner.errors import BadInput, PlannerError, UnknownName
from kvplanner.gpu.match import find, label
from kvplanner.units import GB, GIB, MIB


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H100", "NVIDIA H100 80GB HBM3"),
        ("h100 sxm", "NVIDIA H100 80GB HBM3"),
        ("RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("A100 80GB SXM", "NVIDIA A100-SXM4-80GB"),
        ("L40S", "NVIDIA L40S"),
        ("T4", "Tesla T4"),
        ("B200", "NVIDIA B200"),
        ("H200", "NVIDIA H200"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert find(text, gpus.index()).name == name


def test_an_unmodified_board_comes_first() -> None:
    entry = find("RTX 4090", gpus.index())
    assert not entry.modified
    assert gpus.gpu(entry.id).total.value == 24564 * MIB  # type: ignore[union-attr]  # there is one, else the test ends here


def test_ambiguous_and_unknown_names_list_near_ones() -> None:
    with pytest.raises(UnknownName, match="fits 4 GPUs") as ambiguous:
        gpus.machine("A100")
    assert ambiguous.value.near == ("A100 80GB", "A100 40GB")
    with pytest.raises(UnknownName, match="no GPU is called 'RTX 4190'") as unknown:
        gpus.machine("RTX 4190")
    assert unknown.value.near


def test_counts_mixes_and_sizes() -> None:
    assert len(gpus.machine("2xRTX 4090").devices) == 2
    assert len(gpus.machine("8 × H100").devices) == 8
    mixed = gpus.machine("1xRTX 4090,1xRTX 3090")
    assert mixed.describe() == "NVIDIA GeForce RTX 4090 + NVIDIA GeForce RTX 3090"
    assert [d.index for d in mixed.devices] == [0, 1]
    assert [d.index for d in gpus.machine("2xH100,3xL40S").devices] == [0, 1, 2, 3, 4]
    custom = gpus.machine("80GB").devices[0].gpu
    assert custom.total is not None
    assert custom.cuda_total is not None
    assert custom.total.value == custom.cuda_total.value == 80 * GB
    assert gpus.machine("4x79.2GiB").devices[3].gpu.total.value == round(79.2 * GIB)  # type: ignore[union-attr]  # there is one, else the test ends here


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("H100 x2", "2xH100"),
        ("H100x2", "2xH100"),
        ("RTX 4090 × 2,L40S x 3", "2xRTX 4090,3xL40S"),
        ("rtx4090x2", "2xRTX 4090"),
        ("24GiB x2", "2x24GiB"),
        ("2 × NVIDIA H200 + NVIDIA GeForce RTX 4090", "2xH200,RTX 4090"),
        ("AMD Ryzen AI Max+ 395", "1xRyzen AI Max+ 395"),
    ],
)
def test_counts_may_stand_behind_and_machines_read_as_they_are_described(text: str, same: str) -> None:
    assert gpus.machine(text) == gpus.machine(same)


def test_every_gpu_is_found_by_its_own_name_and_a_machine_by_its_description() -> None:
    for entry in gpus.index():
        machine = gpus.machine(f"2x{label(entry, gpus.index())}")
        assert {d.gpu.name for d in machine.devices} == {entry.name}
        assert len(machine.devices) == 2


@pytest.mark.parametrize("text", ["0xH100", "65xH100", "1KB", "9999TB", "", ",", "2x"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        gpus.machine(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("H100,", "'H100,' has a comma without a GPU beside it. Write for example H100"),
        (",", "no GPU is named. Write for example H100"),
        ("TPU", "no GPU is called 'TPU'. kvplanner gpus lists all; any other by its memory"),
        ("''", "\"''\" names no GPU. kvplanner gpus lists all"),
        ("65xH100", "65 GPUs of H100 cannot be planned. Give 1 to 64 in all"),
        ("A100", "Near: A100 80GB, A100 40GB. Say which memory"),
        ("80G", "'80G' could be GB or GiB. Write 80GB or 80GiB"),
        ("2x80 G", "Write 80GB or 80GiB"),
    ],
)
def test_what_is_refused_is_told_with_what_to_do(text: str, told: str) -> None:
    with pytest.raises(BadInput) as refused:
        gpus.machine(text)
    assert told in str(refused.value)


PARTS = ("H100", "4090", "A30", "2080 Ti", "x", "2", "+", ",", "MIG", "1g.", "5gb", "gb", "GiB", "MiB", " ", " ",
         "-16Q", "0.", "9" * 30, "٣", " on windows", "-")  # fmt: skip


@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PARTS), max_size=8).map("".join)))
@example("H100 " + "9" * 30 + "gb")
@example("2xH100 0." + "0" * 5000 + "MiB")
def test_any_text_gives_a_machine_or_a_clear_error(text: str) -> None:
    try:
        machine = gpus.machine(text)
    except PlannerError as error:
        assert error.what
    else:
        assert machine.devices


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2x3090 + 4090", "2xrtx-3090,1xrtx-4090"),
        ("2x3090+4090", "2xrtx-3090,1xrtx-4090"),
        ("4090x2", "2xrtx-4090"),
        ("4090 x 2", "2xrtx-4090"),
        ("two 3090s", "2xrtx-3090"),
        ("8h100", "8xh100-sxm5-80gb"),
        ("2 3090", "2xrtx-3090"),
        ("2080 Ti 22GB", "1xrtx-2080-ti 22GiB"),
        ("2x3080 20GB", "2xrtx-3080-10gb 20GiB"),
        ("A100-SXM4-40GB 3g.20gb", "1xa100-sxm4-40gb 3g.20gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "1xh100-sxm5-80gb 1g.10gb"),
    ],
)
def test_machines_as_people_write_them_read_back(text: str, words: str) -> None:
    machine = gpus.machine(text)
    assert gpus.machine_words(machine) == words
    assert gpus.machine(words).devices == machine.devices


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("A100 80GB", ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe")),
        ("H100 80GB", ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe")),
        ("3080", ("NVIDIA GeForce RTX 3080 10GB", "NVIDIA GeForce RTX 3080 12GB")),
        ("4060 Ti", ("NVIDIA GeForce RTX 4060 Ti 8GB", "NVIDIA GeForce RTX 4060 Ti 16GB")),
        ("RTX 6000", ("NVIDIA RTX 6000 Ada Generation", "Quadro RTX 6000")),
        ("A100 1g.5gb", ("NVIDIA A100-SXM4-40GB 1g.5gb", "NVIDIA A100-PCIE-40GB 1g.5gb")),
    ],
)
def test_what_fits_two_asks_with_both(text: str, near: tuple[str, ...]) -> None:
    with pytest.raises(UnknownName, match="fits 2 GPUs") as caught:
        gpus.machine(text)
    assert caught.value.near == near
    assert all(gpus.machine(name) for name in near)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A100 80GB", "1xa100-sxm4-80gb"),
        ("4xA100 80GB", "4xa100-sxm4-80gb"),
        ("A100 40GB x2, H100", "2xa100-sxm4-40gb,1xh100-sxm5-80gb"),
        ("H100 80GB", "1xh100-sxm5-80gb"),
    ],
)
def test_a_plan_takes_one_of_boards_with_the_same_memory_and_says_which(text: str, words: str) -> None:
    machine = gpus.machine(text, choose=True)
    assert gpus.machine_words(machine) == words
    (said,) = machine.assumed
    assert f"planned for {machine.devices[0].gpu.name}" in said
    assert gpus.machine(words, choose=True).assumed == ()


@pytest.mark.parametrize("text", ["A100", "3080", "4060 Ti", "RTX 6000", "A100 1g.5gb"])
def test_boards_of_other_memories_are_still_asked_for(text: str) -> None:
    with pytest.raises(UnknownName, match="fits"):
        gpus.machine(text, choose=True)


@pytest.mark.parametrize(
    ("text", "printed_gib"),
    [
        # As `nvidia-smi mig -lgip` prints them in NVIDIA's MIG user guide.
        ("A100-SXM4-40GB 1g.5gb", 4.75), ("A100-SXM4-40GB 2g.10gb", 9.75), ("A100-SXM4-40GB 3g.20gb", 19.62),
        ("H100 80GB HBM3 1g.10gb", 9.75), ("H100 80GB HBM3 3g.40gb", 39.50),
    ],
)  # fmt: skip
def test_a_slice_has_the_memory_that_the_driver_prints(text: str, printed_gib: float) -> None:
    total = gpus.machine(text).devices[0].gpu.total
    assert total is not None
    assert total.low <= printed_gib * 2**30 <= total.high


@pytest.mark.parametrize("text", ["H100 3g.20gb", "RTX 4090 1g.3gb", "A100 80GB 5g.50gb"])
def test_no_slice_that_a_gpu_does_not_have(text: str) -> None:
    with pytest.raises(UnknownName):
        gpus.machine(text)


@pytest.mark.parametrize(
    ("text", "words", "total", "cuda"),
    [
        ("RTX 5090 WSL2", "1xrtx-5090 windows", 31.84, 31.84),
        ("2xRTX 3060 Ti (Windows)", "2xrtx-3060-ti windows", 8, 8),
        ("RTX 5090 on Windows 11", "1xrtx-5090 windows", 31.84, 31.84), ("A40-48Q", "1xa40 48Q", 48, 47.74),
        ("NVIDIA RTX A6000-24Q", "1xrtx-a6000 24Q", 24, 23.87),
    ],
)  # fmt: skip
def test_windows_and_virtual_gpus_have_the_memory_that_starts_print(
    text: str, words: str, total: float, cuda: float
) -> None:
    """A 5090 prints 31.84 GiB under WSL2, an A40-48Q 47.74 GiB in a guest (vllm-project/vllm#11230)."""
    machine = gpus.machine(text)
    spec = machine.devices[0].gpu
    assert spec.total is not None
    assert spec.cuda_total is not None
    assert spec.total.value / GIB == pytest.approx(total, abs=0.01)
    assert spec.cuda_total.value / GIB == pytest.approx(cuda, abs=0.01)
    assert gpus.machine_words(machine) == words
    assert gpus.machine(words).devices[0].gpu == spec
