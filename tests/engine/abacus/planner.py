"""The abacus: weights are stored as they are, a cell of the cache is 64 tokens, and nothing else takes memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvplanner.engine.draft import DraftWish
from kvplanner.engine.lever import Lever
from kvplanner.engine.option import FlagRule, Option, OptionValue, Resolved
from kvplanner.engine.plan import CacheGroup, DevicePlan, KvCache, Limits, Plan, StageMemory
from kvplanner.engine.probe import Probe
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import Segment, SegmentKind
from kvplanner.engine.shared.device import at_stage, described
from kvplanner.engine.stage import StageRule
from kvplanner.engine.verdict import Bytes, Reason, Shortfall, Verdict
from kvplanner.estimate import Input, exact
from kvplanner.gpu.spec import Device, Machine
from kvplanner.model.model import Model
from kvplanner.units import ceil_div
from tests.engine.abacus import TITLE

CELL_TOKENS: Final = 64
CELL_BYTES: Final = 3 << 20
OPTIONS: Final = (
    Option("rods", ("--rods", "-r"), "int", "Frame", "Requests that are counted at once", "8", low=1, everyday=True,
           label="Rods", role="max_requests"),
    Option("beads", ("--beads",), "tokens", "Frame", "Longest request", "4096", low=1, everyday=True, label="Beads",
           role="context"),
)  # fmt: skip
STAGES: Final = (
    StageRule("stringing", "string", "while stringing the beads", "stringing the beads", "card",
              frozenset[SegmentKind]({"other", "weights"}), early=True),
    StageRule("counting", "count", "when the first sum is counted", "counting the first sum", "request",
              frozenset[SegmentKind]({"other", "weights", "kv_cache"})),
)  # fmt: skip


class Abacus:
    """Answers as any engine does."""

    name: Final = "abacus"
    title: Final = TITLE
    versions: Final = ("2", "1")
    launch: Final = ("abacus", "count")
    stages: Final = STAGES

    def ignored_flags(self) -> Mapping[str, FlagRule]:
        return {"--polish": FlagRule()}

    def options(self, version: str | None = None) -> tuple[Option, ...]:
        return OPTIONS

    def allowed(self, name: str, model: Model) -> tuple[int, ...]:
        return ()

    def cannot_load(self, method: str, version: str | None = None, machine: Machine | None = None) -> str:
        return ""

    def segment_words(self) -> Mapping[SegmentKind, Mapping[str, str]]:
        return {"kv_cache": {"meaning": "rows of beads", "title": "KV cache: rows of beads"}}

    def rules_between(self, first: str | None, second: str | None) -> tuple[str, ...]:
        """Not told release by release."""
        return ()

    def as_started(self, options: Mapping[str, OptionValue], version: str | None = None) -> dict[str, OptionValue]:
        return dict(options)

    def draft_wanted(self, options: Mapping[str, OptionValue]) -> DraftWish | None:
        return None

    def levers(self, request: PlanRequest, plan: Plan) -> tuple[Lever, ...]:
        return ()

    def serves_at_most(self, request: PlanRequest) -> float | None:
        """Not known: what the memory holds decides."""
        del request
        return None

    def makes_room(self, request: PlanRequest, running: int) -> bool:
        """Never: a server has one model."""
        del request, running
        return False

    def probe(self) -> Probe | None:
        return None

    def plan(self, request: PlanRequest) -> Plan:
        beads, rods = (int(request.options.get(o.name, o.default)) for o in (OPTIONS[1], OPTIONS[0]))
        device = request.machine.devices[0]
        assert device.gpu.total is not None
        stored = request.model.stored
        assert stored is not None
        total, other = device.gpu.total.value, device.gpu.total.value - (device.free_bytes or device.gpu.total.value)
        left = total - other - stored.value
        cells, each = max(left, 0) // CELL_BYTES, ceil_div(beads, CELL_TOKENS)
        stage = "stringing" if left < 0 else "counting" if cells < each else None
        missing = -left if left < 0 else (each - cells) * CELL_BYTES
        verdict = Verdict("fits")
        if stage:
            text = "the frame lacks {missing} for {beads} beads"
            reason = Reason(stage, text, {"missing": Bytes(missing), "beads": beads})
            verdict = Verdict("does_not_fit", failing=Shortfall(stage, 0, missing, missing, missing, reason, "snap!"))
        rule = next((rule for rule in STAGES if rule.stage == stage), None)
        available = exact(max(left, 0), "{total} − {weights}", Input("total", total, "B", "the frame"),
                          Input("weights", stored.value, "B", "the model"))  # fmt: skip
        cache = KvCache(
            available, CELL_BYTES, CELL_TOKENS, cells, cells * CELL_TOKENS, cells * CELL_TOKENS, cells * CELL_TOKENS,
            cells / each, beads, None, (CacheGroup("full", 1, CELL_TOKENS, CELL_BYTES, each),), unit="cells",
        )  # fmt: skip
        plan = _device(device, total, other, stored.value, cells if left > 0 else 0, rule)
        return Plan(
            request=request,
            engine_version=request.version or "2",
            rules="wood",
            verdict=verdict,
            devices=described(
                [plan], verdict=verdict, rule=rule, tightest=0, cache=cache, cache_given=False,
            ),
            options={o.name: Resolved(int(request.options.get(o.name, o.default)), "default") for o in OPTIONS},
            kv_cache=cache if left >= 0 else None,
            limits=Limits(cells * CELL_TOKENS or None, min(int(cells / each), rods), max_requests=rods),
        )  # fmt: skip


def _device(device: Device, total: int, other: int, weights: int, cells: int, rule: StageRule | None) -> DevicePlan:
    segments = [
        Segment("other", exact(other)),
        Segment("weights", exact(weights)),
        *([Segment("kv_cache", exact(cells * CELL_BYTES))] if cells else []),
    ]
    left = total - sum(s.bytes for s in segments)
    segments += [Segment("headroom", exact(left))] if rule is None else []
    stages = (
        StageMemory("string", "string the beads", other + weights, other + weights, rule is STAGES[0]),
        StageMemory("count", "count", total - left, total - left, rule is STAGES[1], reached=rule is not STAGES[0]),
    )
    return DevicePlan(device, "frame", total, total, None, at_stage(segments, rule), CELL_BYTES, max(-left, 0), stages)


ENGINE: Final = Abacus()
