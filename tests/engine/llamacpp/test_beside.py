"""What is loaded beside a model: --fit keeps room for it; and what the host then holds, told by what it is."""

from __future__ import annotations

from typing import Any

import pytest

from kvplanner.catalog import gpus
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.solve.remedies import remedies
from kvplanner.source.resolve import open_model
from kvplanner.units import GIB, MIB
from tests.engine.llamacpp.kit import GEMMA, LLAMA, QWEN, plan, size
from tests.oracle.llamacpp.cases import model_of

PROJECTOR = 858 * MIB


def handle(found: Plan, option: str) -> int:
    return next(h.parts[0] for h in found.handles if h.option == option)


def headroom(found: Plan) -> int:
    return sum(segment.bytes for segment in found.devices[0].segments if segment.kind in ("headroom", "runtime"))


def test_fitting_keeps_room_for_a_projector_since_april_2026() -> None:
    """server_context::load_model adds its weights and buffer to the margin (pull request 21489)."""
    found = plan(GEMMA, "RTX 3090", mmproj_size=PROJECTOR)
    assert found.fits
    assert abs(headroom(found) - headroom(plan(GEMMA, "RTX 3090"))) < 100 * MIB
    before = plan(GEMMA, "RTX 3090", mmproj_size=PROJECTOR, version="b8200")
    assert int(str(before.options["ctx_size"].value)) > int(str(found.options["ctx_size"].value))
    assert before.fits is False
    # On the host it takes nothing of the GPU.
    away = plan(GEMMA, "RTX 3090", mmproj_size=PROJECTOR, mmproj_offload=False)
    assert away.options["ctx_size"].value == plan(GEMMA, "RTX 3090").options["ctx_size"].value


def test_fitting_keeps_room_for_a_draft_at_the_context_that_it_was_trained_for() -> None:
    """Pull request 23485, in b9305: measured before the context is settled (issue 25408 of llama.cpp)."""
    draft = open_model("Qwen3-0.6B-Q8_0")

    def drafted(version: str | None = None, **options: int) -> Plan:
        request = PlanRequest(
            model_of(QWEN)[0], gpus.machine("RTX 3090"), "llamacpp", version,
            {"spec_draft_model": "Qwen3-0.6B-Q8_0", **options}, draft=draft,
        )  # fmt: skip
        return engine("llamacpp").plan(request)

    newest = drafted()
    # 112 KiB a token: 28 layers of 8 heads of 128, keys and values.
    kept = 40960 * 114_688
    assert headroom(newest) > GIB + kept - 600 * MIB
    assert any("whole context of 40,960 tokens; set --ctx-size" in note for note in newest.warnings)
    assert handle(drafted("b9300"), "n_gpu_layers") > handle(newest, "n_gpu_layers")
    given = drafted(ctx_size=4096)
    assert handle(given, "n_gpu_layers") > handle(newest, "n_gpu_layers")
    assert not any("whole context" in note for note in given.warnings)


@pytest.mark.parametrize(
    ("options", "away", "role"),
    [
        ({"cpu_moe": True}, 36, "experts of 36 layers and the embedding"),
        ({"n_cpu_moe": 20}, 20, "experts of 20 layers and the embedding"),
        ({"n_cpu_moe": 20, "n_gpu_layers": "30"}, 20, "7 layers, experts of 13 layers and the embedding"),
        ({"override_tensor": r"blk\.[0-4]\.ffn_.*_exps=CPU"}, 5, "experts of 5 layers and the embedding"),
        ({"n_gpu_layers": "0"}, 0, "36 layers and the embedding"),
    ],
)
def test_experts_on_the_host_are_counted_and_told(options: dict[str, Any], away: int, role: str) -> None:
    found = plan(open_model("gpt-oss-120b"), "H200", ctx_size=8192, **options)
    assert handle(found, "n_cpu_moe") == away
    assert found.devices[-1].role == role
    if "n_cpu_moe" not in options and away:
        assert found.options["n_cpu_moe"].value == away


def test_what_fitting_keeps_on_the_host_is_where_the_slider_stands() -> None:
    found = plan(open_model("gpt-oss-120b"), "RTX 3090", ctx_size=32768)
    away = handle(found, "n_cpu_moe")
    assert found.devices[-1].role == f"experts of {away} layers and the embedding"
    assert 20 < away < 36
    # Given as a number, it is the same placement.
    again = plan(open_model("gpt-oss-120b"), "RTX 3090", ctx_size=32768, n_cpu_moe=away)
    assert again.fits
    assert again.devices[-1].role == found.devices[-1].role


def test_locked_weights_must_lie_in_ram_and_mapped_ones_need_not() -> None:
    options: dict[str, Any] = {"n_gpu_layers": "0", "host_memory": 4 * GIB, "ctx_size": 4096}
    others: list[dict[str, Any]] = [{"mlock": True}, {"load_mode": "mlock"}, {"mmap": False}, {"load_mode": "none"}]
    mapped = plan(LLAMA, **options)
    assert mapped.fits
    assert any("read again from the disk for every token" in str(note) for note in mapped.warnings)
    for more in others:
        kept = plan(LLAMA, **options, **more)
        assert kept.fits is False
        assert kept.verdict.failing is not None
        assert kept.verdict.failing.reason.code == "host_memory"
    enough = plan(LLAMA, mlock=True, n_gpu_layers="0", host_memory=32 * GIB, ctx_size=4096)
    assert enough.fits
    assert any("ulimit -l" in str(note) for note in enough.warnings)
    weights = next(segment for segment in enough.devices[-1].segments if segment.kind == "weights")
    assert "locked in RAM" in str(weights.meaning)


def test_ollama_loads_a_models_own_encoder_with_it() -> None:
    """As published mmproj files of gemma-3-27b-it, 858 MB."""
    found = plan(open_model("gemma-3-27b-it"), "RTX 3090", engine_name="ollama")
    assert int(str(found.options["mmproj_size"].value)) == pytest.approx(858e6, rel=0.02)
    assert size(found.devices[0], "workspace")
    assert size(plan(open_model("Qwen3-8B"), "RTX 3090", engine_name="ollama").devices[0], "workspace") == 0
    without = plan(open_model("gemma-3-27b-it"), "RTX 3090", engine_name="ollama", mmproj_size=0)
    assert size(found.devices[0], "weights") - size(without.devices[0], "weights") == found.options["mmproj_size"].value


@pytest.mark.parametrize(
    ("model", "options", "option"),
    [
        ("gpt-oss-120b", {"n_cpu_moe": 20, "ctx_size": 131072}, "n_cpu_moe"),
        ("Llama-3.3-70B-Instruct-Q4_K_M", {"n_gpu_layers": "99", "ctx_size": 16384}, "n_gpu_layers"),
    ],
)
def test_the_way_out_moves_hardly_more_to_the_host_than_must_be(
    model: str, options: dict[str, Any], option: str
) -> None:
    found = plan(open_model(model), "RTX 3090", **options)
    assert found.fits is False
    works = next(one for one in found.ranges if one.option == option)
    remedy = next(r for r in remedies(found.request, found) if option in r.request.options and len(r.names) == 1)
    edge = works.sure_low if option == "n_cpu_moe" else works.sure_high
    assert edge is not None
    assert abs(int(str(remedy.request.options[option])) - edge) <= 2
