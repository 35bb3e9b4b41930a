"""The lines of interest are found as a search for all anchors together finds them, and fast."""

from __future__ import annotations

import re
import time
from io import BytesIO
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kvplanner.diagnose.diagnosis import diagnose
from kvplanner.diagnose.lines import Anchors

LOG = Path(__file__).parent / "logs" / "vllm" / "066-v0-ok.log"


@given(
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=4, unique=True),
    st.text("abc", max_size=60),
    st.lists(st.integers(0, 9), max_size=30),
)
def test_places_are_those_of_all_texts_together(texts: list[str], data: str, steps: list[int]) -> None:
    raw, wanted = data.encode(), re.compile(b"|".join(re.escape(text.encode()) for text in texts))
    places, position = Anchors(tuple(text.encode() for text in texts)).places(raw, len(raw)), 0
    for step in (0, *steps):
        position += step
        found = wanted.search(raw, position)
        assert places.after(position) == (found.start() if found else -1)


def test_lines_of_a_running_server_cost_next_to_nothing() -> None:
    served = b"INFO 01-14 08:12:00 metrics.py:455] Avg prompt throughput: 12.3 tokens/s, Running: 3 reqs\n"
    whole = BytesIO(LOG.read_bytes() + served * (20_000_000 // len(served)))
    began = time.process_time()
    found = diagnose(whole.read)
    assert found.tokens == 44_880
    assert time.process_time() - began < 1
