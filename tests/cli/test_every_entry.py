"""Every entry of the terminal with every kind of file, each in every way that a file can be wrong.

What each command takes is asked of its parser, so that a command or an argument without a case here is found.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from kvplanner.cli.main import COMMANDS
from tests.cli.hostile_files import KINDS, ODD, contents, no_files
from tests.cli.kit import OBEYED, Ran, Terminal
from tests.patience import processor_seconds

pytestmark = pytest.mark.slow

MIB = 1 << 20
GPU = "--gpu H100"
# Each command with a file in each place that takes one ({}); none for those that read no file.
READS: Final[dict[str, tuple[str, ...]]] = {
    "plan": (f"plan {{}} {GPU}",),
    "fits": (f"fits {{}} {GPU}",),
    "compare": (f"compare {{}} Qwen3-0.6B {GPU}",),
    "together": (f"together {{}} Qwen3-0.6B {GPU}",),
    "sweep": (f"sweep {{}} {GPU} --over context=4k,8k",),
    "nodes": (f"nodes {{}} {GPU} --load 8@100+100",),
    "report": (f"report {{}} {GPU} -o -",),
    "inspect": ("inspect {}",),
    "diagnose": ("diagnose {}", f"diagnose {{}} {GPU} --model Qwen3-0.6B"),
    "calibrations": (f"calibrations add {{}} {GPU}", "calibrations import {}"),
    "models": (),
    "gpus": (),
    "data": ("data add {}",),
}
# Each flag that writes a file, and the positional that does.
_LOGS: Final = Path(__file__).parents[1] / "diagnose" / "logs" / "vllm"
LOG: Final = str(_LOGS / "0110-kv-too-small.log")
STARTED: Final = str(next(iter(sorted(_LOGS.glob("0170-ok*")))))
WRITES: Final[dict[str, str]] = {
    "plan --save": f"plan Qwen3-0.6B {GPU} --save {{}}.kvplan.json",
    "report --output": f"report Qwen3-0.6B {GPU} -o {{}}.html",
    "diagnose --report": f"diagnose {LOG} --report {{}}.md",
    "calibrations export": "calibrations export {}.json",
}
NAMES_FILE = ("FILE", "MODEL", "PLAN", "LOG")
# A command that runs, to which a flag is added.
BASE: Final[dict[str, str]] = {
    **{command: words[0].format("Qwen3-0.6B") for command, words in READS.items() if words},
    "diagnose": f"diagnose {LOG}",
    "calibrations": "calibrations list",
    "data": "data list",
    "models": "models qwen",
    "gpus": "gpus h100",
}


def arguments(command: str) -> list[argparse.Action]:
    """What a command takes, of its own parser."""
    parser: argparse.ArgumentParser = import_module(f"kvplanner.cli.{command}").parser()
    return [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]


ALL = tuple(command for command in COMMANDS if command != "gui")


def test_every_command_has_its_cases() -> None:
    assert set(READS) == set(ALL)
    writes = {"calibrations export"}
    for command in ALL:
        for action in arguments(command):
            said = str(action.metavar or "")
            named = any(word in NAMES_FILE for word in said.split("|"))
            if named and not action.option_strings:
                assert READS[command], f"{command} {said}"
            elif named and said == "FILE":
                writes.add(f"{command} {action.option_strings[-1]}")
    assert writes == set(WRITES)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """Nothing may be asked: the addresses that were, for the assertion."""
    asked: list[object] = []

    def connect(_: socket.socket, address: object) -> None:
        asked.append(address)
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for name in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME", "HOME",
                 "KVPLANNER_DATA_DIR"):  # fmt: skip
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    return asked


def ended_well(terminal: Terminal, words: list[str], what: object) -> Ran:
    """Runs a command, which has a second of the processor and one line to say what is wrong."""
    with processor_seconds(1.0, what):
        ran = terminal(*words)
    assert ran.status in (0, 1, 2), (what, ran)
    assert not [c for c in OBEYED if c in ran.out + ran.err], what
    if ran.status == 2 and not ran.out:
        assert len(ran.err.splitlines()) == 1, (what, ran.err)
        assert ran.err.startswith("kvplanner: "), (what, ran.err)
        assert len(ran.err) < 2000, what
    return ran


@pytest.mark.parametrize("kind", KINDS)
def test_every_wrong_file_ends_in_one_line(
    terminal: Terminal, tmp_path: Path, no_network: list[object], kind: str
) -> None:
    """Each content is planned, and given to two of the other commands in turn."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = tmp_path / kind
    others = [words for command in ALL for words in READS[command] if command != "plan"]
    answered = 0
    for number, (name, data) in enumerate(contents(), KINDS.index(kind)):
        path.write_bytes(data)
        for words in (READS["plan"][0], others[number % len(others)], others[(number * 7 + 5) % len(others)]):
            ran = ended_well(terminal, [word.format(path) for word in words.split()], (name, words))
            answered += ran.status == 2 and not ran.out
    assert answered > 60
    assert no_network == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 * 1024


@pytest.mark.parametrize("command", [command for command in ALL if READS[command]])
def test_what_is_no_file_ends_in_one_line(
    terminal: Terminal, tmp_path: Path, no_network: list[object], command: str
) -> None:
    for ending in (".kvplan.json", ".log", ".gguf", ".yaml", ""):
        folder = tmp_path / f"of{ending}"
        folder.mkdir()
        for name, path in no_files(folder, ending):
            for words in READS[command]:
                ran = ended_well(terminal, [word.format(path) for word in words.split()], (name, words))
                assert ran.status == 2 or name in ("kernel", "memory"), (name, ran)
    assert no_network == []


