from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.catalog import gpus, models
from kvplanner.engine.plan import DevicePlan, Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import SEGMENT_KINDS, Segment
from kvplanner.estimate import banded, exact
from kvplanner.report.devices import short, telling_kind
from kvplanner.report.segments import meaning_of
from kvplanner.ui.bars.layout import arrange, height_of, rows_of
from kvplanner.ui.bars.shapes import COMFORT, COMPACT, HEADER, Layout, Measured, MeasuredPart, View
from kvplanner.ui.theme.geometry import fitted, pattern_lines, tick_step, tick_text, ticks
from kvplanner.units import GIB
from tests import sample_plans
from tests.engine import verdicts
from tests.ui.kit import apart, hosted, measure, widened

PATTERNS = ("up", "down", "vertical", "horizontal", "grid", "dots", "cross")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of up to six devices with any segments, fitting or not."""
    base = sample_plans.fits()
    devices: list[DevicePlan] = []
    chance = Random(draw(st.integers(0, 2**32)))  # a draw for each of two hundred numbers costs more than the layout

    def up_to(most: int, least: int = 0) -> int:
        """Any number, now and then the first or the last."""
        return chance.choice((least, most)) if chance.random() < 0.15 else chance.randint(least, most)

    for position in range(draw(st.integers(1, 6))):
        sizes = [up_to(60 * GIB) for _ in SEGMENT_KINDS[:-1]]
        segments = [
            Segment(kind, banded(size, size - up_to(GIB), size + up_to(GIB), "calibrated"))
            for kind, size in zip(SEGMENT_KINDS, sizes, strict=False)
        ]
        total = up_to(200 * GIB, GIB)
        spare = total - sum(sizes)
        if spare >= 0:
            segments.append(Segment("headroom", exact(spare)))
        budget = exact(up_to(total)) if chance.random() < 0.5 else None
        first = base.devices[0]
        device = first.device._replace(index=position)
        devices.append(DevicePlan(device, f"tp{position}", total, total, budget, tuple(segments), 0, max(0, -spare)))
    fits = all(d.overflow_bytes == 0 for d in devices)
    verdict = verdicts.FITS if fits else verdicts.fails("graph_capture", 0)
    return verdicts.again(base, devices=tuple(devices), verdict=verdict)


def _all_opened(plan: Plan) -> frozenset[int]:
    return frozenset(range(len(plan.devices)))


@given(plans(), st.floats(300, 2600), st.floats(60, 900), st.booleans())
@settings(max_examples=150, deadline=None)
def test_cells_are_as_wide_as_their_bytes(plan: Plan, width: float, height: float, opened: bool) -> None:
    layout = arrange(plan, width, height, measure, View(opened=_all_opened(plan) if opened else frozenset()))
    for row in layout.rows:
        device = plan.devices[row.positions[0]]
        shown = [s.kind for s in device.in_use if s.bytes]
        assert [c.kind for c in row.cells] == [k for k in shown if k in {c.kind for c in row.cells}]
        for cell in row.cells:
            assert cell.rect.x >= layout.x0 - 1e-6
            assert cell.rect.right <= width + 0.5
            if not row.cut:
                assert cell.rect.w == pytest.approx(cell.bytes * layout.scale, abs=1e-6)
        for left, right in zip(row.cells, row.cells[1:], strict=False):
            assert left.rect.right == pytest.approx(right.rect.x, abs=1e-6)
        if not row.cut:
            wide = sum(c.rect.w for c in row.cells)
            assert wide == pytest.approx(sum(s.bytes for s in device.in_use) * layout.scale, abs=1e-5)
            assert [c.kind for c in row.cells] == shown


@given(plans(), st.floats(300, 2600), st.floats(60, 900))
@settings(max_examples=100, deadline=None)
def test_nothing_overlaps(plan: Plan, width: float, height: float) -> None:
    layout = arrange(plan, width, height, measure, View(opened=_all_opened(plan)))
    y = HEADER
    for row in layout.rows:
        assert row.rect.y == pytest.approx(y)
        assert row.rect.y <= row.frame.y
        assert row.frame.bottom <= row.rect.bottom
        y = row.rect.bottom
        for cell in row.cells:
            if cell.label:
                assert measure(cell.label, "text") <= cell.rect.w
        for lane in {w.y for w in row.whiskers}:
            ends = sorted((w.left, w.right) for w in row.whiskers if w.y == lane)
            assert all(one[1] < other[0] for one, other in pairwise(ends))
        if row.bracket and row.bracket.text and row.lack:
            assert row.bracket.text.rect.right <= row.lack.text.rect.x
    assert layout.axis_y == pytest.approx(y)
    texts = sorted((t.text.rect for t in layout.ticks if t.text), key=lambda r: r.x)
    for left, right in pairwise(texts):
        assert left.right <= right.x


@given(plans(), st.floats(300, 2000))
@settings(max_examples=60, deadline=None)
def test_texts_stay_in_the_picture(plan: Plan, width: float) -> None:
    layout = arrange(plan, width, 400, measure, View())
    for row in layout.rows:
        found = [row.title, row.detail, row.capacity, row.lack.text if row.lack else None]
        for text in [*found, row.bracket.text if row.bracket else None]:
            if text is not None and text.text:
                assert text.rect.x >= -1e-6
                assert text.rect.x + measure(text.text, text.role) <= width + 1


def test_the_axis_ends_at_the_capacity_of_a_plan_that_fits() -> None:
    plan = sample_plans.fits()
    layout = arrange(plan, 1000, 300, measure, View())
    end = layout.ticks[-1]
    assert end.text is not None
    assert end.text.text == "79.65 GiB"
    assert layout.rows[0].frame.right == pytest.approx(end.x)
    assert layout.rows[0].lack is None


def test_units_change_texts_and_not_places() -> None:
    plan = sample_plans.fits()
    gib, gb = (arrange(plan, 1000, 300, measure, View(unit=unit)) for unit in ("GiB", "GB"))
    assert [c.rect for c in gib.rows[0].cells] == [c.rect for c in gb.rows[0].cells]
    assert "weights 14.96" in [c.label for c in gib.rows[0].cells]
    assert "weights 16.06" in [c.label for c in gb.rows[0].cells]
    assert gb.ticks[-1].text is not None
    assert gb.ticks[-1].text.text == "85.52 GB"


def test_the_bracket_begins_where_the_runtime_outside_ends() -> None:
    layout = arrange(sample_plans.other_programs(), 1000, 400, measure, View())
    row = layout.rows[0]
    outside = next(c for c in row.cells if c.kind == "runtime_outside")
    cache = next(c for c in row.cells if c.kind == "kv_cache")
    assert row.bracket is not None
    assert row.bracket.left == pytest.approx(outside.rect.right)
    assert row.bracket.right == pytest.approx(cache.rect.right, abs=0.01)
    assert row.bracket.text is not None
    assert row.bracket.text.text == "budget 21.64 GiB = 0.92 × 23.52"
    assert layout.rows[1].bracket is not None
    assert layout.rows[1].bracket.text is None  # said above, and the same


def test_overflow_is_drawn_past_the_capacity() -> None:
    plan = sample_plans.too_big()
    layout = arrange(plan, 1000, 300, measure, View())
    row = layout.rows[0]
    assert row.lack is not None
    assert row.lack.rect.x == pytest.approx(row.frame.right)
    assert row.lack.rect.w == pytest.approx(plan.missing_bytes * layout.scale)
    assert row.lack.text.text == "53.20 GiB short"  # what is missing at this stage, no more
    assert any(t.capacity and t.text and t.text.text == "79.65 GiB" for t in layout.ticks)


def test_a_whisker_spans_the_range_about_the_border_it_moves() -> None:
    plan = sample_plans.fits()
    layout = arrange(plan, 1800, 300, measure, View())
    row = layout.rows[0]
    whisker = next(w for w in row.whiskers if w.kind == "kv_cache")
    cell = next(c for c in row.cells if c.kind == "kv_cache")
    segment = plan.devices[0].segment("kv_cache")
    assert segment is not None
    assert whisker.middle == cell.rect.x
    assert whisker.right - whisker.middle == pytest.approx((segment.bytes - segment.estimate.low) * layout.scale)
    assert whisker.middle - whisker.left == pytest.approx((segment.estimate.high - segment.bytes) * layout.scale)
    assert all(row.frame.bottom < w.y < row.rect.bottom for w in row.whiskers)


def test_what_one_request_lacks_is_asked_for_beside_the_cache() -> None:
    plan = sample_plans.kv_too_small()
    row = arrange(plan, 1000, 300, measure, View()).rows[0]
    assert row.lack is not None
    assert row.lack.asked
    assert row.lack.rect.x == pytest.approx(row.cells[-1].rect.right)
    assert row.lack.text.text == "11.60 GiB short"


def test_a_bar_that_is_far_too_long_is_cut() -> None:
    plan = sample_plans.too_big()
    device = plan.devices[0]
    segments = tuple(Segment(s.kind, exact(s.bytes * (9 if s.kind == "weights" else 1))) for s in device.segments)
    row = arrange(plan._replace(devices=(device._replace(segments=segments),)), 900, 200, measure, View()).rows[0]
    assert row.cut
    assert row.frame.w > 300
    assert max(c.rect.right for c in row.cells) <= 900


def test_equal_devices_fold_and_open() -> None:
    plan = sample_plans.eight_gpus()
    assert plan.groups == (tuple(range(8)),)
    folded = arrange(plan, 1000, 300, measure, View()).rows
    assert [(r.title.text, r.detail.text, bool(r.toggle)) for r in folded] == [("GPU 0–7", "8 alike · tp0–7", True)]
    opened = arrange(plan, 1000, 900, measure, View(opened=frozenset({0}))).rows
    assert [r.title.text for r in opened] == [f"GPU {i}" for i in range(8)]
    assert [r.opened for r in opened] == [True] + [False] * 7
    still = arrange(plan, 1000, 300, measure, View(still=True)).rows
    assert still[0].toggle is None


def test_like_devices_are_one_group_wherever_they_stand() -> None:
    plan = sample_plans.eight_gpus()
    odd = plan.devices[3]._replace(overflow_bytes=1)
    mixed = verdicts.again(plan, devices=(*plan.devices[:3], odd, *plan.devices[4:]))
    assert mixed.groups == ((0, 1, 2, 4, 5, 6, 7), (3,))
    rows = [positions for positions, _ in rows_of(mixed, frozenset({3}))]
    assert rows == [(0, 1, 2, 4, 5, 6, 7), (3,)]
    assert arrange(mixed, 1000, 300, measure, View()).rows[0].title.text == "GPU 0–2, 4–7"


def test_a_host_does_not_squeeze_the_gpus() -> None:
    plan = hosted(sample_plans.fits(), 512 * GIB, 20 * GIB)
    layout = arrange(plan, 1000, 400, measure, View())
    gpu, host = layout.rows
    assert gpu.frame.right == pytest.approx(layout.ticks[-1].x)
    assert host.title.text == "Host"
    assert host.cut
    assert host.capacity is not None
    assert host.capacity.text == "of 512.00 GiB"


def test_rows_get_denser_where_height_is_short() -> None:
    plan = apart(widened(sample_plans.eight_gpus(), 16), 1)
    view = View()
    heights = [arrange(plan, 1000, h, measure, view).rows[0].frame.h for h in (1200, 900, 300)]
    assert heights[0] > heights[1] > heights[2]
    assert arrange(plan, 1000, 300, measure, view).height == pytest.approx(height_of(plan, view, COMPACT))
    assert arrange(plan, 1000, 1200, measure, view).height == pytest.approx(height_of(plan, view, COMFORT))


def test_the_ghost_is_the_bar_before() -> None:
    before, plan = sample_plans.fits(), apart(sample_plans.fits(), 30)
    row = arrange(plan, 1000, 300, measure, View(before=before, delta="+1 tokens")).rows[0]
    old = arrange(before, 1000, 300, measure, View()).rows[0]
    assert [(c.kind, c.rect.x, c.rect.w) for c in row.ghost] == [(c.kind, c.rect.x, c.rect.w) for c in old.cells]
    assert all(c.rect.h < row.frame.h / 3 for c in row.ghost)
    other = before._replace(devices=(before.devices[0]._replace(total_bytes=GIB),))
    assert arrange(plan, 1000, 300, measure, View(before=other)).rows[0].ghost == ()


def test_measured_use_lies_under_its_bar() -> None:
    parts = (
        MeasuredPart("driver", GIB, "driver"),
        MeasuredPart("other", 0, "others"),
        MeasuredPart("engine", 9 * GIB, "vLLM"),
    )
    view = View(measured=(Measured(1, parts, "measured: vLLM 9.00 GiB"),))
    layout = arrange(sample_plans.other_programs(), 1000, 400, measure, view)
    assert layout.rows[0].strip is None
    strip = layout.rows[1].strip
    assert strip is not None
    assert [part.kind for part, _ in strip.parts] == ["driver", "engine"]
    assert strip.parts[0][1].w == pytest.approx(GIB * layout.scale)
    assert strip.parts[1][1].x == pytest.approx(strip.parts[0][1].right)
    assert strip.parts[0][1].y >= layout.rows[1].frame.bottom
    assert strip.text.rect.bottom <= layout.rows[1].rect.bottom


def test_a_running_cache_fills_its_segment() -> None:
    row = arrange(sample_plans.fits(), 1000, 300, measure, View(fill=0.25)).rows[0]
    cache = next(c for c in row.cells if c.kind == "kv_cache")
    assert row.fill is not None
    assert row.fill.x == cache.rect.x
    assert row.fill.w == pytest.approx(cache.rect.w / 4)


def test_a_point_finds_its_cell_and_slivers_their_own() -> None:
    layout: Layout = arrange(sample_plans.fits(), 1000, 300, measure, View())
    row = layout.rows[0]
    for cell in row.cells:
        found = layout.cell_at(cell.rect.x + cell.rect.w / 2, row.frame.y + 5)
        assert found is not None
        assert found.kind == cell.kind
    assert layout.cell_at(row.cells[0].rect.x - 2, row.frame.y + 5) is not None
    assert layout.cell_at(5, row.frame.y + 5) is None
    assert layout.cell_at(row.frame.x + 50, row.rect.bottom + 40) is None


def test_an_unknown_plan_draws_an_empty_bar() -> None:
    row = arrange(sample_plans.cannot_tell(), 1000, 200, measure, View()).rows[0]
    assert row.cells == ()
    assert row.capacity is not None
    assert row.capacity.text == "not planned"
    assert row.bracket is None
    assert row.lack is None


def test_a_card_of_unknown_size_has_no_axis() -> None:
    plan = sample_plans.cannot_tell()
    unknown = plan.devices[0]._replace(total_bytes=0, cuda_total_bytes=0)
    layout = arrange(plan._replace(devices=(unknown,)), 1000, 200, measure, View())
    assert layout.ticks == ()
    assert layout.rows[0].capacity is not None
    assert layout.rows[0].capacity.text == "capacity not known: not planned"


def _without(plan: Plan, *kinds: str) -> Plan:
    first = plan.devices[0]
    segments = tuple(s for s in first.segments if s.kind not in kinds)
    return plan._replace(devices=(first._replace(segments=segments), *plan.devices[1:]))


def test_the_free_memory_check_shows_what_is_there_and_what_is_free() -> None:
    plan = sample_plans.other_programs()
    first = plan.devices[0]
    taken = first._replace(segments=tuple(
        Segment("other", exact(4 * GIB)) if s.kind == "other" else s for s in first.segments if s.kind != "headroom"
    ))  # fmt: skip
    budget, start = first.budget, sum(s.bytes for s in taken.segments[:3])
    assert budget is not None
    missing = start + budget.value - first.total_bytes
    failing = verdicts.again(
        plan._replace(kv_cache=None), devices=(taken,), verdict=verdicts.fails("free_memory_check", missing)
    )
    row = arrange(failing, 1000, 200, measure, View()).rows[0]
    assert [c.kind for c in row.cells] == ["driver_reserved", "other", "runtime_outside"]
    assert row.gap is not None
    assert row.gap.text == f"free {(first.total_bytes - start) / GIB:.2f}"
    assert row.lack is not None
    assert row.lack.rect.x == pytest.approx(row.frame.right)
    assert row.lack.text.text == f"{missing / GIB:.2f} GiB short"
    assert telling_kind(failing, failing.devices[0]) == "other"
    assert telling_kind(failing, _without(failing, "other").devices[0]) == "runtime_outside"


@pytest.mark.parametrize("width", [600, 1000, 2600])
@pytest.mark.parametrize("more", [0, 1, 4, 40])
def test_no_room_is_unused_where_memory_is_short(width: float, more: int) -> None:
    plan = sample_plans.kv_too_small()
    short = verdicts.again(plan, verdict=verdicts.fails("kv_cache_too_small", plan.missing_bytes + more * GIB))
    row = arrange(short, width, 200, measure, View()).rows[0]
    assert row.lack is not None
    hatched = row.lack.rect
    assert row.gap is None or row.gap.rect.x >= hatched.right or row.gap.rect.right <= hatched.x


def test_graphs_outside_the_budget_stand_behind_the_cache() -> None:
    plan = sample_plans.fits()
    own = engine("vllm").plan(PlanRequest(models.load("Qwen/Qwen3-0.6B"), gpus.machine("H100"), version="0.19"))
    device = own.devices[0]
    plan = own
    assert [s.kind for s in device.segments][-4:] == ["kv_cache", "cuda_graphs", "fragmentation", "headroom"]
    assert not next(s for s in device.segments if s.kind == "cuda_graphs").in_budget
    layout = arrange(plan, 1000, 300, measure, View())
    row = layout.rows[0]
    assert [c.kind for c in row.cells][-4:] == ["kv_cache", "cuda_graphs", "fragmentation", "headroom"]
    assert row.bracket is not None
    assert row.bracket.left == pytest.approx(next(c for c in row.cells if c.kind == "runtime").rect.x)
    assert row.bracket.right - row.bracket.left == pytest.approx(device.budget.value * layout.scale)  # type: ignore[union-attr]  # there is one, else the test ends here
    assert "outside the budget" in meaning_of(plan, 0, "cuda_graphs")
    assert "outside" not in meaning_of(sample_plans.fits(), 0, "cuda_graphs")


def test_a_given_cache_is_not_told_by_the_utilisation() -> None:
    plan = sample_plans.fits()
    given = plan._replace(cache_given=True)
    row = arrange(given, 1000, 300, measure, View()).rows[0]
    cache = next(c for c in row.cells if c.kind == "kv_cache")
    assert row.bracket is not None
    assert (row.bracket.left, row.bracket.right) == pytest.approx((cache.rect.x, cache.rect.right))
    assert row.bracket.text is not None
    assert row.bracket.text.text == "KV cache given: 55.60 GiB, whatever the utilisation"


def test_what_later_stages_lack_is_told_only_where_one_request_is_known() -> None:
    plan = sample_plans.too_big()
    lack = plan.devices[0].lack
    assert lack is not None
    assert (lack.bytes, lack.in_all) == (plan.missing_bytes, None)
    cache = sample_plans.kv_too_small().kv_cache
    known = verdicts.again(plan._replace(kv_cache=cache))
    lack = known.devices[0].lack
    assert lack is not None
    assert cache is not None
    device = plan.devices[0]
    assert device.budget is not None
    inside = sum(s.bytes for s in device.segments if s.in_budget)
    request = cache.request_bytes
    assert lack.in_all == inside + request - device.budget.value
    assert short(lack.bytes, lack.in_all, "GiB").startswith("53.20 GiB short at this stage, ")


def test_replicas_are_named_with_all_their_gpus() -> None:
    plan = sample_plans.eight_gpus()

    def named(roles: list[str]) -> tuple[str, str]:
        numbers = [int(role[2]) for role in roles]
        named = zip(plan.devices, roles, numbers, strict=False)
        devices = tuple(d._replace(role=role, replica=number) for d, role, number in named)
        row = arrange(plan._replace(devices=devices, replicas=4), 1000, 300, measure, View()).rows[0]
        return row.title.text, row.detail.text

    assert named([f"dp{i // 2}/tp{i % 2}" for i in range(8)]) == ("GPU 0–7", "4 replicas · tp0–1")
    assert named([f"dp{i}/tp0" for i in range(4)]) == ("GPU 0–3", "4 replicas")
    assert named([f"dp0/tp{i}" for i in range(8)]) == ("GPU 0–7", "8 alike · dp0/tp0–7")


@given(st.floats(0.01, 5000), st.floats(50, 3000))
def test_ticks_are_round_and_apart(end: float, pixels: float) -> None:
    step = tick_step(end, pixels, 80)
    assert step * pixels / end >= 79
    values = ticks(end, pixels, 80)
    assert values[0] == 0
    assert values[-1] <= end * (1 + 1e-9)
    assert float(tick_text(step, step).replace(",", "")) == pytest.approx(step)


@given(st.sampled_from(PATTERNS), st.floats(1, 400), st.floats(1, 60))
def test_pattern_lines_keep_inside(pattern: str, width: float, height: float) -> None:
    for x0, y0, x1, y1 in pattern_lines(pattern, width, height):
        for x, y in ((x0, y0), (x1, y1)):
            assert -1e-6 <= x <= width + 1e-6
            assert -1e-6 <= y <= height + 1e-6


def test_a_text_is_cut_to_its_room() -> None:
    assert fitted("8 alike · tp0–7", 200, measure) == "8 alike · tp0–7"
    cut = fitted("8 alike · tp0–7", 50, measure)
    assert cut.endswith("…")
    assert measure(cut, "small") <= 50
    assert fitted("abc", 3, measure) == ""
