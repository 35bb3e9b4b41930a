"""Layers that need not be built because they are like others: the allocator does with them what it does without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.llamacpp.compute import allocator, buffers, chain, chained, laid
from kvplanner.engine.llamacpp.compute.laid import CELLS, WINDOW, Laid
from kvplanner.engine.llamacpp.compute.layers import Shape
from kvplanner.engine.option import OptionValue
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.shared.identity import forget

_ALL: dict[str, OptionValue] = {"n_gpu_layers": "99", "ctx_size": 8192}
_HALF: dict[str, OptionValue] = {"n_gpu_layers": "20", "ctx_size": 8192}
_EXPERTS: dict[str, OptionValue] = {"n_gpu_layers": "99", "n_cpu_moe": 60, "ctx_size": 32_768}
# Kinds of graph of which every layer counts: sparse attention, states, parts of each layer on the host.
_LONG: tuple[tuple[str, dict[str, OptionValue], str | None], ...] = (
    ("zai-org/GLM-5.3", _ALL, None),
    ("zai-org/GLM-5.3", _HALF, None),
    ("zai-org/GLM-5.3", _EXPERTS, None),
    ("deepseek-ai/DeepSeek-V3.2-Speciale", _HALF, "b7400"),
    ("tiiuae/Falcon-H1-7B-Instruct", {"flash_attn": "off", "ubatch_size": 1024}, "b6000"),
    ("tiiuae/falcon-mamba-7b", _HALF, None),
    ("MiniMaxAI/MiniMax-M3", _HALF, None),
    ("mistralai/Devstral-Small-2505", _HALF, None),
)
_MANY_GPUS = ("zai-org/GLM-5.3", "openai/gpt-oss-120b", "google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct")
# Only what its blocks are of is asked for.
_SHAPE = Shape("", 0, 0, 0, 0, 0, 0, 0, 0, "", "", flash=True)
_CELLS = (
    ("zai-org/GLM-5.3", "on"), ("zai-org/GLM-5.3", "off"), ("google/gemma-3n-E4B-it", "on"),
    ("google/gemma-3-27b-it", "off"), ("MiniMaxAI/MiniMax-M3", "on"), ("Qwen/Qwen3-Next-80B-A3B-Instruct", "off"),
    ("openai/gpt-oss-20b", "on"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    """Graphs are laid out here, and none that was made here stays."""
    forget()
    yield
    forget()


def _request(name: str, machine: str, options: dict[str, OptionValue], build: str | None) -> PlanRequest:
    return PlanRequest(models.load(name), gpus.machine(machine), "llamacpp", build, options)


def _laid(monkeypatch: pytest.MonkeyPatch, request: PlanRequest) -> list[tuple[Laid, int, int]]:
    """The graphs of a plan, with the cells that each is packed for."""
    found: list[tuple[Laid, int, int]] = []
    plain = Laid.reserve

    def packed(self: Laid, cells: int = 0, window: int = 0) -> tuple[int, ...]:
        found.append((self, cells, window))
        return plain(self, cells, window)

    forget()
    with monkeypatch.context() as patch:
        patch.setattr(Laid, "reserve", packed)
        assert engine("llamacpp").plan(request).devices
    return found


def _done_by(monkeypatch: pytest.MonkeyPatch, graphs: list[tuple[Laid, int, int]]) -> list[object]:
    """All that the allocator is asked for."""
    asked: list[object] = []

    def told(name: str) -> Callable[..., Any]:
        plain = getattr(allocator.Pool, name)

        def counted(self: allocator.Pool, *args: int) -> Any:
            asked.append((name, self.alignment, args))
            return plain(self, *args)

        return counted

    with monkeypatch.context() as patch:
        for name in ("take", "give"):
            patch.setattr(allocator.Pool, name, told(name))
        asked.extend(graph.reserve(cells, window) for graph, cells, window in graphs)
    return asked


@pytest.mark.parametrize(("name", "options", "build"), _LONG)
def test_layers_that_recur_take_and_free_what_they_would_each(
    monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, OptionValue], build: str | None
) -> None:
    request = _request(name, "H100", options, build)
    short = _laid(monkeypatch, request)
    assert any(graph._spans for graph, _, _ in short)
    monkeypatch.setattr(buffers, "repeated", lambda chain, host, start: (chain, []))
    whole = _laid(monkeypatch, request)
    assert _done_by(monkeypatch, short) == _done_by(monkeypatch, whole)


@pytest.mark.parametrize("build", ["b10210", "b10060"])
def test_layers_that_have_copies_of_their_own_are_all_built(monkeypatch: pytest.MonkeyPatch, build: str) -> None:
    """A pipeline keeps four copies of each view of an input, and of what the host did for a layer of MiniMax-M3."""
    request = _request("MiniMaxAI/MiniMax-M3", "6xH100", _ALL, build)
    short = _laid(monkeypatch, request)
    monkeypatch.setattr(buffers, "repeated", lambda chain, host, start: (chain, []))
    monkeypatch.setattr(buffers, "condensed", lambda chain, gpus: (chain, ()))
    whole = _laid(monkeypatch, request)
    assert [graph.reserve(cells) for graph, cells, _ in short] == [graph.reserve(cells) for graph, cells, _ in whole]
    assert not any(graph._spans for graph, _, _ in short)


@pytest.mark.parametrize("name", _MANY_GPUS)
def test_gpus_that_hold_alike_layers_need_buffers_of_one_size(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    request = _request(name, "11xH100", _ALL, None)
    built: list[int] = []
    plain = chained.condensed

    def counted(whole: Any, gpus: int) -> Any:
        short, like = plain(whole, gpus)
        built.append(len(whole.specs) - len(short.specs))
        return short, like

    monkeypatch.setattr(buffers, "condensed", counted)
    few = [graph.reserve(cells, window) for graph, cells, window in _laid(monkeypatch, request)]
    assert any(built)
    monkeypatch.setattr(buffers, "condensed", lambda chain, gpus: (chain, ()))
    assert few == [graph.reserve(cells, window) for graph, cells, window in _laid(monkeypatch, request)]


@pytest.mark.parametrize(("name", "flash"), _CELLS)
def test_one_graph_serves_every_number_of_cells(monkeypatch: pytest.MonkeyPatch, name: str, flash: str) -> None:
    """What a tensor takes grows evenly with the cells: the graph of one context gives the buffers of another."""
    long: dict[str, OptionValue] = {"n_gpu_layers": "99", "ctx_size": 40_960, "flash_attn": flash}
    for length in (4096, 512):
        request = _request(name, "H100", {**long, "ctx_size": length}, None)
        (graph, cells, window), *_ = _laid(monkeypatch, request)
        own = graph.reserve(cells, window)
        (other, *_), *_ = _laid(monkeypatch, _request(name, "H100", long, None))
        if cells >= buffers.least_cells(request.model.spec.layers, _SHAPE):
            assert other.reserve(cells, window) == own
        monkeypatch.setattr(chain, "CELLS", cells)
        monkeypatch.setattr(chain, "WINDOW", window)
        assert [graph.reserve() for graph, _, _ in _laid(monkeypatch, request)] == [own]
        monkeypatch.undo()


def test_a_cell_of_a_window_is_told_from_one_of_the_whole_context() -> None:
    early = laid.Early((0, 1), (), (), 1)
    graph = Laid([], [3 * CELLS + 64, 5 * WINDOW + 128], [0, 0], set(), early, 0)
    assert graph.reserve(64, 128) == (3 * 64 + 64 + 5 * 128 + 128,)
