"""Every public start-up that can be planned is written as a command, pasted back, and planned the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import PlannerError
from kvplanner.model.model import Model
from kvplanner.report.launch import Form, snippet, started
from kvplanner.request.words import PlanWords, Sources, build
from tests.truth import rows, sglang

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("launch truth")]

TRUTH = Path(rows.__file__).parent


def of_vllm() -> Iterator[PlanRequest]:
    for row in rows.read(TRUTH / "vllm.jsonl"):
        try:
            yield rows.request_of(row, row.version)
        except rows.Skip:
            continue


def of_sglang() -> Iterator[PlanRequest]:
    for row in (row for name in ("sglang", "sglang-uncited") for row in sglang.read(TRUTH / f"{name}.jsonl")):
        model = sglang.model_of(row)
        if model is not None:
            yield sglang.request_of(row, model)[0]


@cache
def planned(requests: Callable[[], Iterator[PlanRequest]]) -> tuple[tuple[PlanRequest, Plan], ...]:
    """Those that can be planned, with their plans: the same for each form."""
    found = []
    for request in requests():
        with suppress(PlannerError):
            found.append((request, engine(request.engine).plan(request)))
    return tuple(found)


@pytest.mark.parametrize("form", ["shell", "docker", "compose", "kubernetes", "systemd"])
@pytest.mark.parametrize(("requests", "least"), [(of_vllm, 80), (of_sglang, 10)], ids=["vllm", "sglang"])
def test_what_was_started_once_is_written_and_read_back(
    form: Form, requests: Callable[[], Iterator[PlanRequest]], least: int
) -> None:
    for request, plan in planned(requests):
        chosen = engine(request.engine)
        again = pasted(snippet(form, plan), request)
        assert dict(again.options) == chosen.as_started(started(plan).options, request.version), request.model.id
        same = chosen.plan(request._replace(options=again.options, version=again.version or request.version))
        assert (same.verdict, same.kv_cache) == (plan.verdict, plan.kv_cache), request.model.id
    assert len(planned(requests)) >= least


def pasted(text: str, request: PlanRequest) -> PlanRequest:
    """The request of a command on the same machine; it must name the same model, and draft."""

    def opened(name: str) -> Model:
        known = [model for model in (request.model, request.draft) if model is not None]
        return next(model for model in known if model.id == name)

    return build(PlanWords(flags=(text,)), Sources(opened, lambda: request.machine)).request
