"""The shared sample plans keep the contract's sums, so that tests built on them mean something."""

from __future__ import annotations

import pytest

from kvplanner.engine.segment import SEGMENT_KINDS
from tests import sample_plans


@pytest.mark.parametrize("name", sample_plans.ALL)
def test_sums_and_order(name: str) -> None:
    plan = sample_plans.ALL[name]()
    for device in plan.devices:
        kinds = [s.kind for s in device.segments]
        assert kinds == [k for k in SEGMENT_KINDS if k in kinds]
        assert all(s.estimate.low <= s.bytes <= s.estimate.high for s in device.segments)
        total = sum(s.bytes for s in device.segments)
        if plan.fits:
            assert total == device.total_bytes
        elif plan.fits is False:
            assert "headroom" not in kinds
            assert device.overflow_bytes == max(0, total - device.total_bytes)


def test_each_verdict_is_there() -> None:
    plans = [make() for make in sample_plans.ALL.values()]
    assert {p.fits for p in plans} == {True, False, None}
    assert any(d.overflow_bytes for p in plans for d in p.devices)
    assert any(d.segment("other") for p in plans for d in p.devices)
    assert max(len(p.devices) for p in plans) == 8
