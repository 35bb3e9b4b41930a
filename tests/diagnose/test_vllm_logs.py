"""Logs of vLLM's releases are read to their figures, whatever befalls them on the way."""

from __future__ import annotations

import difflib
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.diagnose.arguments import pairs_of, parse_arguments
from kvplanner.diagnose.diagnosis import Diagnosis, diagnose
from kvplanner.errors import BadInput
from kvplanner.report import diagnosis as report
from kvplanner.units import GIB
from tests.diagnose import writer
from tests.diagnose.writer import Facts

LOGS = Path(__file__).parent / "logs" / "vllm"
EXPECTED: dict[str, dict[str, Any]] = json.loads((LOGS / "expected.json").read_text(encoding="utf-8"))


def read(data: bytes) -> Diagnosis:
    return diagnose(BytesIO(data).read)


def of(name: str) -> Diagnosis:
    return read((LOGS / name).read_bytes())


def gib(found: Diagnosis, name: str) -> float | None:
    size = found.size(name)
    return None if size is None else size / GIB


@pytest.mark.parametrize("name", EXPECTED)
def test_every_log_gives_its_figures(name: str) -> None:
    found, wanted = of(name), EXPECTED[name]
    assert (found.engine, found.version, found.model) == ("vllm", wanted["version"], wanted["model"])
    assert found.stage == wanted["stage"]
    assert found.reading.started == (wanted["stage"] is None)
    assert found.options == wanted["flags"]
    assert found.tokens == wanted["kv_tokens"]
    for figure, field in (("weights", "weights_gib"), ("kv_cache", "available_kv_gib"), ("cuda_graphs", "graphs_gib")):
        assert gib(found, figure) == (None if wanted[field] is None else pytest.approx(wanted[field], abs=1e-6)), figure
    concurrency = found.reading.best("max_concurrency")
    assert (concurrency.value if concurrency else None) == wanted["max_concurrency"]
    assert not found.problems


@pytest.mark.parametrize("name", EXPECTED)
def test_every_log_is_told_and_keeps_its_schema(name: str) -> None:
    found = of(name)
    text = report.text(found)
    assert text.splitlines()[0].startswith("vLLM ")
    document = json.loads(json.dumps(report.to_json(found)))
    assert document["schema"] == "kvplanner.diagnosis/1"
    assert document["stage"] == EXPECTED[name]["stage"]
    for entry in document["measured"]:
        assert isinstance(entry["bytes"], int)
        assert entry["line"] >= 1


def test_further_facts() -> None:
    small = of("0110-kv-too-small.log")
    assert small.reading.ended is not None
    assert small.reading.ended.figures["suggested_context_length"] == 36_624
    assert small.reading.ended.figures["needed"] == 16 * GIB
    capture = of("0240-oom-capture.log")
    assert gib(capture, "cuda_graphs_estimated") == pytest.approx(0.41, abs=1e-6)
    assert gib(capture, "gpu_total") == pytest.approx(79.25, abs=1e-6)


BASE = "(EngineCore pid=7) INFO 05-20 08:12:16 [core.py:1] "
START = (
    "(APIServer pid=1) INFO 05-20 08:12:00 [api_utils.py:1] vLLM server version 0.33.0, serving model org/Model\n"
    "(APIServer pid=1) INFO 05-20 08:12:00 [startup.py:1] non-default args: {'model': 'org/Model', "
    "'max_model_len': 4096}\n"
)
LOADED = f"{BASE}Starting to load model org/Model...\n{BASE}Model loading took 15.5 GiB memory and 3.1 seconds\n"
SIZED = (
    f"{BASE}Available KV cache memory: 40.25 GiB\n"
    f"{BASE}GPU KV cache size: 300,000 tokens, Maximum concurrency for 4,096 tokens per request: 73.24x\n"
)
BAR = "(EngineCore pid=7) Capturing CUDA graphs (FULL):  10%|#         | 3/35 [00:00<00:04, 8.33it/s]\n"
OOM = (
    "(EngineCore pid=7) ERROR 05-20 08:12:18 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
    "2.00 GiB. GPU 0 has a total capacity of 23.52 GiB of which 512.00 MiB is free. Including non-PyTorch memory, this "
    "process has 22.9 GiB memory in use. Of the allocated memory 20.10 GiB is allocated by PyTorch, and 2.30 GiB is "
    "reserved by PyTorch but unallocated.\n"
)


