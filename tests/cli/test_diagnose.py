"""kvplanner diagnose: what a cut log leaves open is said, and may be set behind --."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.kit import Terminal, in_this_process

LOGS = Path(__file__).parents[1] / "diagnose" / "logs" / "vllm"


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return in_this_process(capsys, monkeypatch)


@pytest.fixture
def cut(tmp_path: Path) -> str:
    """A log without its command line, of two ranks."""
    text = (LOGS / "085-tp2-ok-interleaved.log").read_text("utf-8").splitlines(keepends=True)
    path = tmp_path / "cut.log"
    path.write_text("".join(line for line in text if "Namespace(" not in line and "LLM engine" not in line), "utf-8")
    return str(path)


def test_what_is_assumed_is_said_and_ranks_are_counted(terminal: Terminal, cut: str) -> None:
    text = terminal("diagnose", cut, "--gpu", "2xRTX 4090").out
    assert "assumed, as the log does not state it: pipeline parallel 1, data parallel 1, utilisation 0.9," in text
    assert "tensor parallel 2" not in text.split("assumed", 1)[1].split("\n", 1)[0]
    document = json.loads(terminal("diagnose", cut, "--gpu", "2xRTX 4090", "--json").out)
    assert (document["gpus"], document["options"]["tensor_parallel_size"]) == (2, 2)


def test_engine_flags_set_what_the_log_leaves_open_and_nothing_else(terminal: Terminal, cut: str) -> None:
    words = ("diagnose", cut, "--gpu", "2xRTX 4090", "--json")
    document = json.loads(terminal(*words, "--", "--gpu-memory-utilization", "0.87", "--kv-cache-dtype", "fp8").out)
    assert document["options"]["gpu_memory_utilization"] == 0.87
    assert document["options"]["kv_cache_dtype"] == "fp8"
    refused = terminal(*words, "--", "--max-model-len", "100")
    assert refused.status == 2
    assert "the log states max_model_len itself" in refused.err
    whole = terminal("diagnose", str(LOGS / "085-tp2-ok-interleaved.log"), "--", "--gpu-memory-utilization", "0.87")
    assert whole.status == 2
    assert terminal(*words, "--", "more").status == 2
