"""Engines recognised from real processes and from command lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil  # noqa: TID253 - what is tested rests on it
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.observe.processes import ProcessBook, installed_version
from kvplanner.observe.signatures import recognise
from tests.patience import LONG_S, wait_for

VLLM = "/opt/venv/bin/vllm"


@pytest.mark.parametrize(
    ("command", "engine", "server"),
    [
        (["/opt/venv/bin/python3", VLLM, "serve", "Qwen/Qwen3-8B", "-tp", "2"], "vllm", True),
        ([VLLM, "serve", "org/name"], "vllm", True),
        (["python3", "-u", VLLM, "serve", "org/name"], "vllm", True),
        (["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "x"], "vllm", True),
        (["python", "-m", "vllm.entrypoints.api_server", "--model", "x"], "vllm", True),
        (["python", "-m", "vllm.entrypoints.cli.main", "serve", "x"], "vllm", True),
        (["VLLM::EngineCore"], "vllm", False),
        (["VLLM::Worker_TP3_EP3"], "vllm", False),
        (["ray::RayWorkerWrapper.execute_method"], "vllm", False),
        (["/usr/bin/llama-server", "-m", "a.gguf", "-ngl", "99"], "llamacpp", True),
        (["C:\\tools\\llama-server.exe", "-m", "a.gguf"], "llamacpp", True),
        (["/usr/local/bin/ollama", "runner", "--model", "/blob", "--port", "41"], "ollama", True),
        (["/usr/local/bin/ollama", "serve"], "ollama", True),
        (["/opt/ollama/runners/cuda_v12/ollama_llama_server", "--model", "/blob"], "ollama", True),
        (["python3", "-m", "sglang.launch_server", "--model-path", "x"], "sglang", True),
        (["sglang::scheduler_TP0"], "sglang", False),
    ],
)  # fmt: skip
def test_recognised(command: list[str], engine: str, server: bool) -> None:
    found = recognise(command)
    assert found is not None
    assert (found.signature.engine, found.server) == (engine, server)


@pytest.mark.parametrize(
    "command",
    [
        [], ["bash"], ["vim", "vllm", "serve"], ["grep", "vllm", "serve"], ["python", "train.py", "vllm", "serve"],
        ["python", "-m", "vllm_bench"], ["cat", "/usr/bin/llama-server"], ["vllm", "bench", "serve"],
        ["tail", "-f", "ollama", "serve"], ["VLLM"],
    ],
)  # fmt: skip
def test_not_recognised(command: list[str]) -> None:
    assert recognise(command) is None


@given(st.lists(st.one_of(st.text(max_size=20), st.sampled_from(["vllm", "serve", "-m", "python", "VLLM::x"]))))
def test_any_command_line_is_looked_at(command: list[str]) -> None:
    found = recognise(command)
    assert found is None or found.signature.engine


def test_the_words_after_the_start_are_the_flags() -> None:
    found = recognise(["python", VLLM, "serve", "org/name", "--max-model-len", "32k"])
    assert found is not None
    assert found.rest == ("org/name", "--max-model-len", "32k")


SERVER = """
import os, subprocess, sys, time
inner = "(exec -a VLLM::Worker_TP0 sleep 600) & exec -a VLLM::EngineCore sleep 600"
child = subprocess.Popen(["bash", "-c", inner])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def vllm_like(tmp_path: Path) -> Iterator[psutil.Process]:
    """A process tree that looks like a running vLLM: a script `vllm` and children with their own titles."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash to give a process another title")
    script = tmp_path / "bin" / "vllm"
    script.parent.mkdir()
    script.write_text(SERVER)
    command = [sys.executable, str(script), "serve", "org/model", "--max-model-len", "4096"]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "0"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, env=env, start_new_session=True)
    assert server.stdout is not None
    server.stdout.readline()
    parent = psutil.Process(server.pid)

    def named() -> bool:
        titles = {tuple(c.cmdline()[:1]) for c in parent.children(recursive=True)}
        return titles == {("VLLM::EngineCore",), ("VLLM::Worker_TP0",)}

    wait_for(named)
    family = parent.children(recursive=True)
    yield parent
    for process in [*family, parent]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    server.wait(LONG_S)
    server.stdout.close()


def test_children_belong_to_the_server_that_was_started(vllm_like: psutil.Process) -> None:
    book = ProcessBook(foreign=False)
    worker = next(c for c in vllm_like.children(recursive=True) if "Worker" in "".join(c.cmdline()[:1]))
    row = book.describe(worker.pid, "VLLM::Worker_TP0", 1000)
    assert row.local
    assert row.user == psutil.Process().username()
    assert (row.engine, row.root_pid) == ("vllm", vllm_like.pid)
    (seen,) = book.engines(())
    assert (seen.pid, seen.title) == (vllm_like.pid, "vLLM")
    assert seen.command[-4:] == ("serve", "org/model", "--max-model-len", "4096")


def test_a_llama_server_of_ollama_is_ollamas(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash to give a process another title")
    (tmp_path / "serve").write_text("(exec -a /usr/lib/ollama/llama-server sleep 600) & echo $!; wait\n")
    command = ["/usr/local/bin/ollama", "serve"]
    with subprocess.Popen(command, executable=bash, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as serve:
        assert serve.stdout is not None
        runner = psutil.Process(int(serve.stdout.readline()))
        wait_for(lambda: "llama-server" in "".join(runner.cmdline()[:1]))
        row = ProcessBook(foreign=False).describe(runner.pid, "", 5)
        serve.kill()
        runner.kill()
    assert (row.engine, row.root_pid) == ("ollama", serve.pid)


def test_engines_are_found_without_the_drivers_help_and_forgotten_when_gone(vllm_like: psutil.Process) -> None:
    book = ProcessBook(foreign=False)
    book.look_around()
    assert vllm_like.pid in {e.pid for e in book.engines(())}
    for process in [*vllm_like.children(recursive=True), vllm_like]:
        process.kill()

    def forgotten() -> bool:
        with suppress(ChildProcessError):
            os.waitpid(vllm_like.pid, os.WNOHANG)
        book.forget_old()
        return all(e.pid != vllm_like.pid for e in book.engines(()))

    wait_for(forgotten)


def test_a_pid_of_the_host_is_not_looked_up_in_a_container() -> None:
    book = ProcessBook(foreign=True)
    row = book.describe(os.getpid(), "some-host-program", 5)
    assert not row.local
    assert (row.name, row.command, row.user, row.root_pid) == ("some-host-program", (), "", None)
    nameless = book.describe(os.getpid(), "", 5)
    assert not nameless.local
    same = book.describe(os.getpid(), psutil.Process().cmdline()[0], 5)
    assert same.local


def test_a_vanished_pid_is_a_row_without_a_name() -> None:
    row = ProcessBook().describe(4_000_000, "", None)
    assert (row.pid, row.name, row.local, row.memory.value) == (4_000_000, "", False, None)
    assert row.memory.reason


def test_installed_version(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    (packages / "vllm-0.19.1.dist-info").mkdir(parents=True)
    (packages / "vllm_ascend-1.0.dist-info").mkdir()
    assert installed_version(tmp_path / "bin" / "python3", ("vllm",)) == "0.19.1"
    assert installed_version(tmp_path / "bin" / "python3", ("sglang",)) == ""
