"""Every entry of the terminal with every kind of file, each in every way that a file can be wrong."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvplanner.request.flags import PLAN_FLAGS
from tests.cli.kit import OBEYED, Terminal
from tests.source.kit import CONFIG
from tests.source.make_gguf import llama_file
from tests.source.wrong_gguf import WRONG as WRONG_GGUF
from tests.source.wrong_json import WRONG as WRONG_JSON
from tests.source.wrong_safetensors import WRONG as WRONG_SAFETENSORS

pytestmark = pytest.mark.slow

MIB = 1 << 20
KINDS = ("m.gguf", "m.safetensors", "config.json", "p.kvplan.json", "model.safetensors.index.json", "x.bin", "x.txt")
PLAN = {"schema": "kvplanner.planfile/1", "model": "Llama-3.1-8B-Instruct", "machine": "1xh100-sxm5-80gb"}
SEEDS = 20


def contents() -> Iterator[tuple[str, bytes]]:
    """What any file may hold; each with a name for messages."""
    yield "nothing", b""
    yield "zeros", bytes(4096)
    yield "an open brace", b"{"
    yield "deep lists", b'{"a":' + b"[" * 100_000
    yield "deep objects", b'{"a":' * 50_000
    yield "a huge number", b'{"hidden_size": ' + b"9" * 10_000 + b"}"
    yield "infinite", b'{"schema": "kvplanner.planfile/1", "x": 1e999}'
    yield "UTF-16", json.dumps(CONFIG).encode("utf-16")
    yield "half a character", b'{"a": "\xed\xa0\x80"}'
    yield "a list", b"[1]"
    yield "many keys", json.dumps({f"k{i}": i for i in range(100_000)}).encode()
    yield "escapes", json.dumps({"architectures": ["\x1b]0;x\x07\u202e"], "model_type": "\x1b[2J"}).encode()
    yield "a newer plan", json.dumps(PLAN | {"schema": "kvplanner.planfile/7"}).encode()
    yield "an older plan", json.dumps(PLAN | {"schema": "kvplanner.planfile/0"}).encode()
    for table in (WRONG_GGUF, WRONG_JSON, WRONG_SAFETENSORS):
        yield from ((name, data) for name, (data, _) in table.items())
    good = (llama_file(), json.dumps(CONFIG).encode(), json.dumps(PLAN).encode())
    for seed in range(SEEDS):
        chance = random.Random(seed)
        whole = bytearray(chance.choice(good)[:200_000])
        for _ in range(chance.randrange(1, 9)):
            whole[chance.randrange(len(whole))] = chance.randrange(256)
        cut = chance.randrange(len(whole))
        yield f"mutation {seed}", bytes(whole[:cut])
        yield f"noise {seed}", chance.randbytes(chance.randrange(1, 3000))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """Nothing may be asked: the addresses that were, for the assertion."""
    asked: list[object] = []

    def connect(_: socket.socket, address: object) -> None:
        asked.append(address)
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for name in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    return asked


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["plan", "inspect", "open"])
def test_every_wrong_file_ends_in_one_line(
    terminal: Terminal, tmp_path: Path, no_network: list[object], command: str, kind: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = tmp_path / kind
    words = {"plan": ["plan", str(path), "--gpu", "H100"], "inspect": ["inspect", str(path)], "open": [str(path)]}[
        command
    ]
    answered = 0
    for name, data in contents():
        path.write_bytes(data)
        started = time.process_time()
        ran = terminal(*words)
        took = time.process_time() - started
        assert ran.status in (0, 1, 2), (name, ran)
        assert took < 1.0 or _again(terminal, words) < 1.0, (name, took)
        assert not [c for c in OBEYED if c in ran.out + ran.err], name
        if ran.status == 2 and not ran.out:
            answered += 1
            assert len(ran.err.splitlines()) == 1, (name, ran.err)
            assert ran.err.startswith("kvplanner: "), name
            assert len(ran.err) < 2000, name
    assert answered > 30
    assert no_network == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 * 1024


def _again(terminal: Terminal, words: list[str]) -> float:
    """What took long on a busy machine gets a second chance."""
    started = time.process_time()
    terminal(*words)
    return time.process_time() - started


@pytest.mark.parametrize("kind", KINDS)
def test_a_sparse_terabyte_is_not_read(terminal: Terminal, tmp_path: Path, no_network: list[object], kind: str) -> None:
    path = tmp_path / kind
    with path.open("wb") as file:
        file.truncate(1 << 40)
    for words in (["plan", str(path), "--gpu", "H100"], ["inspect", str(path)]):
        started = time.process_time()
        ran = terminal(*words)
        assert ran.status == 2
        assert len(ran.err.splitlines()) == 1
        assert time.process_time() - started < 1.0
    assert no_network == []


FLAGS = (*(flag.name for flag in PLAN_FLAGS), "--explain", "--unit", "--save")
ODD = ("", " ", "\0", "\x1b[31m\u202e", "9" * 400, "1e999", "nan", "-1", "0", "٣", "a" * 100_000, "../../x", "=", ",,,")


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_refuses_nonsense_in_one_line(
    terminal: Terminal, tmp_path: Path, no_network: list[object], flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = (
        "",
        " ",
        "\0",
        "\x1b[31m\u202e",
        "9" * 400,
        "1e999",
        "nan",
        "-1",
        "0",
        "٣",
        "a" * 100_000,
        "../../x",
        "=",
        ",,,",
    )
    for value in odd:
        started = time.process_time()
        ran = terminal("plan", "Llama-3.1-8B-Instruct", *(() if flag == "--gpu" else ("--gpu", "H100")), flag, value)
        assert ran.status in (0, 1, 2), (flag, value[:20])
        if ran.status == 2:
            assert len(ran.err.splitlines()) == 1, (flag, value[:20], ran.err[:300])
            assert len(ran.err) < 2000
        assert not [c for c in OBEYED if c in ran.err], (flag, value[:20])
        assert time.process_time() - started < 1.5, (flag, value[:20])
    assert no_network == []
    assert not list(Path(os.path.pardir).glob("x"))
