"""The terminal against what others made: names of processes and GPUs, plan files, paths, and an output that fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.kit import OBEYED, Terminal, process
from tests.nvml_stub.build import library_folder
from tests.patience import LONG_S, process_slowness, processor_seconds

pytestmark = pytest.mark.slow

EVIL = "\x1b]0;owned\x07\x1b[31m\u202e\x9b2J<b>x</b>"
CARD = """driver = 580.95.05
[gpu 0]
name = NVIDIA <b>H100</b>\x1b[31m\u202e
uuid = GPU-aaaa
pci = 0000:01:00.0
total_mib = 81559
reserved_mib = 600
used_mib = 9000
compute = {pid}:5000
"""


@pytest.fixture
def card(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A machine whose GPU and process are named to do harm."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", EVIL]) as running:
        scenario = tmp_path / "evil.ini"
        scenario.write_text(CARD.format(pid=running.pid), encoding="utf-8")
        yield {"LD_LIBRARY_PATH": str(library_folder()), "NVML_STUB_SCENARIO": str(scenario)}
        running.kill()


@pytest.mark.parametrize("words", [["gpus", "--local"], ["gpus", "--local", "--json"],
                                   ["plan", "Llama-3.1-8B-Instruct", "--gpu", "local"],
                                   ["plan", "Llama-3.1-8B-Instruct", "--gpu", "local", "--json"],
                                   ["plan", "Llama-3.1-8B-Instruct", "--gpu", "local", "--explain"],
                                   ["plan", "Llama-3.1-8B-Instruct", "--gpu", "local", "--markdown"]])  # fmt: skip
def test_no_name_of_this_machine_reaches_the_terminal_as_it_is(card: dict[str, str], words: list[str]) -> None:
    ran = process(words, env=card)
    assert "H100" in ran.out + ran.err
    assert not [c for c in OBEYED if c in ran.out + ran.err]
    if "--json" in words:
        assert json.loads(ran.out)


def plan_file(folder: Path, model: str, **options: str) -> Path:
    path = folder / "p.kvplan.json"
    document = {"schema": "kvplanner.planfile/1", "model": model, "machine": "1xh100-sxm5-80gb", "options": options}
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Where the Hub would be asked: the first line of each request to it, which gets no answer."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.requestline)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.do_GET()

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("options", [{}, {"speculative_model": "hub:c/d", "speculative_method": "draft_model"}])
def test_a_plan_file_asks_nobody(terminal: Terminal, hub: list[str], tmp_path: Path, options: dict[str, str]) -> None:
    path = plan_file(tmp_path, "Llama-3.1-8B-Instruct" if options else "hub:a/b", **options)
    ran = terminal("plan", str(path))
    assert ran.status == 2
    assert "--online" in ran.err
    assert not hub


def test_a_plan_file_asks_when_it_may(terminal: Terminal, hub: list[str], tmp_path: Path) -> None:
    path = plan_file(tmp_path, "hub:a/b")
    ran = terminal("plan", str(path), "--online")
    assert ran.status == 2
    assert hub


@pytest.mark.parametrize("model", ["hub:a/b", "a/b@main", "https://huggingface.co/a/b"])
def test_only_a_typed_hub_name_goes_online(terminal: Terminal, hub: list[str], model: str) -> None:
    assert terminal("plan", model, "--gpu", "H100").status == 2
    assert bool(hub) == model.startswith("hub:")


def test_a_read_that_fails_is_no_output_that_fails(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error", "/mnt/models/config.json")

    monkeypatch.setattr("kvplanner.source.resolve.open_path", broken)
    ran = terminal("plan", "./model", "--gpu", "H100")
    assert ran.status == 2
    assert "output" not in ran.err.replace("input/output", "")
    assert "/mnt/models/config.json" in ran.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "words", ["plan Llama-3.1-8B-Instruct --gpu H100", "models", "--help", "plan --help", "gpus --json"]
)
def test_an_output_that_fails_is_told_as_such(words: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"exec {sys.executable} -m kvplanner {words} >/dev/full"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # what is buffered fails last of all
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("kvplanner: the output cannot be written")
    assert len(done.stderr.splitlines()) == 1


def odd_paths(folder: Path) -> dict[str, str]:
    """Arguments that name no plan, and may do harm on the way."""
    os.mkfifo(folder / "pipe.kvplan.json")
    os.mkfifo(folder / "pipe.gguf")
    (folder / "closed").mkdir(mode=0)
    (folder / "loop.kvplan.json").symlink_to("loop.kvplan.json")
    (folder / "folder.kvplan.json").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(folder)
        server.bind("socket.kvplan.json")
    (folder / "device.kvplan.json").symlink_to("/dev/zero")
    return {
        "a pipe": str(folder / "pipe.kvplan.json"), "a GGUF pipe": str(folder / "pipe.gguf"),
        "a closed folder": str(folder / "closed" / "x.kvplan.json"), "a loop": str(folder / "loop.kvplan.json"),
        "a folder": str(folder / "folder.kvplan.json"), "a socket": str(folder / "socket.kvplan.json"),
        "a device": str(folder / "device.kvplan.json"), "too long": "/" + "x" * 400 + ".kvplan.json",
        "far too long": "/x" * 30_000 + ".kvplan.json", "a null": "a\0b.kvplan.json",
        "bytes": os.fsdecode(b"/tmp/\xff\xfe.gguf"), "a user": "~nobodyatall/x.gguf", "escape": f"/{EVIL}.gguf",
    }  # fmt: skip


@pytest.mark.parametrize("command", [("plan",), ("inspect",), ()])
def test_odd_paths_end_in_one_line(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, path in odd_paths(tmp_path).items():
        with processor_seconds(1.0, kind):
            ran = terminal(*command, path)
        assert ran.status == 2, (kind, ran)
        assert len(ran.err.splitlines()) == 1, (kind, ran.err)
        assert not [c for c in OBEYED if c in ran.err], kind
        assert len(ran.err) < 3000, (kind, len(ran.err))
    (tmp_path / "closed").rmdir()  # pytest cannot enter it to clean up


def test_an_interrupt_ends_a_hanging_request_within_two_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = {
            **os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{server.getsockname()[1]}", "HF_HOME": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path),
        }  # fmt: skip
        env.pop("HF_HUB_OFFLINE", None)
        command = [sys.executable, "-m", "kvplanner", "plan", "hub:a/b", "--gpu", "H100"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as asking:
            connection, _ = server.accept()
            with connection:
                started = time.monotonic()
                asking.send_signal(signal.SIGINT)
                _, errors = asking.communicate(timeout=LONG_S)
                took = time.monotonic() - started
                assert took < 2 or took < 2 * process_slowness()
                assert asking.returncode == 130
                assert "Traceback" not in errors


@pytest.mark.parametrize("command", ["plan Qwen3-0.6B", "fits --gpu H100", "models", "report Qwen3-0.6B -o -"])
def test_an_interrupt_while_modules_load_ends_without_a_traceback(command: str) -> None:
    """The first thing that main does is raise it: as a key pressed before the command is there."""
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.startswith('kvplanner.cli'): raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from kvplanner.__main__ import main\n"
        "sys.exit(main())"
    )
    ran = process(command.split(), code=code)
    assert ran.status == 130
    assert ran.err == ""
