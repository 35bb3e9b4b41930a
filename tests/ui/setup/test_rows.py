"""What the choosers list, and how numbers are read and shown."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from kvplanner.app.library import LocalModel
from kvplanner.catalog import gpus, models
from kvplanner.engine.option import Option
from kvplanner.engine.registry import engine
from kvplanner.errors import BadInput
from kvplanner.ui.setup import gpu_rows, model_rows, numbers
from kvplanner.ui.setup.option_field import SliderField, field_for, stepped
from kvplanner.ui.setup.slider import STEPS, Scale
from tests.patience import slowness

TOKENS = Option("max_model_len", ("--max-model-len",), "tokens", "", "", low=-1)
SHARE = Option(
    "gpu_memory_utilization", ("--gpu-memory-utilization",), "float", "", "", low=0.0, high=1.0, above_low=True
)
SIZE = Option("kv_cache_memory_bytes", ("--kv-cache-memory-bytes",), "bytes", "", "")


@pytest.mark.parametrize(
    ("text", "count", "words"),
    [
        ("2", 2, ""),
        ("16", 16, ""),
        ("24", None, "24"),
        ("4090", None, "4090"),
        ("2x4090", 2, "4090"),
        ("2 x 4090", 2, "4090"),
        ("8 h100", 8, "h100"),
        ("4×79.2GiB", 4, "79.2GiB"),
        ("48GB", None, "48GB"),
        ("48 gib", None, "48 gib"),
        ("h100 nvl", None, "h100 nvl"),
        ("", None, ""),
        ("0x4090", None, "0x4090"),
    ],
)
def test_a_gpu_search_is_a_count_a_name_or_both(text: str, count: int | None, words: str) -> None:
    assert gpu_rows.parse_query(text) == gpu_rows.Query(count, words)


@given(st.text(max_size=30))
def test_any_text_can_be_typed_for_a_gpu(text: str) -> None:
    for row in gpu_rows.search(text, gpu_rows.Stock(gpus.index(), ("2xh100-sxm5-80gb",), "1xl4", "GiB")):
        assert row.title
        if row.kind == "item":
            assert isinstance(row.data, str)


@pytest.mark.parametrize(
    ("text", "first"), [("4090", "1xrtx-4090"), ("8 h100", "8xh100-sxm5-80gb"), ("2", "2xrtx-4090")]
)
def test_the_plain_card_comes_first(text: str, first: str) -> None:
    rows = [row for row in gpu_rows.search(text, gpu_rows.Stock(gpus.index(), (), "", "GiB")) if row.kind == "item"]
    assert rows[0].data == first


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        (
            "A100",
            ["With 80 GB:", "A100-SXM4-80GB", "A100 80GB PCIe", "With 40 GB:", "A100-SXM4-40GB", "A100-PCIE-40GB"],
        ),
        ("A100 80GB", ["A100-SXM4-80GB", "A100 80GB PCIe"]),
        ("4060 Ti", ["RTX 4060 Ti 16GB", "RTX 4060 Ti 8GB"]),
        ("3080", ["Several boards have this name:", "RTX 3080 10GB", "RTX 3080 12GB", "Others:", "RTX 3080 Ti"]),
        ("RTX 6000", ["Several boards have this name:", "RTX 6000 Ada Generation", "Quadro RTX 6000", "Others:"]),
        ("4090", ["RTX 4090 24GB", "RTX 4090 48GB", "RTX 4090 D", "RTX 4090 Laptop GPU"]),
    ],
)
def test_boards_of_one_name_are_set_apart(text: str, listed: list[str]) -> None:
    rows = gpu_rows.search(text, gpu_rows.Stock(gpus.index(), (), "", "GiB"))
    assert [f"{row.title}:" if row.kind == "heading" else row.title for row in rows][: len(listed)] == listed


def test_what_a_row_gives_names_a_machine() -> None:
    for text in ("2", "48GB", "3 x 1.5GiB", "mi300"):
        for row in gpu_rows.search(text, gpu_rows.Stock(gpus.index(), (), "", "GiB")):
            if row.kind == "item":
                assert gpus.machine(str(row.data)).devices


def test_local_models_are_found_by_their_words() -> None:
    local = (LocalModel("My-Tune-8B", "/models/my-tune", "folder · llama", 16 * 10**9, "bfloat16"),)
    shelf = model_rows.Shelf(models.index(), (), local, "", "GiB")
    rows = model_rows.search("tune llama", shelf, models.search("tune llama"))
    assert rows[0].title == "On this machine"
    assert rows[1].data == "/models/my-tune"


def test_only_the_hub_row_goes_online_and_says_so() -> None:
    shelf = model_rows.Shelf(models.index(), (), (), "", "GiB")
    rows = model_rows.search("hub:Qwen/Qwen3-8B", shelf, ())
    assert not [row for row in rows if "hub:" in str(row.data)], "the catalogue has it already"
    for text in ("hub:someone/tiny-1b", "someone/tiny-1b", "someone/tiny-1b@v2"):
        rows = model_rows.search(text, shelf, ())
        online = [row for row in rows if isinstance(row.data, str) and row.data.startswith("hub:")]
        assert [row.data for row in online] == ["hub:" + text.removeprefix("hub:")]
        assert "online" in online[0].spoken().lower()
    for text in ("tiny 1b", "/home/x", "a/b/c", "../x", "hub:", "é/x"):
        assert not [row for row in model_rows.search(text, shelf, ()) if "hub:" in str(row.data)], text


def test_a_name_that_says_enough_is_offered_offline() -> None:
    shelf = model_rows.Shelf(models.index(), (), (), "", "GiB")
    name = "nvidia/Qwen3-Coder-480B-A35B-Instruct-NVFP4"
    offered = next(row for row in model_rows.search(name, shelf, ()) if row.data == name)
    assert offered.detail == "by its name: Qwen/Qwen3-Coder-480B-A35B-Instruct in NVFP4"
    for text in ("someone/tiny-1b", "turboderp/Qwen3-8B-exl2"):
        assert not [row for row in model_rows.search(text, shelf, ()) if row.data == text], text


@pytest.mark.slow
def test_typing_stays_below_a_frame() -> None:
    """Every prefix of a long search, CPU time, the slowest of them at its best."""
    local = tuple(LocalModel(f"local-{i}", f"/m/{i}", "folder", 10**9, "Q4_K_M") for i in range(300))
    shelf = model_rows.Shelf(models.index(), (), local, "", "GiB")
    text = "qwen3 coder 30b instruct fp8"
    models.search("q")
    slowest = 0.0
    for end in range(len(text) + 1):
        best = float("inf")
        for _ in range(5):
            start = time.thread_time()
            model_rows.search(text[:end], shelf, models.search(text[:end]))
            best = min(best, time.thread_time() - start)
        slowest = max(slowest, best)
    assert slowest < 0.016 * slowness()


@pytest.mark.parametrize(
    ("text", "whole", "value"),
    [
        ("32,768", True, "32768"),
        ("1,234,567", True, "1234567"),
        ("0.92", False, "0.92"),
        ("32k", True, "32k"),
        ("32.768", True, "32768"),
        ("1.234.567", True, "1234567"),
        ("1.234", False, "1.234"),
        ("0,92", False, "0.92"),
        ("22,5 GiB", False, "22.5 GiB"),
        ("131,072k", True, "131072k"),
        ("32 768", True, "32768"),
        ("32\u202f768", True, "32768"),
        ("1,2,3", False, "1,2,3"),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, whole: bool, value: str) -> None:
    assert numbers.plain(text, whole=whole) == value


@given(st.integers(0, 10**9))
def test_what_is_shown_can_be_typed(value: int) -> None:
    shown = numbers.show(TOKENS, value)
    assert int(numbers.plain(shown)) == value


def test_shares_and_sizes_round_trip() -> None:
    assert numbers.show(SHARE, 0.92) == "0.92"
    assert numbers.read(SHARE, "0,92") == 0.92
    assert numbers.read(SHARE, "92%") == numbers.read(SHARE, "92 %") == 0.92
    assert numbers.read(SHARE, "92,5 %") == 0.925
    with pytest.raises(BadInput, match="'x%' is not a number"):
        numbers.read(SHARE, "x%")
    with pytest.raises(BadInput, match="range"):
        numbers.read(SHARE, "120%")
    assert numbers.read(SIZE, "20GiB") == 20 * 2**30
    assert numbers.show(SIZE, 20 * 2**30) == "20 GiB"
    assert numbers.read(TOKENS, "") is None
    with pytest.raises(BadInput, match="range"):
        numbers.read(TOKENS, "9" * 40)
    assert numbers.show(TOKENS, 10**30).startswith("1,000,000")
    with pytest.raises(BadInput, match="range"):
        numbers.read(SHARE, "7")


@pytest.mark.parametrize("option", engine("vllm").options(), ids=lambda o: o.name)
def test_every_option_of_the_engine_has_an_input(qtbot: object, option: Option) -> None:

    field = field_for(option)
    field.set_value(None, None)
    assert field.title
    assert all(widget.accessibleName() for widget in field.inputs)
    field.deleteLater()


@given(st.floats(1, 1000), st.floats(1.5, 10_000), st.booleans(), st.integers(0, STEPS), st.sampled_from([0.01, 1.0]))
def test_a_scale_stays_in_its_range_and_never_turns_back(
    low: float, factor: float, logarithmic: bool, position: int, step: float
) -> None:
    scale = Scale(low, low * factor, logarithmic, step)
    value = scale.value(position)
    assert low - step <= value <= scale.high
    if position:
        assert value >= scale.value(position - 1)
    assert scale.position(scale.low) == 0
    assert scale.position(scale.high) == STEPS


def test_a_share_steps_to_no_less_than_what_is_allowed(qtbot: QtBot) -> None:
    assert stepped(SHARE, 0.02, -1) == 0.01
    assert stepped(SHARE, 0.01, -1) == 0.01
    field = field_for(SHARE)
    qtbot.addWidget(field)
    assert isinstance(field, SliderField)
    assert field.slider.scale.low == 0.05  # less may be typed
