"""Logs written in each release's format are read to their facts, whatever collectors and crashes do to them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.diagnose.diagnosis import Diagnosis, diagnose
from kvplanner.errors import BadInput
from kvplanner.report import diagnosis as report
from kvplanner.units import GIB
from tests.diagnose import writer
from tests.diagnose.writer import Facts

RELEASES = ("0.6.6.post1", "0.7.3", "0.8.2", "0.8.5", "0.9.0", "0.9.2", "0.10.1", "0.10.2", "0.11.0", "0.11.2",
            "0.13.0", "0.15.1", "0.17.1", "0.19.1", "0.20.2", "0.24.0", "0.28.0", "0.31.0", "0.33.0")  # fmt: skip
STAGES = ("free_memory_check", "weights", "profile", "kv_cache_sizing", "kv_cache_too_small", "kv_cache_allocation",
          "graph_capture", "runtime")  # fmt: skip
TWO = Facts(tp=2, weights=(14.25, 13.5), kv=(8.5, 7.75), graphs=(0.75, 0.625))


def read(lines: list[str]) -> Diagnosis:
    return diagnose(BytesIO(("\n".join(lines) + "\n").encode()).read)


def gib(found: Diagnosis, name: str) -> float | None:
    size = found.size(name)
    return None if size is None else round(size / GIB, 4)


def known(version: str) -> bool:
    """Whether a release checks free memory before it loads."""
    return writer.number(version) >= (0, 9, 1)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("version", RELEASES)
def test_every_release_gives_its_figures(version: str, tp: int) -> None:
    facts = (TWO if tp == 2 else Facts())._replace(version=version, options={"max_model_len": 8192})
    found, number = read(writer.vllm(facts)), writer.number(version)
    assert (found.version, found.model, found.stage) == (version, facts.model, None)
    assert found.reading.started
    assert found.options["max_model_len"] == 8192
    printed = tp if number < (0, 11, 1) else 1
    assert gib(found, "weights") == max(facts.weights[:printed])
    assert found.tokens == facts.tokens
    assert gib(found, "kv_cache") == (None if (0, 8) <= number < (0, 9, 1) else min(facts.kv[:printed]))
    assert gib(found, "cuda_graphs") == max(facts.graphs[:printed])
    assert gib(found, "cuda_graphs_estimated") == (0.5 if number >= (0, 18) else None)
    concurrency = found.reading.best("max_concurrency")
    assert concurrency is not None
    assert concurrency.value == facts.concurrency
    assert not found.problems


@pytest.mark.parametrize("version", ["0.22.1", "0.28.0", "0.33.0"])
def test_the_second_runner_prints_every_rank(version: str) -> None:
    found = read(writer.vllm(TWO._replace(version=version, v2=True)))
    assert gib(found, "weights") == 14.25
    assert gib(found, "cuda_graphs") == 0.75
    assert gib(found, "cuda_graphs_estimated") == (0.5 if version == "0.33.0" else None)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("version", RELEASES)
def test_every_release_fails_at_its_stage(version: str, stage: str) -> None:
    if stage == "free_memory_check" and not known(version):
        return
    for facts in (Facts(), TWO._replace(failing_rank=1)):
        found = read(writer.vllm(facts._replace(version=version, fails=stage, free=9.5)))
        assert found.stage == stage
        ended = found.reading.ended
        assert ended is not None
        if ended.cause == "out_of_memory":
            assert (ended.figures["tried"], ended.figures["gpu_free"]) == (GIB // 2, GIB // 8)
            assert ended.figures["gpu"] == facts.failing_rank
        assert report.headline(found).startswith("vLLM fails ")
        assert "unknown amount" not in report.headline(found)


def test_state_blocks_have_a_cause_of_their_own() -> None:
    facts = Facts(version="0.28.0", sequences=1024, blocks=969)
    lines = writer.vllm_lines(facts)
    place = next(i for i, (_, text) in enumerate(lines) if "Capturing" in text)
    found = read(writer.tagged([*lines[:place], ("E", "ERROR " + writer.mamba(facts))], facts))
    assert (found.stage, found.reading.ended and found.reading.ended.cause) == ("kv_cache_too_small", "state_blocks")
    assert "1,024 sequences" in report.headline(found)


@pytest.mark.parametrize("wrap", writer.WRAPS)
@pytest.mark.parametrize("version", ["0.6.6.post1", "0.10.2", "0.24.0", "0.33.0"])
def test_wrapped_logs_read_alike(version: str, wrap: str) -> None:
    plain = writer.vllm(TWO._replace(version=version, fails="graph_capture", failing_rank=1))
    one, other = read(plain), read([writer.WRAPS[wrap](line) for line in plain])
    assert other.reading.ended is not None
    assert one.reading.ended is not None
    assert (other.stage, other.tokens, other.options, other.model, other.version) == (
        one.stage, one.tokens, one.options, one.model, one.version)  # fmt: skip
    assert other.reading.ended.figures == one.reading.ended.figures
    assert {(s.name, s.value) for s in other.reading.stated} == {(s.name, s.value) for s in one.reading.stated}


OTHERS: dict[str, Callable[[], list[str]]] = {
    "SGLang, failing": lambda: writer.sglang(TWO._replace(version="0.5.9", fails="graph_capture", failing_rank=1)),
    "SGLang": lambda: writer.sglang(Facts(version="0.5.23")),
    "llama.cpp, failing": lambda: writer.llamacpp(Facts(model="/m/a.gguf", fails="compute"), devices=1),
    "llama.cpp of 2024": lambda: writer.llamacpp(Facts(model="/m/a.gguf", weights=(4.25, 3.5)), devices=2, old=True),
    "Ollama": lambda: writer.ollama(Facts(version="0.13.1", model="/m/blob")),
}


@pytest.mark.parametrize("wrap", writer.WRAPS)
@pytest.mark.parametrize("name", OTHERS)
def test_wrapped_logs_of_the_others_read_alike(name: str, wrap: str) -> None:
    plain = OTHERS[name]()
    one, other = read(plain), read([writer.WRAPS[wrap](line) for line in plain])
    assert (other.engine, other.stage, other.tokens, other.model, other.version, other.reading.started) == (
        one.engine, one.stage, one.tokens, one.model, one.version, one.reading.started)  # fmt: skip
    assert {(s.name, s.process, s.value) for s in other.reading.stated} == {
        (s.name, s.process, s.value) for s in one.reading.stated
    }


PACKED: dict[str, Callable[[str], bytes]] = {
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16, big-endian, CRLF": lambda text: b"\xfe\xff" + text.replace("\n", "\r\n").encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "gzip": lambda text: gzip.compress(text.encode()),
    "gzip in two members, cut": lambda text: gzip.compress(text[:99].encode()) + gzip.compress(text[99:].encode())[:-4],
    "bzip2": lambda text: bz2.compress(text.encode()),
    "xz of UTF-16": lambda text: lzma.compress(text.encode("utf-16")),
    "old line ends": lambda text: text.replace("\n", "\r").encode(),
    "a string literal": lambda text: json.dumps(text).encode(),
    "unbreakable blanks": lambda text: text.replace("  ", "\u00a0 ").encode(),
    "a window of 120": lambda text: "\n".join(line[at : at + 120] for line in text.split("\n")
                                              for at in range(0, len(line) or 1, 120)).encode(),
    "a window of 80": lambda text: "\n".join(line[at : at + 80] for line in text.split("\n")
                                             for at in range(0, len(line) or 1, 80)).encode(),
}  # fmt: skip


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_packed_and_recoded_logs_read_alike(engine: str, packing: str) -> None:
    facts = Facts(version="0.5.20" if engine == "sglang" else "0.24.0", options={"context_length": 8192}
                  if engine == "sglang" else {"max_model_len": 8192})  # fmt: skip
    text = "\n".join(getattr(writer, engine)(facts)) + "\n"
    one, other = (diagnose(BytesIO(data).read) for data in (text.encode(), PACKED[packing](text)))
    assert (other.engine, other.tokens, other.options, other.model, other.version, other.reading.started) == (
        one.engine, one.tokens, one.options, one.model, one.version, True)  # fmt: skip
    assert {(s.name, s.value) for s in other.reading.stated} == {(s.name, s.value) for s in one.reading.stated}


def test_a_damaged_package_is_bad_input() -> None:
    damaged = bytearray(gzip.compress("\n".join(writer.vllm(Facts())).encode() * 40))
    damaged[40:90] = bytes(50)
    with pytest.raises(BadInput):
        diagnose(BytesIO(bytes(damaged)).read)


def test_two_servers_of_one_file_are_kept_apart() -> None:
    one = [f"big-1  | {line}" for line in writer.vllm(Facts(weights=(60.0,), kv=(8.0,)))]
    two = [f"small-1  | {line}" for line in writer.vllm(Facts(weights=(15.0,), kv=(1.5,), fails="graph_capture"))]
    mixed = [line for pair in zip(one, two, strict=False) for line in pair] + one[len(two) :] + two[len(one) :]
    found = read(mixed)
    assert (found.stage, gib(found, "weights"), gib(found, "kv_cache")) == ("graph_capture", 15.0, 1.5)
    assert any("2 servers" in note for note in report.notes(found))


def test_a_record_behind_another_worker_s_bar_is_its_own() -> None:
    bar = "(Worker_TP0 pid=72) Loading safetensors checkpoint shards:  50% Completed | 1/2 "
    record = "(Worker_TP1 pid=73) INFO 01-14 08:00:01 [w.py:1] Model loading took 13.5 GiB memory and 4.9 seconds"
    found = read(
        ["(APIServer pid=1) INFO 01-14 08:00:00 [a.py:1] vLLM server version 0.30.0, serving model m", bar + record]
    )
    assert [(s.process, s.value) for s in found.reading.stated if s.name == "weights"] == [
        ("Worker_TP1", round(13.5 * GIB))
    ]


@pytest.mark.parametrize("stage", ["", "weights", "kv_cache_sizing", "graph_capture", "runtime"])
@pytest.mark.parametrize("version", ["0.4.10", "0.5.9", "0.5.23"])
@pytest.mark.parametrize("tp", [1, 2])
def test_sglang_is_read(version: str, stage: str, tp: int) -> None:
    facts = (TWO if tp == 2 else Facts())._replace(version=version, fails=stage, failing_rank=tp - 1)
    found = read(writer.sglang(facts))
    assert (found.engine, found.stage) == ("sglang", stage or None)
    if stage not in ("weights", "kv_cache_sizing"):
        assert (gib(found, "weights"), found.tokens) == (14.25, facts.tokens)


@pytest.mark.parametrize("stage", ["", "weights", "kv_cache_allocation", "compute", "runtime"])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("devices", [1, 2])
def test_llamacpp_is_read(devices: int, old: bool, stage: str) -> None:
    facts = Facts(model="/m/a.gguf", weights=(4.25, 3.5), kv=(1.0, 0.75), fails=stage)
    found = read(writer.llamacpp(facts, devices=devices, old=old))
    assert (found.engine, found.stage) == ("llamacpp", stage or None)
    if stage in ("", "runtime"):
        for place in range(devices):
            sizes = [found.of_device(name, f"CUDA{place}") for name in ("weights", "kv_cache", "compute")]
            assert sizes == [round(size * GIB) for size in (facts.weights[place], facts.kv[place], facts.activations)]


@pytest.mark.parametrize("stage", ["", "weights", "runtime"])
def test_ollama_is_read(stage: str) -> None:
    found = read(writer.ollama(Facts(version="0.13.1", model="/m/blob", weights=(4.5,), kv=(1.0,), fails=stage)))
    assert (found.engine, found.version, found.stage) == ("ollama", "0.13.1", stage or None)


def logs() -> st.SearchStrategy[tuple[list[str], list[str], Facts]]:
    """A log, who writes each line, and its facts."""

    def of(version: str, stage: str, tp: int, engine: str) -> tuple[list[str], list[str], Facts]:
        facts = (TWO if tp == 2 else Facts())._replace(version=version, fails=stage, failing_rank=tp - 1)
        if engine == "vllm":
            made = writer.vllm_lines(facts)
            return writer.tagged(made, facts), [who for who, _ in made], facts
        if engine == "sglang":
            lines = writer.sglang(facts._replace(version="0.5.23"))
            return lines, [line[22:25] if line[20:21] == " " else "" for line in lines], facts
        lines = writer.llamacpp(facts, devices=tp) if engine == "llamacpp" else writer.ollama(facts)
        return lines, [""] * len(lines), facts

    return st.builds(of, st.sampled_from(RELEASES), st.sampled_from(("", *STAGES[1:])), st.sampled_from((1, 2)),
                     st.sampled_from(("vllm", "vllm", "sglang", "llamacpp", "ollama")))  # fmt: skip


# What any figure of a log may be, by its name, in GiB: another value is another unit or another figure.
def allowed(facts: Facts, name: str) -> set[float]:
    whole_buffers = {facts.weights[0], facts.kv[0], facts.activations, 464.04 / 1024}  # what llama.cpp asks for
    return {
        "tried": {facts.tried, *whole_buffers},
        "weights": set(facts.weights),
        "kv_cache": set(facts.kv),
        "cuda_graphs": {*facts.graphs, facts.estimated},
        "cuda_graphs_estimated": {facts.estimated, *facts.graphs},
        "activations": {facts.activations},
        "compute": {facts.activations},
        "runtime": {facts.runtime},
    }[name]


@given(logs(), st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_logs_give_no_wrong_figure(made: tuple[list[str], list[str], Facts], data: st.DataObject) -> None:
    lines, keys, facts = made
    wrap = writer.WRAPS[data.draw(st.sampled_from(sorted(writer.WRAPS)))]
    kept: list[tuple[str, str]] = []
    for line, key in zip(lines, keys, strict=True):
        kept += [(line, key)] * data.draw(st.sampled_from([1, 1, 1, 1, 0, 2]))
    random = data.draw(st.randoms(use_true_random=False))
    mixed = writer.interleaved([k[0] for k in kept], [k[1] for k in kept], random.randrange) if kept else []
    raw = "\n".join(map(wrap, mixed)).encode()
    start, end = sorted((data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, len(raw)))))
    for piece in (raw, raw[start:], raw[:end], raw[start:end]):
        try:
            found = diagnose(BytesIO(piece).read)
        except BadInput:
            continue
        report.text(found)
        assert found.stage in (None, facts.fails or None) or found.reading.ended
        for stated in found.reading.stated:
            if not stated.size or stated.name not in ("weights", "kv_cache", "cuda_graphs", "cuda_graphs_estimated",
                                                      "activations", "compute", "runtime", "tried"):  # fmt: skip
                continue
            exact = {round(size * GIB) for size in allowed(facts, stated.name)}
            assert any(abs(float(stated.value) - size) < 0.051 * GIB for size in exact), (stated, piece is raw)
            rank = next(
                (r for r in range(facts.tp) if stated.process.endswith((f"TP{r}", f"rank={r}", f"CUDA{r}"))), None
            )
            if (
                rank is not None
                and stated.name in ("weights", "kv_cache")
                and facts.tp == 2
                and found.engine != "ollama"
            ):
                own = facts.weights if stated.name == "weights" else facts.kv
                if not (found.engine == "sglang" and stated.name == "kv_cache"):
                    assert stated.value == round(own[rank] * GIB), stated
