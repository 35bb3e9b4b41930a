"""An engine's own program is asked, within bounds: a stand-in prints what llama.cpp printed for this file."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import sys
from pathlib import Path
from time import monotonic

import pytest

from kvplanner.catalog import gpus
from kvplanner.cli.main import run
from kvplanner.engine.option import OptionValue
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from kvplanner.observe.crosscheck import cross_check, lacking
from kvplanner.report.crosscheck import lines, rows, to_json
from kvplanner.source.resolve import open_path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")
SLEEPS_S = 600  # as the server below; it is ended long before
# Sizes of the oracle's case of this model at 8,192 tokens, with logits for every token, in whole MiB.
SIZES = "CUDA0 4403 1024 258 \nHost 281 0 24 \n"
FIT_PARAMS = """
import sys
if "--fit-print" in sys.argv:
    sys.stdout.write({sizes!r})
elif {fits}:
    print("0.00.1 I llama_fit_params: printing fitted CLI arguments to stdout...", file=sys.stderr)
    print("-c 8192 -ngl -1")
else:
    print("failed to fit CLI arguments to free memory, exiting...", file=sys.stderr)
    sys.exit(1)
"""
SERVER = """
import sys, time
assert "-lv" in sys.argv and "--fit" in sys.argv
say = lambda text: print(text, file=sys.stderr, flush=True)
say("common_memory_breakdown_print: |   - CUDA0 (RTX 4090)   | 24076 = 23650 + (9999 =  4403 +    9999 +     116) +       -5117 |")
say("common_memory_breakdown_print: |   - CUDA0 (RTX 4090)   | 24076 = 23650 + (5543 =  4403 +    1024 +     116) +       -5117 |")
say("common_memory_breakdown_print: |   - Host               |                   305 =   281 +       0 +      24                |")
say("common_fit_params: fitting params to free memory took 0.81 seconds")
time.sleep(600)
"""  # noqa: E501 - lines as they are printed


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Llama-3.1-8B Q4_K_M: its header, and nothing behind it."""
    packed = Path(__file__).parents[1] / "source" / "gguf_oracle" / "llama31-8b-q4km.gguf.gz"
    path = tmp_path_factory.mktemp("model") / "llama31-8b-q4km.gguf"
    with path.open("wb") as file:
        file.write(gzip.decompress(packed.read_bytes()))
        file.truncate(5 << 30)  # no byte of it is written
    return path


