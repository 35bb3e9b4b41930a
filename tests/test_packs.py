"""Data packs: signed, checked record by record, added and removed; what cannot be used changes nothing."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from kvplanner import packfile, packs
from kvplanner.errors import BadInput, PlannerError
from kvplanner.files import FOLDER_VARIABLE, write_whole
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where packs are kept, in this process."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "own"))
    packfile.forget()
    yield tmp_path / "own" / "packs"
    packfile.forget()


@pytest.mark.parametrize(
    "rows",
    [
        b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"schema":"kvplanner.packrows/1"}',
        *(f'{{"schema":"kvplanner.packrows/1","rows":{rows}}}'.encode()
          for rows in ("7", "[7]", "[[]]", "[[[]]]", '[["acme/Tiny-1B"]]', f'[["acme/Tiny-1B"{",null" * 11}]]',
                       f'[["acme/Tiny-1B",[]{",0" * 10}]]')),
    ],
)  # fmt: skip
def test_an_index_that_is_broken_leaves_its_pack_aside(folder: Path, tmp_path: Path, rows: bytes) -> None:
    packs.add(pack(tmp_path), MARK)
    assert not packfile.installed().problems
    (beside,) = folder.glob("*.rows.json")
    beside.write_bytes(rows)
    packfile.forget()
    found = packfile.installed()
    assert [name for name, _ in found.problems] == ["spring.kvpack"]
    assert found.packs == ()


def test_the_index_of_a_pack_that_an_older_version_added_is_read(folder: Path, tmp_path: Path) -> None:
    packs.add(pack(tmp_path), MARK)
    (beside,) = folder.glob("*.rows.json")
    beside.rename(folder / "spring.rows.json")
    packfile.forget()
    assert list(packfile.models()) == ["acme/Tiny-1B"]
    packs.add(pack(tmp_path, made="2027-01-02"))
    assert len(list(folder.glob("*.rows.json"))) == 1


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_disk_that_fills_up_keeps_a_pack_whole_or_not_at_all(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Whichever of its files has no room: nothing of the new pack, nor trust in its key, and the old one as it was."""

    def add(made: str, model: str, room: int) -> None:
        left = [None] * room

        def write(path: Path, data: bytes) -> None:
            if not left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left.pop()
            write_whole(path, data)

        with monkeypatch.context() as patched:
            patched.setattr(packs, "write_whole", write)
            packs.add(pack(tmp_path, made=made, models=[MODEL | {"id": model}]), MARK)

    def kept() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    with pytest.raises(BadInput, match="No space left on device"):
        add("2026-12-24", "acme/Tiny-1B", at)
    assert kept() == {}
    add("2026-12-24", "acme/Tiny-1B", 3)
    before = kept()
    if at < 2:  # its key is trusted: two files are written
        with pytest.raises(BadInput, match="No space left on device"):
            add("2026-12-24", "acme/Tiny-1B", at)
        assert kept() == before, "the very same pack once more"
        with pytest.raises(BadInput, match="No space left on device"):
            add("2027-01-02", "acme/Tiny-2B", at)
        assert kept() == before
        packfile.forget()
        assert list(packfile.models()) == ["acme/Tiny-1B"]
    add("2027-01-02", "acme/Tiny-2B", 2)
    assert list(packfile.models()) == ["acme/Tiny-2B"]
    assert len(kept()) == len(before) == 3


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
