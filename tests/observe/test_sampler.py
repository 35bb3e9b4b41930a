"""The helper process: it samples, is paused, dies, hangs, comes back and ends, and the owner never waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe

import psutil  # noqa: TID253 - what is tested rests on it
import pytest

from kvplanner.observe.helper import HelperSettings
from kvplanner.observe.sampler import SKIP_S, Sampler
from kvplanner.observe.snapshot import Snapshot
from kvplanner.units import MIB
from tests.observe.kit import Stub, scenario_text
from tests.patience import LONG_S, processor_seconds, wait_for

pytestmark = pytest.mark.slow
HANGS_S = 60  # far longer than whatever does not wait for it takes on a slow machine


@pytest.fixture
def sampler() -> Iterator[Sampler]:
    made = Sampler(HelperSettings(interval=0.1), call_limit=3.0)
    yield made
    made.stop()


def wait(
    sampler: Sampler, until: Callable[[list[Snapshot]], bool], between: Callable[[float], None] = time.sleep
) -> list[Snapshot]:
    """Polls as a window would."""
    found: list[Snapshot] = []
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        found += sampler.poll()
        if until(found):
            return found
        between(0.02)
    pytest.fail(f"not seen: {[(s.state, s.message) for s in found][-3:]}, {sampler.status}")


def children() -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


def test_snapshots_come_in_order_and_carry_processes(stub: Stub, sampler: Sampler) -> None:
    stub.use("desktop-4090")
    sampler.start()
    found = wait(sampler, lambda seen: len(seen) >= 5)
    assert [s.seq for s in found[:5]] == [1, 2, 3, 4, 5]
    assert found[0].driver == "580.95.05"
    assert found[0].gpus[0].processes is not None
    assert len(found[0].gpus[0].processes) == 4
    assert found[4].gpus[0].processes == found[0].gpus[0].processes
    assert sampler.status.state == "running"


def test_memory_moved_in_the_scenario_is_seen(stub: Stub, sampler: Sampler) -> None:
    stub.use("desktop-4090")
    sampler.start()
    wait(sampler, lambda seen: bool(seen))
    for used in (2206, 8206, 20206):
        stub.use(scenario_text("desktop-4090").replace("used_mib = 1206", f"used_mib = {used}"))
        wait(sampler, lambda seen, used=used: bool(seen) and seen[-1].gpus[0].allocated.value == used * MIB)  # type: ignore[misc]  # keeps its loop's value


def test_one_helper_and_nothing_else(stub: Stub, sampler: Sampler) -> None:
    stub.use("desktop-4090")
    before = {p.pid for p in children()}
    sampler.start()
    sampler.start()
    wait(sampler, lambda seen: bool(seen))
    assert [p.pid for p in children() if p.pid not in before] == [sampler.helper_pid]
    sampler.stop()
    assert {p.pid for p in children()} == before
    assert sampler.status.state == "off"


def rounds(stub: Stub) -> list[str]:
    """One call for each time that the only card's memory was asked for."""
    return [call for call in stub.calls() if "MemoryInfo" in call]


