"""The lines of interest are found as a search for all anchors together finds them, and fast."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.diagnose import lines, reading, worn
from kvplanner.diagnose.diagnosis import diagnose, grammars
from kvplanner.diagnose.lines import Anchors
from kvplanner.diagnose.patterns import alternatives, words_of
from kvplanner.diagnose.reading import read_log
from kvplanner.engine.log import LogFailure, LogLine
from kvplanner.units import GIB
from tests.diagnose import writer
from tests.diagnose.writer import Facts
from tests.patience import processor_seconds

LOG = Path(__file__).parent / "logs" / "vllm" / "066-v0-ok.log"


@given(
    st.lists(st.text("ab1", min_size=1, max_size=3), min_size=1, max_size=4, unique=True),
    st.text("abc12\n", max_size=60),
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
    with processor_seconds(1):
        found = diagnose(whole.read)
    assert found.tokens == 44_880


def test_many_starts_of_one_file_read_as_when_each_is_looked_at() -> None:
    grammar = next(g for g in grammars() if g.engine == "vllm")
    random = Random(7)
    for _ in range(12):
        starts: list[str] = []
        for _ in range(random.randint(2, 7)):
            facts = Facts(
                version=random.choice(("0.6.6", "0.10.1", "0.24.0", "0.33.0")),
                fails=random.choice(("", "weights", "profile", "kv_cache_sizing", "graph_capture", "runtime")),
                weights=(random.randint(1, 90) / 4,),
            )
            starts += writer.vllm(facts)
        data = ("\n".join(starts) + "\n").encode()
        one, all_ = (read_log(BytesIO(data).read, g) for g in (grammar, grammar._replace(restarts=())))
        assert (one.starts, one.ended, one.stated, one.arguments) == (
            all_.starts, all_.ended, all_.stated, all_.arguments)  # fmt: skip


def test_a_server_that_starts_again_and_again_is_read_in_the_time_of_its_last_starts() -> None:
    one = ("\n".join(writer.vllm(Facts(fails="graph_capture"))) + "\n").encode()
    with processor_seconds(1.5):
        found = diagnose(BytesIO(one * (20_000_000 // len(one))).read)
    assert (found.stage, found.reading.starts) == ("graph_capture", 20_000_000 // len(one))


def test_a_line_of_many_megabytes_before_the_first_hides_nothing() -> None:
    before = b"x" * (20 << 20)
    found = diagnose(BytesIO(before + b"\n" + LOG.read_bytes()).read)
    whole = diagnose(BytesIO(LOG.read_bytes()).read)
    assert (found.tokens, found.version) == (44_880, whole.version)
    assert [s.line for s in found.reading.stated] == [s.line + 1 for s in whole.reading.stated]


@given(st.sampled_from([(g.engine, one) for g in grammars() for one in (*g.lines, *g.failures)]), st.data())
def test_what_matches_a_pattern_holds_its_words(known: tuple[str, LogLine | LogFailure], data: st.DataObject) -> None:
    every = alternatives(known[1].pattern)
    assert "|".join(every) == known[1].pattern
    for pattern in every:
        assert words_of(pattern) in data.draw(st.from_regex(pattern))


OUT: bytes = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB\n"
)


def test_an_error_printed_without_end_costs_little() -> None:
    """A worker that fails in a loop: a million times the same line, of which a few thousand are looked at."""
    whole = BytesIO(LOG.read_bytes() + OUT * (60_000_000 // len(OUT)))
    with processor_seconds(1.5):
        found = diagnose(whole.read)
    assert found.reading == diagnose(BytesIO(LOG.read_bytes() + OUT).read).reading


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_lines_printed_over_and_over_read_as_when_each_is_looked_at(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = next(g for g in grammars() if g.engine == engine)
    random = Random(11)
    logs = sorted((LOG.parents[1] / engine).glob("*.log"))
    for log in random.sample(logs, min(4, len(logs))):
        rows = log.read_bytes().splitlines(keepends=True)
        for row in sorted({random.randrange(len(rows)) for _ in range(3)}, reverse=True):
            rows[row] *= 200
        rows.insert(random.randrange(len(rows)), OUT * 200)
        data = b"".join(rows)
        # As many as no start has ranks: here thirty, so that lines of devices that are told apart by their number stay.
        monkeypatch.setattr(lines, "_MOST_ALIKE", 30)
        short = read_log(BytesIO(data).read, grammar)
        monkeypatch.setattr(lines, "_MOST_ALIKE", 1 << 40)
        assert short == read_log(BytesIO(data).read, grammar), log.name


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_lines_printed_over_and_over_with_other_numbers_read_as_when_each_is_looked_at(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = next(g for g in grammars() if g.engine == engine)
    random = Random(5)
    logs = sorted((LOG.parents[1] / engine).glob("*.log"))
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1 << 14)
    for log in random.sample(logs, min(6, len(logs))):
        rows = log.read_bytes().splitlines(keepends=True)
        for row in sorted({random.randrange(len(rows)) for _ in range(3)}, reverse=True):
            rows[row : row + 1] = [b"%d %d " % (i, random.randrange(10**9)) + rows[row] for i in range(300)]
        data = b"".join(rows)
        monkeypatch.setattr(worn, "_MOST_OF_A_KIND", 100)
        short = read_log(BytesIO(data).read, grammar)
        monkeypatch.setattr(worn, "_MOST_OF_A_KIND", 1 << 40)
        # Which of them are unread depends on the lines around, of which there are fewer.
        assert short == read_log(BytesIO(data).read, grammar)._replace(unread=short.unread), log.name


FAILS: bytes = b"ERROR 01-14 08:%02d:%02d [core.py:%d] Request cmpl-%016x failed: " + OUT
MANY: dict[str, tuple[bytes, ...]] = {
    "one line": (FAILS,),
    "a traceback": (
        FAILS,
        b"ERROR 01-14 08:%02d:%02d [core.py:%d] Request %x: RuntimeError: CUDA error: out of memory\r\n",
        b"ERROR 01-14 08:%02d:%02d [core.py:%d] Request %x: Traceback (most recent call last):\r\n",
    ),
    "a figure": (b"INFO 01-14 08:%02d:%02d [model_runner.py:%d] Model loading took %d.5 GiB\n",),
}


@pytest.mark.parametrize("name", MANY)
def test_of_lines_that_differ_in_numbers_alone_few_are_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that fails at every request, a time and an id in each line: the first few thousand, and the last."""
    texts = MANY[name]
    last = b"INFO 01-14 09:00:00 [model_runner.py:1] Model loading took 7.25 GiB\n"
    numbered = [texts[i % len(texts)] % (i // 60 % 60, i % 60, i, i * 7919 % 90) for i in range(100_000)]
    data = LOG.read_bytes() + b"".join(numbered) + last
    taken: list[int] = []
    monkeypatch.setattr(worn, "_MOST_OF_A_KIND", 1000)
    take = reading._Reader.take

    def counted(self: reading._Reader, line: lines.Line) -> None:
        taken.append(line.number)
        take(self, line)

    monkeypatch.setattr(reading._Reader, "take", counted)
    found = diagnose(BytesIO(data).read)
    assert len(taken) < 20_000  # the rest of the block in which the thousandth stands is looked at, too
    weights = found.reading.best("weights")
    assert weights is not None
    assert weights.value == 7.25 * GIB
    assert weights.line == data.count(b"\n")


def test_a_server_that_starts_anew_after_endless_errors_is_read_from_there_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines are those of the start before with other numbers, in a block of which the rest is thinned out."""
    one = LOG.read_bytes()
    again = re.sub(rb"(?m)^(?=[^\n])", b"7 ", one)
    ranks = b"".join(
        b"(Worker_TP%d pid=%d) INFO Model loading took %d.5 GiB\n" % (i % 4, i % 4, 3) for i in range(9000)
    )
    monkeypatch.setattr(worn, "_MOST_OF_A_KIND", 1000)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1 << 18)
    found = diagnose(BytesIO(one + ranks + again + ranks[: ranks.index(b"\n") * 8]).read)
    alone = diagnose(BytesIO(one + ranks[: ranks.index(b"\n") * 8]).read)
    assert found.reading.starts == 2
    assert [s[:3] for s in found.reading.stated] == [s[:3] for s in alone.reading.stated]