@pytest.mark.parametrize(
    ("before", "stage"),
    [
        (START + f"{BASE}Starting to load model org/Model...\n", "weights"),
        (START + LOADED, "profile"),
        (START + LOADED + SIZED, "kv_cache_allocation"),
        (START + LOADED + SIZED + BAR, "graph_capture"),
        (START + LOADED + SIZED + BAR + f"{BASE}Graph capturing finished in 4 secs, took 0.50 GiB\n"
         f"{BASE}init engine (profile, create kv cache, warmup model) took 9.1 s\n", "runtime"),
    ],
)  # fmt: skip
def test_an_error_without_a_stage_of_its_own_belongs_to_where_its_process_was(before: str, stage: str) -> None:
    found = read((before + OOM).encode())
    assert found.stage == stage
    assert found.reading.ended is not None
    assert found.reading.ended.figures["tried"] == 2 * GIB
    assert "fragmentation" in report.headline(found)


def test_a_traceback_tells_the_stage_where_a_rank_prints_nothing_of_its_own() -> None:
    other = OOM.replace("EngineCore pid=7", "Worker_TP1 pid=8")
    frame = '(Worker_TP1 pid=8) ERROR 05-20 08:12:18 [w.py:1]   File "/x/gpu_worker.py", line 9, in load_model\n'
    found = read((START + LOADED + frame + other).encode())
    assert found.stage == "weights"


def test_a_capture_before_the_cache_is_an_estimate() -> None:
    ahead = f"{BASE}Graph capturing finished in 4 secs, took 0.50 GiB\n"
    real = f"{BASE}Graph capturing finished in 4 secs, took 0.75 GiB\n"
    found = read((START + LOADED + ahead + SIZED).encode())
    assert (gib(found, "cuda_graphs"), gib(found, "cuda_graphs_estimated")) == (None, 0.5)
    found = read((START + LOADED + ahead + SIZED + real).encode())
    assert (gib(found, "cuda_graphs"), gib(found, "cuda_graphs_estimated")) == (0.75, 0.5)


def test_the_last_of_several_starts_counts() -> None:
    first = START.replace("4096", "8192") + LOADED + OOM
    found = read((first + START + LOADED + SIZED).encode())
    assert found.reading.starts == 2
    assert found.stage is None
    assert found.options == {"max_model_len": 4096}


def test_gb_of_older_releases_is_gib() -> None:
    old = "INFO 01-14 08:12:19 model_runner.py:1099] Loading model weights took 14.5000 GB\n"
    assert gib(read((START + old).encode()), "weights") == 14.5