def test_hidden_means_no_calls_and_later_no_driver(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.use("desktop-4090")
    sampler = Sampler(HelperSettings(interval=0.1, close_after=1.0))
    sampler.start()
    try:
        wait(sampler, lambda seen: len(seen) >= 2)
        sampler.pause()
        before = len(rounds(stub))
        wait_for(lambda: "nvmlShutdown" in stub.calls())
        assert len(rounds(stub)) - before <= 1, "one may be under way; what it obeys comes before the next"
        assert stub.calls()[-1] == "nvmlShutdown"
        sampler.poll()
        assert sampler.poll() == ()
        sampler.start()
        assert wait(sampler, lambda seen: bool(seen))[-1].state == "ok"
    finally:
        sampler.stop()


def test_a_killed_helper_is_explained_and_replaced(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplanner.observe.sampler.RETRY_S", (0.3, 0.6, 1.0))
    monkeypatch.setattr("kvplanner.observe.sampler._END_LIMIT_S", LONG_S)  # the system may write it to disk
    stub.use("desktop-4090")
    sampler = Sampler(HelperSettings(interval=0.1))
    sampler.start()
    try:
        seen = wait(sampler, lambda seen: bool(seen))
        first = sampler.helper_pid
        assert first is not None
        os.kill(first, signal.SIGSEGV)
        wait(sampler, lambda _: sampler.status.state == "waiting")
        assert "SIGSEGV" in sampler.status.message
        assert sampler.status.retry_in <= 0.3
        more = wait(sampler, lambda found: bool(found))
        assert sampler.helper_pid != first
        assert more[0].seq > seen[-1].seq
        assert sampler.status.message == ""
    finally:
        sampler.stop()


class _Leaving:
    """A helper that has closed its pipe and is still written to disk by the system: it has no exit status yet."""

    def __init__(self) -> None:
        self.exitcode: int | None = None
        self.pid = 0

    def is_alive(self) -> bool:
        return self.exitcode is None

    def kill(self) -> None:
        self.exitcode = -signal.SIGKILL

    def join(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("code", "words"), [(-signal.SIGSEGV, "SIGSEGV"), (None, "closed its end of the pipe")])
def test_how_a_helper_ended_is_waited_for(monkeypatch: pytest.MonkeyPatch, code: int | None, words: str) -> None:
    helper, now = _Leaving(), [100.0]

    def started(settings: HelperSettings) -> tuple[object, object]:
        ours, theirs = Pipe()
        theirs.close()
        return helper, ours

    monkeypatch.setattr("kvplanner.observe.sampler.start_helper", started)
    sampler = Sampler(HelperSettings(interval=0.1), clock=lambda: now[0])
    sampler.start()
    assert sampler.poll() == ()
    leaving = sampler.status
    assert leaving.state == "starting"
    helper.exitcode = code
    now[0] += 2.0
    sampler.poll()
    gone = sampler.status
    assert gone.state == "waiting"
    assert words in gone.message
    sampler.stop()


def test_deaths_in_a_row_are_answered_more_and_more_slowly(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplanner.observe.sampler.RETRY_S", (0.1, 0.2, 0.4))
    stub.use("desktop-4090")
    now = [100.0]  # which stands still between two polls
    sampler = Sampler(HelperSettings(interval=0.1), clock=lambda: now[0])
    sampler.start()
    delays = []

    def later(seconds: float) -> None:
        time.sleep(seconds)
        now[0] += seconds

    try:
        for _ in range(4):
            wait(sampler, lambda found: bool(found), later)
            os.kill(sampler.helper_pid or 0, signal.SIGKILL)
            wait(sampler, lambda _: sampler.status.state == "waiting", later)
            delays.append(round(sampler.status.retry_in, 1))
    finally:
        sampler.stop()
    assert delays == [0.1, 0.2, 0.4, 0.4]


@pytest.fixture
def patient() -> Iterator[Sampler]:
    """One that hears early of a call that hangs, and gives it up once it is made to: however seldom it is polled."""
    made = Sampler(HelperSettings(interval=0.1, stall_after=0.4), call_limit=LONG_S)
    yield made
    made.stop()


def give_up(sampler: Sampler) -> None:
    """Have it end its helper at the next word of the call that hangs."""
    sampler._limit = 0.5
    wait(sampler, lambda _: sampler.status.state == "waiting")
    sampler._limit = LONG_S


def test_a_call_that_hangs_is_named_ended_and_that_gpu_left_alone(stub: Stub, patient: Sampler) -> None:
    sampler = patient
    two = scenario_text("gpu-lost").replace("lost_after = 14", "latency.nvmlDeviceGetMemoryInfo_v2 = 60000")
    stub.use(scenario_text("gpu-lost").replace("lost_after = 14", ""))
    sampler.start()
    wait(sampler, lambda seen: bool(seen))
    hung = sampler.helper_pid
    stub.use(two)
    wait(sampler, lambda _: sampler.status.state == "stalled")
    assert "GPU 1 (0000:1e:00.0) has not answered" in sampler.status.message
    give_up(sampler)
    assert "left alone" in sampler.status.message
    found = wait(sampler, lambda seen: bool(seen))
    assert [g.status for g in found[-1].gpus] == ["ok", "stalled"]
    assert sampler.helper_pid != hung
    wait_for(lambda: not psutil.pid_exists(hung or 0))


def test_a_gpu_that_was_left_alone_is_tried_again(stub: Stub, patient: Sampler) -> None:
    whole = scenario_text("gpu-lost").replace("lost_after = 14", "")
    stub.use(whole)
    sampler = patient
    sampler.start()
    wait(sampler, lambda seen: bool(seen))
    stub.use(whole + "latency.nvmlDeviceGetMemoryInfo_v2 = 60000\n")
    wait(sampler, lambda _: sampler.status.state == "stalled")
    give_up(sampler)
    stub.use(whole)
    wait(sampler, lambda seen: any(g.status == "stalled" for s in seen for g in s.gpus))
    assert 0 < min(sampler._skip.values()) - time.monotonic() <= SKIP_S
    sampler._skip = dict.fromkeys(sampler._skip, 0.0)  # as when the time is over
    found = wait(sampler, lambda seen: bool(seen) and all(g.status == "ok" for g in seen[-1].gpus))
    assert len(found[-1].gpus) == 2


def test_nothing_waits_for_a_call_that_hangs(stub: Stub) -> None:
    stub.use(scenario_text("desktop-4090") + f"latency.nvmlDeviceGetMemoryInfo_v2 = {HANGS_S * 1000}\n")
    sampler = Sampler(HelperSettings(interval=0.1, stall_after=0.5))
    sampler.start()
    longest: list[float] = []
    try:
        while len(longest) < 60 or sampler.status.state not in ("stalled", "waiting"):
            assert len(longest) < LONG_S / 0.02, "the call that hangs is never told"
            started = time.monotonic()
            with processor_seconds(0.016):
                sampler.poll()
            longest.append(time.monotonic() - started)
            time.sleep(0.02)
        started = time.monotonic()
    finally:
        sampler.stop()
    assert max(longest) < HANGS_S / 4
    assert time.monotonic() - started < HANGS_S / 2


def test_refusals_are_repeated_slowly(stub: Stub, sampler: Sampler) -> None:
    stub.use("version-mismatch")
    sampler.start()
    (first,) = wait(sampler, lambda seen: bool(seen))
    assert first.state == "version_mismatch"
    assert 0 < first.interval <= 5.0  # what is left of them
    time.sleep(1.0)
    tried = stub.calls().count("nvmlInitWithFlags")
    assert (tried - 1) * 5.0 <= time.monotonic() - first.monotonic, "it tries again in five seconds"
    stub.use("desktop-4090")
    sampler.reconnect()
    assert wait(sampler, lambda seen: bool(seen))[-1].state == "ok"


def test_all_lost_greys_what_was_there_and_reconnects(stub: Stub, sampler: Sampler) -> None:
    stub.use("desktop-4090")
    sampler.start()
    wait(sampler, lambda seen: bool(seen))
    stub.use(scenario_text("desktop-4090").replace("[gpu 0]", "[gpu 0]\nlost = 1"))
    lost = wait(sampler, lambda seen: any(s.state == "lost" for s in seen))[-1]
    assert lost.gpus[0].status == "lost"
    assert lost.gpus[0].total.value == 24564 * MIB
    assert "recreate it" in lost.remedy
    stub.use("desktop-4090")
    sampler.reconnect()
    assert wait(sampler, lambda seen: any(s.state == "ok" for s in seen))


def test_the_cadence_can_be_changed(stub: Stub) -> None:
    stub.use("desktop-4090")
    sampler = Sampler(HelperSettings(interval=30.0))
    sampler.start()
    try:
        wait(sampler, lambda seen: len(seen) == 1)
        sampler.set_interval(0.1)
        found = wait(sampler, lambda seen: len(seen) >= 5)
        assert found[-1].interval == 0.1
    finally:
        sampler.stop()


OWNER = """
import sys, time
from kvplanner.observe.helper import HelperSettings
from kvplanner.observe.sampler import Sampler
sampler = Sampler(HelperSettings(interval=0.1))
sampler.start()
while not sampler.poll():
    time.sleep(0.01)
print(sampler.helper_pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("hang", [False, True])
def test_the_helper_ends_with_its_owner_even_when_that_is_killed(stub: Stub, hang: bool) -> None:
    stub.use("desktop-4090")
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    helper = psutil.Process(int(owner.stdout.readline()))
    if hang:
        stub.use(scenario_text("desktop-4090") + "latency.nvmlDeviceGetMemoryInfo_v2 = 60000\n")
        time.sleep(0.6)  # within it by then
    owner.kill()
    owner.wait(LONG_S)
    owner.stdout.close()
    _, alive = psutil.wait_procs([helper], timeout=LONG_S / 8)
    assert not alive
