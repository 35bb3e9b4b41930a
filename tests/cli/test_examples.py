"""Commands that help and errors suggest are commands that work."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvplanner
from kvplanner.catalog import models
from kvplanner.cli import plan
from kvplanner.engine.registry import engine, names
from kvplanner.request.flags import OURS
from tests.cli.kit import Terminal

pytestmark = pytest.mark.slow

# Flags of other commands and programs that an error may name.
_ELSEWHERE = {
    "--help",
    "--model",
    "--trust",
    "--local",
    "--watch",
    "--screenshot",
    "--size",
    "--scale",
    "--tab",
    "--theme",
    "--safe-mode",
    "--counts",
    "--over",
    "--points",
}
# Of an engine, to be typed where it runs.
_ELSEWHERE |= {"--version"}
# Flags that are refused, where the error tells to leave them out or what is refused.
_ERRORS = {"BadInput", "NotModelled", "UnknownName", "FlagRule", "Rule"}


def examples() -> list[str]:
    text = plan.parser().format_help().split("examples:")[1].split("\n\n")[0]
    return [line.strip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("line", examples())
def test_examples_of_the_help_run(
    line: str, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(models.record("Qwen/Qwen3-8B")["config"]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(line)
    assert program == "kvplanner"
    ran = terminal(*words)
    assert ran.status in (0, 1), ran.err
    assert ran.out


def test_there_are_examples() -> None:
    assert len(examples()) >= 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("Qwen3-8B --gpu A100 80GB", 'Put quotes round a name with blanks: --gpu "A100 80GB"'),
        ("Qwen3-8B --gpu 2xRTX PRO 6000", 'Put quotes round a name with blanks: --gpu "2xRTX PRO 6000"'),
        ("Qwen3-8B --gpu H100 Llama-3", "'Llama-3' belongs to no flag. Name one model; GPUs go with --gpu\n"),
        ("--gpu H100 vllm bench throughput --model Qwen3-8B", "vllm bench starts no server. Write -- vllm serve MODEL"),
        ("--gpu H100 -- vllm bench latency --model Qwen3-8B", "vllm bench starts no server. Write -- vllm serve MODEL"),
        ("--gpu H100 -- /opt/bin/vllm run-batch -i in.jsonl", "vllm run-batch starts no server. "),
        ("Qwen3-8B --gpu H100 --free 5=70GiB", "there is no GPU '5'. Write 0=70GiB for the only GPU"),
        ("Qwen3-8B --gpu 2xH100 --free 5=70GiB", "there is no GPU '5'. Write GPU=SIZE with a GPU from 0 to 1"),
    ],
)
def test_advice_names_what_works(words: str, said: str, terminal: Terminal) -> None:
    ran = terminal("plan", *words.split())
    assert ran.status == 2
    assert said in ran.err


def _told() -> Iterator[tuple[str, str]]:
    """The texts of errors in the source, with their places."""
    root = Path(kvplanner.__file__).parent
    for path in sorted(root.rglob("*.py")):
        engine_of = path.relative_to(root).parts[1:2] if path.relative_to(root).parts[0] == "engine" else ()
        if engine_of and (root / "engine" / engine_of[0]).is_dir() and engine_of[0] not in {*names(), "shared"}:
            continue  # the parts of an engine that nobody can choose yet
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ERRORS:
                remedy = node.args[2:3] + [k.value for k in node.keywords if k.arg == "remedy"]
                texts = [part.value for text in remedy for part in ast.walk(text) if isinstance(part, ast.Constant)]
                yield f"{path.name}:{node.lineno}", " ".join(text for text in texts if isinstance(text, str))


def test_no_advice_names_a_flag_that_is_refused_or_unknown() -> None:
    known = {*OURS, *_ELSEWHERE}
    refused: set[str] = set()
    for name in names():
        chosen = engine(name)
        for option in (o for version in (None, *chosen.versions) for o in chosen.options(version)):
            known |= {*option.flags, option.negation}
        refused |= {flag for flag, rule in chosen.ignored_flags().items() if rule.reason}
    seen = 0
    for place, text in _told():
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text):
            seen += 1
            assert flag in known, f"{place}: {flag} is known nowhere"
            assert flag not in refused, f"{place}: {flag} is refused"
    assert seen > 20
