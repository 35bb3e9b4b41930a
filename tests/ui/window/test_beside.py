"""Files that are loaded beside a model, dropped on a window: a projector, an adapter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from kvplanner.app.opening import classify
from kvplanner.observe.engines import EngineLaunch
from kvplanner.observe.snapshot import EngineSeen
from kvplanner.ui.window.window import MainWindow
from tests.source import make_gguf


@pytest.mark.parametrize(
    ("pairs", "what", "option"),
    [
        ([("general.architecture", make_gguf.STRING, "clip")], "projector", "mmproj_size"),
        ([("general.architecture", make_gguf.STRING, "llama"), ("general.type", make_gguf.STRING, "adapter")],
         "adapter", "lora_size"),
    ],
)  # fmt: skip
def test_a_dropped_projector_or_adapter_counts_with_the_model(
    open_window: Callable[..., MainWindow], tmp_path: Path, pairs: list[make_gguf.Pair], what: str, option: str
) -> None:
    path = make_gguf.write(tmp_path / "beside.gguf", pairs, make_gguf.llama_tensors())
    assert classify(path).what == what
    assert f"Load the {what} beside.gguf beside the model" in classify(path).sentence
    window = open_window(model="gemma-3-4b-it", gpu="RTX 3090", engine="llamacpp")
    window.opening.open_path(path)
    window.document.flush()
    plan = window.document.plan
    assert plan is not None
    assert plan.request.options == {option: path.stat().st_size}
    window.document.undo()
    assert window.document.state.ask.options == {}
    # An engine that loads no such file says so, and changes nothing.
    window.document.edit("Change engine", engine="vllm", version=None)
    window.opening.open_path(path)
    assert window.document.state.ask.options == {}


def test_a_broken_file_is_told_as_a_model_would_be(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + bytes(3))
    assert classify(tmp_path / "a.gguf").what == "model"
    path = make_gguf.write(tmp_path / "b.gguf", make_gguf.llama_pairs(), make_gguf.llama_tensors())
    assert classify(path).what == "model"


def test_a_running_servers_projector_counts_where_its_model_is_a_repositorys(
    open_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama-server -hf fetches it without being asked."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--org--Seeing-GGUF" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    make_gguf.write(snapshot / "Seeing-Q8_0.gguf", make_gguf.llama_pairs(arch="gemma3"), make_gguf.llama_tensors())
    (snapshot / "mmproj-f16.gguf").write_bytes(bytes(5000))
    window = open_window(model="gemma-3-4b-it", gpu="RTX 3090", engine="llamacpp")
    model = "org/Seeing-GGUF:Q8_0"
    seen = EngineSeen(4711, 0.0, "llamacpp", "llama-server", ("llama-server", "-hf", model))
    for unasked, options in ((frozenset[str](), {"ctx_size": 4096, "mmproj_size": 5000}),
                             (frozenset({"--no-mmproj"}), {"ctx_size": 4096})):  # fmt: skip
        launch = EngineLaunch(seen, model, {"ctx_size": 4096}, window.document.state.machine, unasked=unasked)
        window.opening.plan_launch(launch)
        qtbot.waitUntil(partial(planned_with, window, options), timeout=10_000)
    assert window.document.state.model_text == model


def test_a_gguf_file_is_planned_for_the_engine_that_loads_it(
    open_window: Callable[..., MainWindow], qtbot: QtBot, tmp_path: Path
) -> None:
    """In one step that undo takes back; an engine that loads it stays."""
    path = make_gguf.write(tmp_path / "a.gguf", make_gguf.llama_pairs(), make_gguf.llama_tensors())
    window = open_window(gpu="RTX 3090")
    with qtbot.waitSignal(window.messages.posted, timeout=10_000) as posted:
        window.opening.open_path(path)
    assert posted.args is not None
    assert posted.args[0].text == "vLLM does not load a.gguf: planned for llama.cpp"
    window.document.flush()
    assert window.document.plan is not None
    assert window.document.plan.request.engine == "llamacpp"
    assert window.document.plan.fits
    window.document.undo()
    assert window.document.state.ask.engine == "vllm"
    window.document.edit("Ollama", engine="ollama", version=None)
    window.opening.open_path(path)
    qtbot.waitUntil(lambda: window.document.state.model_text == str(path), timeout=10_000)
    assert window.document.state.ask.engine == "ollama"


def planned_with(window: MainWindow, options: dict[str, int]) -> bool:
    return dict(window.document.state.ask.options) == options