def installed(folder: Path, name: str, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program on the PATH that is this text of Python."""
    script = folder / name
    script.write_text(f"#!{sys.executable} -IS\n{program}")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def planned(path: Path, **options: OptionValue) -> Plan:
    return engine("llamacpp").plan(PlanRequest(open_path(path), gpus.machine("RTX 4090"), "llamacpp", None, options))


def test_what_the_program_chooses_and_says_is_compared_as_it_counts(
    tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "llama-fit-params", FIT_PARAMS.format(sizes=SIZES, fits=True), monkeypatch)
    plan = planned(model_file, cache_type_k="f16")
    answer = cross_check(plan, str(model_file))
    assert answer.command.endswith("--cache-type-k f16 -c 8192 -ngl -1 --fit-print on")
    found = list(rows(plan, answer))
    assert [(row.device, row.kind, row.engine >> 20) for row in found] == [
        ("GPU 0", "weights", 4403), ("GPU 0", "kv_cache", 1024), ("GPU 0", "compute", 258),
        ("Host", "weights", 281), ("Host", "compute", 24),
    ]  # fmt: skip
    assert all(row.agrees for row in found)
    text = "\n".join(lines(plan, answer, "GiB"))
    assert "llama-fit-params agrees: every figure lies within the plan's range." in text
    assert "It counts one slot where a server has 4" in text
    assert "It chooses -c 8192 -ngl -1 for what is free here." in text
    assert to_json(plan, answer)["rows"][0]["engine_bytes"] == 4403 << 20


def test_what_differs_is_told(tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = SIZES.replace("258", "516").replace("Host", "CUDA1 1 1 1 \nHost")
    installed(tmp_path, "llama-fit-params", FIT_PARAMS.format(sizes=sizes, fits=False), monkeypatch)
    plan = planned(model_file, ctx_size=8192)
    answer = cross_check(plan, str(model_file))
    text = "\n".join(lines(plan, answer, "GiB"))
    assert "-49.9 %" in text
    assert "agrees on 4 of 5 figures" in text
    assert "not planned" in text
    assert "It sees 2 GPUs where 1 is planned" in text
    assert "It finds nothing that fits this machine" in text


def test_a_server_is_ended_once_it_has_measured(
    tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "llama-server", SERVER, monkeypatch)
    plan = planned(model_file, ctx_size=8192)
    start = monotonic()
    answer = cross_check(plan, str(model_file), seconds=SLEEPS_S / 2)
    assert monotonic() - start < SLEEPS_S / 2
    assert answer.program == "llama-server"
    assert len(answer.rows) == 6
    assert all(row.agrees for row in rows(plan, answer))


@pytest.mark.slow
def test_it_is_ended_when_its_time_is_over(tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "pid"
    installed(
        tmp_path, "llama-fit-params",
        f"import os, time\nopen({str(written)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)", monkeypatch,
    )  # fmt: skip
    with pytest.raises(BadInput, match=r"no answer within 0.7 seconds"):
        cross_check(planned(model_file), str(model_file), seconds=0.7)
    if written.exists() and written.read_text():
        with pytest.raises(ProcessLookupError):
            os.kill(int(written.read_text()), 0)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys\nprint('error: failed to load model', file=sys.stderr)\nsys.exit(1)",
         r"llama-fit-params gives no sizes: error: failed to load model\. Run it by hand: llama-fit-params -m "),
        ("import sys\nprint('error: invalid argument: --fit-print', file=sys.stderr)\nsys.exit(1)",
         "gives no sizes: it is older than April 2026"),
        ("import os\nos.kill(os.getpid(), 11)", "gives no sizes: nothing, and ends with status -11"),
        ("import sys\nsys.stdout.buffer.write(bytes(range(256)) * 20_000)", "gives no sizes: "),
        ("print('CUDA0 1 2\\nHost -1 x 3\\n' * 50_000)", "gives no sizes: Host -1 x 3"),
    ],
)  # fmt: skip
def test_what_it_says_instead_of_sizes_is_handed_on(
    program: str, said: str, tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "llama-fit-params", program, monkeypatch)
    with pytest.raises(BadInput, match=said):
        cross_check(planned(model_file, ctx_size=8192, n_gpu_layers="all"), str(model_file))


def test_a_build_that_does_not_know_a_flag_is_asked_without_it(
    tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = """
import sys
for flag in ("--ctx-checkpoints", "--no-op-offload"):
    if flag in sys.argv:
        print("error: invalid argument: " + flag, file=sys.stderr)
        sys.exit(1)
"""
    program = refuses + FIT_PARAMS.format(sizes=SIZES, fits=True)
    installed(tmp_path, "llama-fit-params", program, monkeypatch)
    answer = cross_check(planned(model_file, ctx_checkpoints=3, op_offload=False), str(model_file))
    assert len(answer.rows) == 6
    assert "--ctx-checkpoints" not in answer.command
    assert "It does not know --ctx-checkpoints, and is asked without" in answer.notes
    assert "It does not know --no-op-offload, and is asked without" in answer.notes


def test_where_the_first_program_fails_the_next_one_is_asked(
    tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder with blanks, for a file with blanks."""
    folder = tmp_path / "my tools (old)"
    folder.mkdir()
    file = folder / "a model's file.gguf"
    file.symlink_to(model_file)
    installed(folder, "llama-server", SERVER, monkeypatch)
    installed(folder, "llama-fit-params", "import sys\nsys.exit(1)", monkeypatch)
    plan = planned(file, ctx_size=8192)
    answer = cross_check(plan, str(file))
    assert answer.program == "llama-server"
    assert shlex.split(answer.command)[2] == str(file)
    assert all(row.agrees for row in rows(plan, answer))


def test_nothing_runs_where_nothing_can_answer(
    tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = planned(model_file)
    assert "Neither llama-fit-params nor llama-server is on this machine's PATH" in lacking(plan, str(model_file))
    installed(tmp_path, "llama-server", SERVER, monkeypatch)
    assert "needs a GGUF file" in lacking(plan, "")
    assert lacking(plan, str(model_file)) == ""
    other = plan._replace(request=plan.request._replace(engine="vllm"))
    assert "has no program" in lacking(other, str(model_file))


def test_the_terminal_shows_it_beside_the_plan(
    tmp_path: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path, "llama-fit-params", FIT_PARAMS.format(sizes=SIZES, fits=True), monkeypatch)
    words = ["plan", str(model_file), "--gpu", "RTX 4090", "--engine", "llamacpp", "--cross-check"]
    assert run(words) == 0
    assert "agrees: every figure" in capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["cross_check"]
    assert told["program"] == "llama-fit-params"
    assert [row["agrees"] for row in told["rows"]] == [True] * 5
