"""Start-up stages as they are seen from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kvplanner.observe.output import output_file
from kvplanner.observe.stages import StageEnd, StageWatch, rising
from kvplanner.units import GIB

STAGES = (
    StageEnd("context", GIB), StageEnd("load weights", 16 * GIB), StageEnd("profile run", 16 * GIB + 1),
    StageEnd("size the KV cache", 16 * GIB), StageEnd("allocate the KV cache", 22 * GIB),
    StageEnd("capture CUDA graphs", 22 * GIB + GIB // 4),
)  # fmt: skip


def test_only_stages_that_can_be_told_apart_are_looked_for() -> None:
    assert [s.label for s in rising(STAGES)] == ["context", "load weights", "allocate the KV cache"]


def test_each_stage_is_said_once() -> None:
    watch = StageWatch(STAGES)
    assert watch.see(None, "", GIB // 2) == ()
    assert watch.see(7, "vLLM", GIB // 2) == ("vLLM seen",)
    assert watch.see(7, "vLLM", 8 * GIB) == ("context",)
    assert watch.see(7, "vLLM", 15 * GIB + GIB * 3 // 4) == ("load weights",)
    assert watch.see(7, "vLLM", 10 * GIB) == ()
    assert watch.see(7, "vLLM", 16 * GIB) == ()
    assert watch.see(7, "vLLM", 23 * GIB) == ("allocate the KV cache",)
    assert watch.see(None, "", GIB) == ("engine ended",)
    assert watch.see(8, "vLLM", 2 * GIB) == ("vLLM seen",)


def test_an_engine_that_ran_before_shows_no_start_up() -> None:
    watch = StageWatch(STAGES)
    assert watch.see(7, "vLLM", 23 * GIB) == ("vLLM seen",)
    assert watch.see(7, "vLLM", 23 * GIB) == ()


def test_an_engine_that_dies_is_told_by_its_memory() -> None:
    watch = StageWatch(STAGES)
    watch.see(7, "vLLM", GIB // 2)
    watch.see(7, "vLLM", 9 * GIB)
    watch.see(None, "", GIB // 4)
    assert watch.ended is not None
    told = "vLLM (pid 7) ended at the stage “load weights”: at most 9.00 GiB of its GPU was in use"
    assert watch.ended.text() == told
    watch.see(8, "vLLM", 2 * GIB)
    watch.see(8, "vLLM", 23 * GIB)
    watch.see(None, "", 0)
    assert (watch.ended.waiting, watch.ended.after) == ("", "allocate the KV cache")


def test_the_file_that_a_process_writes_to_is_found(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with log.open("w") as file, subprocess.Popen(["sleep", "30"], stdout=file, stderr=file) as process:
        found = output_file(process.pid)
        process.kill()
    assert found == (log if sys.platform == "linux" else None)
    assert output_file(process.pid) is None


def test_another_plan_is_no_news() -> None:
    watch = StageWatch(STAGES)
    watch.see(7, "vLLM", 8 * GIB)
    watch.set_stages((StageEnd("load weights", 4 * GIB), StageEnd("allocate the KV cache", 12 * GIB)))
    assert watch.see(7, "vLLM", 8 * GIB) == ()
    assert watch.see(7, "vLLM", 12 * GIB) == ("allocate the KV cache",)
