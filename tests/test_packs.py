"""Data packs: signed, checked record by record, added and removed; what cannot be used changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from kvplanner import packfile, packs
from kvplanner.errors import BadInput, PlannerError
from kvplanner.files import FOLDER_VARIABLE
from kvplanner.report.data import age
from tests.cli.kit import Ran, process
from tests.pack_kit import BODY, CONFIG, GPU, LATE, MARK, MODEL, build_pack, pack


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ran]:
    """The terminal with a data folder of its own."""
    return lambda *words: process(words, env={FOLDER_VARIABLE: str(tmp_path / "own")})


def late(told: Ran) -> tuple[int, int, int]:
    """The runtime segment of a plan's JSON: value, low, high."""
    segments = json.loads(told.out)["devices"][0]["segments"]
    found = next(segment for segment in segments if segment["kind"] == "runtime")
    return found["bytes"], found["low_bytes"], found["high_bytes"]


@pytest.mark.slow
def test_a_pack_brings_models_gpus_and_constants_until_it_is_removed(run: Callable[..., Ran], tmp_path: Path) -> None:
    ask = ("plan", "Tiny-1B", "--gpu", "RTX 9090", "--json")
    assert run(*ask).status == 2
    added = run("data", "add", str(pack(tmp_path)), "--trust", MARK)
    assert (added.status, added.out) == (0, "Added pack spring of 2026-12-24: 1 model, 1 GPU, 1 constant of vLLM\n")
    planned = run(*ask)
    assert late(planned) == (5 * 10**9, 4 * 10**9, 6 * 10**9)
    assert json.loads(planned.out)["devices"][0]["total_bytes"] == 49140 << 20
    text = run("plan", "acme/Tiny-1B", "--gpu", "1xrtx-9090").out
    assert "data pack spring of 2026-12-24" in text
    assert "1.24 B parameters" in text  # as Llama-3.2-1B, whose shape it is
    assert "acme/Tiny-1B" in run("models", "tiny-1b").out
    assert "RTX 9090" in run("gpus", "9090").out
    listed = run("data").out
    assert "pack spring" in listed
    assert f"{MARK} (The lab)" in listed
    assert run("data", "remove", "spring").status == 0
    assert run(*ask).status == 2


@pytest.mark.slow
def test_a_key_is_trusted_once_by_its_fingerprint(run: Callable[..., Ran], tmp_path: Path) -> None:
    path = str(pack(tmp_path))
    refused = run("data", "add", path)
    assert (refused.status, refused.out) == (2, "")
    assert MARK in refused.err
    assert "'The lab'" in refused.err
    assert run("data", "add", path, "--trust", "0000-0000-0000-0000-0000").status == 2
    assert run("data", "add", path, "--trust", MARK).status == 0
    newer = run("data", "add", str(pack(tmp_path, made="2027-01-02")))
    assert newer.out.startswith("Replaced pack spring of 2027-01-02")
    older = run("data", "add", str(pack(tmp_path, made="2026-12-25")))
    assert "older than the pack of this name" in older.err
    other = run("data", "add", str(pack(tmp_path, SigningKey(b"2" * 32))))
    assert "not trusted here" in other.err


@pytest.mark.slow
def test_what_is_broken_in_the_folder_is_left_aside_and_named(run: Callable[..., Ran], tmp_path: Path) -> None:
    folder = tmp_path / "own" / "packs"
    assert run("data", "add", str(pack(tmp_path)), "--trust", MARK).status == 0
    (folder / "junk.kvpack").write_bytes(b"\x00\x1b[2J")
    added = folder / "spring.kvpack"
    added.write_bytes(added.read_bytes().replace(b'"hidden_size":2048', b'"hidden_size":4096'))
    listed = run("data")
    assert "junk.kvpack is left aside" in listed.err
    assert "\x1b" not in listed.out + listed.err
    assert "CHANGED since it was signed" in listed.out
    (folder / "spring.rows.json").write_text("[]")
    assert "spring.kvpack is left aside" in run("data").err
    assert run("plan", "Qwen3-8B", "--gpu", "H100").status == 0


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_no_changed_byte_passes(tmp_path_factory: pytest.TempPathFactory, at: int, bit: int) -> None:
    path = pack(tmp_path_factory.getbasetemp())
    changed = bytearray(path.read_bytes())
    changed[at % len(changed)] ^= 1 << bit
    path.write_bytes(changed)
    with pytest.raises(BadInput):
        packs.checked(path)


BROKEN: dict[str, dict[str, Any]] = {
    "name": {"name": "../up"}, "date": {"made": "tomorrow"}, "by": {"by": "a\x1bb"}, "field": {"more": 1},
    "models": {"models": {}}, "twice": {"models": [MODEL, MODEL]}, "id": {"models": [{}]},
    "config": {"models": [{**MODEL, "config": {**CONFIG, "hidden_size": "x"}}]},
    "architecture": {"models": [{**MODEL, "config": {**CONFIG, "architectures": ["Nothing"]}}]},
    "record field": {"models": [{**MODEL, "config_of": "meta-llama/Llama-3.1-8B"}]},
    "figure": {"models": [{**MODEL, "size": "large"}]}, "kind": {"models": [{**MODEL, "kind": "dreamt"}]},
    "gpu memory": {"gpus": [{**GPU, "memory_gb": None, "nvml_total_mib": None}]},
    "gpu total": {"gpus": [{**GPU, "nvml_total_mib": "48 GB"}]}, "gpu name": {"gpus": [{**GPU, "aliases": ["a\nb"]}]},
    "gpu maker": {"gpus": [{**GPU, "vendor": "acme"}]}, "engine": {"constants": {"tgi": {}}},
    "no constants": {"constants": {"sglang": {}}}, "constant": {"constants": {"vllm": {"magic": [LATE]}}},
    "band": {"constants": {"vllm": {"late_bytes": [{**LATE, "low": 9e9}]}}},
    "release": {"constants": {"vllm": {"late_bytes": [{**LATE, "first": "0.34"}]}}},
    "entries": {"constants": {"vllm": {"late_bytes": {}}}},
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_record_that_cannot_be_used_refuses_the_pack_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(PlannerError) as told:
        packs.checked(pack(tmp_path, **BROKEN[kind]))
    assert isinstance(told.value, BadInput)
    assert told.value.where.startswith("given.kvpack")
    assert told.value.remedy


@given(st.binary(max_size=400))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        packfile.read(packfile.split(data, "x"), "x")


def test_ages_are_told_in_units_that_people_use() -> None:
    today = date(2026, 11, 30)
    days = ("2026-11-29", "2026-10-01", "2025-11-01", "2027-01-01")
    ages = [age(date.fromisoformat(day), today) for day in days]
    assert ages == ["1 day", "8 weeks", "12 months", "dated after today"]


def test_a_key_file_is_its_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "key"
    mark = build_pack.new_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        build_pack.new_key(path)
    source = tmp_path / "in.json"
    source.write_text(json.dumps(BODY))
    made = build_pack.make(source, path, tmp_path)
    assert packfile.fingerprint(packs.checked(made)[0].key) == mark
