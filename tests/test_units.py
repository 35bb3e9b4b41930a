"""Numbers as they are shown: bands that enclose their value, and words that agree with a count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.units import counted, round_band, round_to_band

SIZES = st.integers(0, 10**9)


@pytest.mark.parametrize(
    ("band", "shown"),
    [
        ((452_004, 429_812, 457_960), (452_000, 430_000, 458_000)),
        ((205_648, 180_123, 213_104), (206_000, 180_000, 213_000)),
        ((204_900, 170_000, 204_999), (204_900, 170_000, 205_000)),
        ((6_320, 0, 9_420), (6_300, 0, 9_400)),
        ((163_840, 163_840, 163_840), (163_840, 163_840, 163_840)),
        ((163_840, 100_000, 163_840), (160_000, 100_000, 160_000)),
    ],
)
def test_ends_of_a_band_keep_the_digits_that_tell_them_from_the_value(
    band: tuple[int, int, int], shown: tuple[int, int, int]
) -> None:
    assert round_band(*band) == shown


@given(SIZES, SIZES, SIZES)
def test_a_band_as_shown_encloses_its_value_as_shown(value: int, below: int, above: int) -> None:
    low, high = max(value - below, 0), value + above
    near, least, most = round_band(value, low, high)
    assert least <= near <= most
    assert near == round_to_band(value, low, high)


def test_words_agree_with_their_number() -> None:
    assert [counted(n, "GPU is", "GPUs are") for n in (0, 1, 2, 1_000)] == [
        "0 GPUs are",
        "1 GPU is",
        "2 GPUs are",
        "1,000 GPUs are",
    ]