@pytest.mark.parametrize(
    "wrap",
    [
        lambda line: f"vllm-1  | {line}",
        lambda line: f"[pod/vllm-0/server] {line}",
        lambda line: f"2026-11-24T08:12:00.123456789Z {line}",
        lambda line: f"Nov 24 08:12:00 host vllm[99]: {line}",
        lambda line: json.dumps({"log": line, "stream": "stderr", "time": "x"}),
        lambda line: f"\x1b[32m{line}\x1b[0m",
    ],
)
def test_what_collectors_put_around_lines_changes_nothing(wrap: Any) -> None:
    plain = START + LOADED + SIZED + BAR + OOM
    around = "".join(wrap(line) + "\n" for line in plain.splitlines())
    one, other = read(plain.encode()), read(around.encode())
    assert (other.stage, other.tokens, other.options, other.model) == (one.stage, one.tokens, one.options, one.model)
    assert gib(other, "weights") == 15.5


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_lines_lost_doubled_or_cut_never_change_a_unit(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(EXPECTED)))
    lines = (LOGS / name).read_bytes().split(b"\n")
    kept: list[bytes] = []
    for line in lines:
        kept += [line] * data.draw(st.sampled_from([1, 1, 1, 1, 0, 2]))
    whole = b"\n".join(kept)
    cut = whole[data.draw(st.integers(0, len(whole) // 4)) :]
    try:
        found = read(cut)
    except BadInput:
        return
    wanted = EXPECTED[name]
    for figure, field in (("weights", "weights_gib"), ("cuda_graphs", "graphs_gib")):
        size = gib(found, figure)
        assert size is None or wanted[field] is None or size < 2 * wanted[field] + 1


@pytest.mark.parametrize(
    "hostile",
    [b"\x00" * 300_000, bytes(range(256)) * 2000, b"vLLM " + b"x" * 5_000_000, b"vLLM \x1b]8;;http://x\x07" * 50_000,
     b"vLLM " + b"GiB" * 400_000 + b"\n", b'{"message": ' * 40_000, b"vLLM args: Namespace(" + b"(" * 200_000,
     b"vLLM non-default args: {" + b"'a': {" * 100_000],
)  # fmt: skip
def test_hostile_logs_end(hostile: bytes) -> None:
    try:
        found = read(hostile)
    except BadInput:
        return
    text = report.text(found)
    assert "\x1b" not in text
    assert len(text) < 20_000


def test_a_server_that_begins_anew_in_the_midst_of_a_block_is_read_from_its_first_line_on() -> None:
    served = '(APIServer pid=70) INFO:     10.0.0.3:41234 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    first = "\n".join(writer.vllm(Facts())) + "\n"
    again = Facts(version="0.31.0", weights=(15.5,), tokens=77_777, options={"max_num_seqs": 99})
    text = first + served * 20_000 + "\n".join(writer.vllm(again)) + "\n"
    found = diagnose(BytesIO(text.encode()).read)
    assert (found.version, found.tokens, found.reading.starts) == ("0.31.0", 77_777, 2)
    assert found.options["max_num_seqs"] == 99
    assert found.reading.started


def test_what_stands_inside_another_argument_is_none_of_the_engine_s() -> None:
    text = ("{'model_tag': 'a/b', 'speculative_config': {'model': 'c/d', 'n': [1, 2]}, 'x': Config(q={'model': 'e'}), "
            "'model': 'a/b', 'said': 'it\\'s, {', 'max_model_len': 81")  # fmt: skip
    found = parse_arguments(text)  # the line is cut: its last figure may be
    assert found == {"model_tag": "a/b", "speculative_config": {"model": "c/d", "n": [1, 2]}, "model": "a/b",
                     "said": "it's, {"}  # fmt: skip
    assert pairs_of("model='a', spec=Spec(model='b', n=2), max_seq_len=8")["model"] == "a"


def test_no_spelling_is_looked_for_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of 6 kB with 141 unknown options took 1.5 s: each was compared with every flag, for words not shown."""

    def looked(*_: object, **__: object) -> list[str]:
        raise AssertionError("names alike were looked for")

    monkeypatch.setattr(difflib, "get_close_matches", looked)
    options = ", ".join(f"'unheard_of_{number}': {number}" for number in range(500))
    text = f"INFO 07-01 10:00:00 [utils.py:233] non-default args: {{'model': 'Qwen/Qwen3-8B', {options}}}\n"
    text += "INFO 07-01 10:00:01 [gpu_worker.py:276] Available KV cache memory: 9.50 GiB\n"
    text += "INFO 07-01 10:00:02 [kv_cache_utils.py:716] GPU KV cache size: 69,168 tokens\n"
    assert len(read(text.encode()).problems) == 500
