"""What any file may hold, and what any file may be instead of one."""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.source.kit import CONFIG
from tests.source.make_gguf import llama_file
from tests.source.wrong_gguf import WRONG as WRONG_GGUF
from tests.source.wrong_json import WRONG as WRONG_JSON
from tests.source.wrong_safetensors import WRONG as WRONG_SAFETENSORS

PLAN = {"schema": "kvplanner.planfile/1", "model": "Llama-3.1-8B-Instruct", "machine": "1xh100-sxm5-80gb"}
RUN = {"id": "0" * 8, "engine": "vllm", "measured": [{"kind": "weights", "bytes": 1}]}
MARKS = "\x1b]0;x\x07\u202e"
SEEDS = 20
KINDS = ("m.gguf", "m.safetensors", "config.json", "p.kvplan.json", "model.safetensors.index.json", "x.bin", "x.txt",
         "x.log", "x.yaml", "x.kvpack")  # fmt: skip
ODD = ("", " ", "\0", "\x1b[31m\u202e", "9" * 400, "1e999", "nan", "-1", "0", "٣", "a" * 100_000, "../../x", "=", ",,,",
       "9" * 5000, f"{'9' * 5000}=1GiB", "²")  # fmt: skip


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
    yield "escapes", json.dumps({"architectures": [MARKS], "model_type": "\x1b[2J"}).encode()
    yield "a newer plan", json.dumps(PLAN | {"schema": "kvplanner.planfile/7"}).encode()
    yield "an older plan", json.dumps(PLAN | {"schema": "kvplanner.planfile/0"}).encode()
    yield "a plan of the Hub", json.dumps(PLAN | {"model": "hub:a/b"}).encode()
    yield from ((name, text.encode()) for name, text in texts())
    yield "a bomb", gzip.compress(bytes(30_000_000))
    yield "a nested bomb", gzip.compress(gzip.compress(bytes(3_000_000)))
    for name, field in (("huge", {"bytes": 10**400}), ("negative", {"bytes": -1}), ("text", {"kind": MARKS})):
        runs = [RUN | {"measured": [{"kind": "weights", "bytes": 1} | field]}]
        yield f"a run, {name}", json.dumps({"schema": "kvplanner.runs/1", "runs": runs}).encode()
    yield "a run, escapes", json.dumps({"schema": "kvplanner.runs/1", "runs": [RUN | {"model": MARKS}]}).encode()
    head = json.dumps({"schema": "kvplanner.pack/1", "key": "0" * 64, "signature": "0" * 128}).encode()
    yield "an unsigned pack", head + b'\n{"name": "x"}'
    yield "a pack of many lines", head + b"\n" * 100_000
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


def texts() -> Iterator[tuple[str, str]]:
    """What costs a careless reader of commands, manifests and code the square of its length, or more."""
    many = 90_000
    yield "blank lines", "vllm serve a" + "\n" * 2 * many + "b"
    yield "blanks", "FROM a" + " " * 2 * many + "b"
    yield "words", "a " * (many // 2)
    yield "half a launcher", "docker run a\n" * (many // 14)
    yield "open variables", "vllm serve " + "${A-" * (many // 4)
    yield "doubling variables", "A=x\n" + "A=$A$A\n" * 60 + "vllm serve $A"
    yield "dots", "a." * many + "LLM("
    yield "open quotes", "vllm serve " + "'" * (many - 1)
    yield "a unit's open quote", '[Service]\nExecStart="\n'
    yield "brackets", "vllm serve m --compilation-config " + "{" * many
    yield "a manifest", "kind: Pod\nspec:\n containers:\n" + "  - args: [vllm, serve, a]\n" * 4000
    yield "merged keys", "a: &a {" + ",".join(f"k{i}: 1" for i in range(5000)) + "}\nargs:\n" + " - {<<: *a}\n" * 60
    yield "a flow", "args: [" + "a," * (many // 2) + "]"
    yield "levels", "kind:\n" + "".join(" " * i + "a:\n" for i in range(1, 300))
    yield "a log without an end", "INFO 01-01 00:00:00 [a.py:1] " + "x" * many
    yield "a log of sizes", "INFO 01-01 00:00:00 [a.py:1] Model loading took " + "9" * 5000 + " GiB\n" + MARKS


def no_files(folder: Path, ending: str) -> Iterator[tuple[str, str]]:
    """Paths that name no file to read, some of which answer never, and what each is."""
    (folder / f"folder{ending}").mkdir()
    os.mkfifo(folder / f"pipe{ending}")
    (folder / f"circle{ending}").symlink_to(f"circle{ending}")
    (folder / f"nowhere{ending}").symlink_to("/nothing/there")
    (folder / f"device{ending}").symlink_to("/dev/zero")
    (folder / f"kernel{ending}").symlink_to("/proc/kmsg")
    (folder / f"memory{ending}").symlink_to("/proc/self/mem")
    with socket.socket(socket.AF_UNIX) as server:
        place = Path.cwd()
        os.chdir(folder)  # a socket's path is short
        server.bind(f"socket{ending}")
        os.chdir(place)
    for name in ("folder", "pipe", "circle", "nowhere", "device", "kernel", "memory", "socket"):
        yield name, str(folder / f"{name}{ending}")
    yield "too long", f"/{'x' * 400}{ending}"
    yield "far too long", f"{'/x' * 30_000}{ending}"
    yield "digits", f"./{'9' * 30}{ending}"
    yield "a null", f"a\0b{ending}"
    yield "no text", os.fsdecode(b"/tmp/\xff\xfe") + ending
    yield "escapes", f"./{MARKS}{ending}"
