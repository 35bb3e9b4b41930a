"""Smaller files of the same model that lie on this machine are offered beside what the catalogue knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvplanner.app.state import PlanState
from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.model.model import Model
from kvplanner.report.remedies import flags_of, title
from kvplanner.solve.others import others_with
from kvplanner.solve.remedies import Remedy, remedies
from kvplanner.source.stores import local, sisters
from kvplanner.source.stores.found import Found
from kvplanner.ui.remedies.applying import fields_of

LLAMA, SISTER = "meta-llama/Llama-3.3-70B-Instruct", "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16"
PLACE = "/models/llama-3.3-70b-w4a16"


def sister_ways(on_machine: list[tuple[str, Model]], engine_: str = "vllm", gpu: str = "H100") -> list[Remedy]:
    def held(model_id: str) -> Iterator[tuple[str, Model]]:
        assert model_id == LLAMA
        yield from on_machine

    request = PlanRequest(models.load(LLAMA), gpus.machine(gpu), engine_)
    found = remedies(request, engine(engine_).plan(request), others_with(held))
    return [way for way in found if "sister" in way.names]


def test_what_lies_on_this_machine_is_offered_and_is_what_apply_opens() -> None:
    own = models.load(SISTER)._replace(id="llama-3.3-70b-w4a16", source_kind="folder")
    ways = sister_ways([(PLACE, own)], gpu="2xH100")
    way = next(way for way in ways if way.plan.request.model == own)
    assert [change.value for change in way.changes if change.option == "model"] == [PLACE]
    assert way.sure
    assert way.plan.request.model == own
    assert "on this machine" in way.costs[0]
    assert PLACE in flags_of(way)
    assert "llama-3.3-70b-w4a16" in title(way)
    fields = fields_of(PlanState(), way)
    assert (fields["model_text"], fields["model"]) == (PLACE, own)


def test_what_the_engine_does_not_load_or_is_no_smaller_is_not_offered() -> None:
    mlx = models.load(SISTER)
    mlx = mlx._replace(spec=mlx.spec._replace(quantization="mlx"))
    for not_offered in (mlx, models.load(LLAMA)._replace(id="copy")):
        assert not any(PLACE in flags_of(way) for way in sister_ways([(PLACE, not_offered)]))


def test_only_files_of_the_same_model_are_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[str] = []

    def open_model(text: str) -> Model:
        opened.append(text)
        return models.load(SISTER)

    kept = (
        Found("a", "Llama-3.3-70B-Instruct-AWQ", "folder", "a", 1), Found("b", "Qwen3-8B-AWQ", "folder", "b", 1),
        Found("c", "Llama-3.3-70B-Instruct-Q4_K_M", "folder", "c", 1, problem="a part is missing"),
    )  # fmt: skip
    monkeypatch.setattr(local, "remembered", lambda folder: kept)
    monkeypatch.setattr(sisters, "open_model", open_model)
    assert [text for text, _ in sisters.on_this_machine(LLAMA)] == opened == ["a"]
    assert [*sisters.on_this_machine("nobody/knows-this")] == []