@pytest.mark.parametrize("case", WRITES)
def test_what_cannot_be_written_is_told_in_one_line(
    terminal: Terminal, tmp_path: Path, no_network: list[object], case: str
) -> None:
    if case == "calibrations export":
        assert terminal("calibrations", "add", STARTED, "--model", "Qwen3-8B", "--gpu", "H100").status == 0
    ending = WRITES[case].split("{}")[1]
    for name, path in no_files(tmp_path, ending):
        if name in ("nowhere", "memory", "digits", "escapes", "kernel", "no text"):
            continue  # a file may be made there
        words = [word.replace("{}" + ending, path) for word in WRITES[case].split()]
        ran = ended_well(terminal, words, (name, words))
        assert ran.status == 2, (name, ran)
        assert "cannot be" in ran.err, (name, ran.err)
    assert (tmp_path / f"pipe{ending}").is_fifo()
    assert not list(tmp_path.glob(".kvplanner*"))


@pytest.mark.parametrize("case", WRITES)
def test_a_full_disk_is_told_in_one_line_and_takes_nothing(
    terminal: Terminal,
    tmp_path: Path,
    no_network: list[object],
    full_disk: Callable[[], AbstractContextManager[None]],
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    """What was there stays as it was, and nothing half written beside it."""
    monkeypatch.setenv("KVPLANNER_DATA_DIR", str(tmp_path / "data"))
    if case == "calibrations export":
        assert terminal("calibrations", "add", STARTED, "--model", "Qwen3-8B", "--gpu", "H100").status == 0
    ending = WRITES[case].split("{}")[1]
    path = tmp_path / f"kept{ending}"
    words = [word.replace("{}" + ending, str(path)) for word in WRITES[case].split()]
    assert terminal(*words).status in (0, 1)
    before = path.read_bytes()
    with full_disk():
        ran = ended_well(terminal, words, case)
    assert ran.status == 2
    assert "cannot be" in ran.err, ran.err
    assert "no space left on device" in ran.err.lower(), ran.err
    assert path.read_bytes() == before
    assert not list(tmp_path.rglob(".kvplanner*"))


def test_a_full_disk_loses_no_calibration_and_no_pack(
    terminal: Terminal,
    tmp_path: Path,
    no_network: list[object],
    full_disk: Callable[[], AbstractContextManager[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KVPLANNER_DATA_DIR", str(tmp_path / "data"))
    add = ("calibrations", "add", STARTED, "--model", "Qwen3-8B", "--gpu", "H100")
    with full_disk():
        ran = ended_well(terminal, [*add], "add")
        assert ran.status == 2
        assert "no space left" in ran.err.lower(), ran.err
    assert terminal(*add).status == 0
    kept = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    number = terminal("calibrations", "list").out.split()[0]
    with full_disk():
        for words in (["calibrations", "remove", number], [*add]):
            ran = ended_well(terminal, words, words)
            assert ran.status in (1, 2), ran
    assert {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()} == kept


@pytest.mark.parametrize("kind", KINDS)
def test_a_sparse_terabyte_is_not_read(terminal: Terminal, tmp_path: Path, no_network: list[object], kind: str) -> None:
    path = tmp_path / kind
    with path.open("wb") as file:
        file.truncate(1 << 40)
    for words in (
        [*READS["plan"][0].split()],
        ["inspect", "{}"],
        ["data", "add", "{}"],
        ["calibrations", "import", "{}"],
    ):
        if kind.endswith((".txt", ".log")) and words[0] == "plan":
            continue  # read as a log: to its end, or as much as a log may have
        with processor_seconds(1.0, words):
            ran = terminal(*(word.format(path) for word in words))
        assert ran.status == 2
        assert len(ran.err.splitlines()) == 1
    assert no_network == []


@pytest.mark.parametrize("command", ALL)
def test_no_flag_takes_the_mark_before_the_engines_flags_for_its_value(
    terminal: Terminal, no_network: list[object], command: str
) -> None:
    for action in arguments(command):
        for flag in action.option_strings if action.nargs != 0 else ():
            words = f"{flag}=--" if flag.startswith("--") else f"{flag}--"
            ran = ended_well(terminal, [*BASE[command].split(), words], (command, words))
            assert ran.status == 2, (command, words)
            assert f"{flag}: expected a value" in ran.err, (command, words)


@pytest.mark.parametrize("command", ALL)
def test_every_flag_refuses_nonsense_in_one_line(
    terminal: Terminal, tmp_path: Path, no_network: list[object], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with all of it where plan has it, and with some of it where other commands take the same."""
    monkeypatch.chdir(tmp_path)
    of_plan = {flag for action in arguments("plan") for flag in action.option_strings}
    flags = [action.option_strings[-1] for action in arguments(command) if action.option_strings and action.nargs != 0]
    for number, flag in enumerate(flags):
        shared = command != "plan" and flag in of_plan
        for value in ODD[number % 5 :: 5] if shared else ODD:
            words = [flag, value]
            ended_well(terminal, [*BASE[command].split(), *words], (command, flag, value[:20]))
    assert no_network == []
    assert not list(Path(os.path.pardir).glob("x"))
