"""What fit_constants.py fits with: start-up reports beside the settings they ran with, and small statistics."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kvplanner.engine.vllm.gpu import Gpu, gpu_of  # noqa: E402 - after the folders that it lies in
from kvplanner.engine.vllm.memory import activations, graphs, workspace  # noqa: E402 - after the folders that it lies in
from kvplanner.engine.vllm.settings import Parallel, Settings  # noqa: E402 - after the folders that it lies in
from kvplanner.engine.vllm.settle import settle as defaults  # noqa: E402 - after the folders that it lies in
from kvplanner.errors import PlannerError  # noqa: E402 - after the folders that it lies in
from kvplanner.model.formats import DTYPE_BYTES  # noqa: E402 - after the folders that it lies in
from kvplanner.model.model import Model  # noqa: E402 - after the folders that it lies in
from kvplanner.units import GIB  # noqa: E402 - after the folders that it lies in
from tests.truth.measure import architecture  # noqa: E402 - after the folders that it lies in
from tests.truth.rows import Row, Skip, read, request_of  # noqa: E402 - after the folders that it lies in

FILES: Final = ("vllm.jsonl", "vllm-uncited.jsonl")
Entry = dict[str, Any]
# A band never claims to be narrower than this share of the value on either side, whatever few reports say.
LEAST_BAND: Final = 0.04


def all_rows() -> list[Row]:
    """Every start-up report of the project."""
    return [row for name in FILES for row in read(ROOT / "tests" / "truth" / name)]


@dataclass(frozen=True)
class Seen:
    """A report that names its version, with the settings that its engine ran with."""

    row: Row
    model: Model
    settings: Settings
    gpu: Gpu

    @property
    def id(self) -> str:
        """The report's name."""
        return self.row.id

    @property
    def printed(self) -> dict[str, float]:
        """What the engine printed, in bytes."""
        found = {name.removesuffix("_gib"): value * GIB for name, value in self.row.reported.items() if "_gib" in name}
        without = self.row.reported.get("equivalent_utilization_without_cudagraph")
        if without is not None:
            found.setdefault("cudagraph_estimated", (self.settings.cache.utilization - without) * self.gpu.total_bytes)
        return found

    @property
    def version(self) -> tuple[int, int]:
        """(minor, patch) of 0.x."""
        return self.settings.version

    @property
    def ranks(self) -> Parallel:
        """How the model was split."""
        return self.settings.parallel

    @property
    def runner(self) -> str:
        """The model runner: V0, V1 or V2."""
        return self.settings.era.runner

    @property
    def rows(self) -> int:
        """Rows of logits that the sampler sees."""
        return min(self.settings.scheduler.max_num_batched_tokens, self.settings.scheduler.max_num_seqs)

    @property
    def hidden_row(self) -> int:
        """Bytes of one hidden state for every token of a step."""
        element = DTYPE_BYTES[self.settings.model.dtype]
        return self.settings.scheduler.max_num_batched_tokens * self.model.spec.hidden_size * element

    @property
    def halves(self) -> int:
        """Bytes at the widest point of a layer."""
        wide = activations.widths(self.model, self.settings, 0)
        element = DTYPE_BYTES[self.settings.model.dtype]
        return self.settings.scheduler.max_num_batched_tokens * max(wide.mixer, wide.mlp) * element

    @property
    def plain(self) -> bool:
        """Whether attention and feed-forward are the usual ones: no experts, no latent attention, no states."""
        return architecture(self.model.spec) in ("dense", "sliding window")

    @property
    def warm(self) -> Settings:
        """The settings with kernels compiled before, unless the report says that they were not."""
        cold = bool(self.row.cold)
        return self.settings._replace(graphs=self.settings.graphs._replace(cold=cold))

    @property
    def packed(self) -> bool:
        """Whether the matrices are of 4 bits and less."""
        return graphs.packed(self.model)

    @property
    def graphs(self) -> int:
        """Captured sizes: as the report counts them, else by the engine's defaults."""
        told = re.search(r"(\d+) piecewise", self.row.text)
        return int(told[1]) if told else max(graphs.counts(self.settings))

    @property
    def layers(self) -> int:
        """Decoder layers on a rank."""
        return self.model.spec.num_layers // self.settings.parallel.pp

    def peak(self) -> float | None:
        """The printed peak without what other terms of the plan hold: graph estimate and expert workspace."""
        found = self.printed.get("activation_peak")
        if found is None or self.row.cold:
            return None
        if not self.settings.era.consumed_rule:
            return found - workspace.shared_workspace(self.model, self.settings, self.gpu).bytes
        if not self.settings.era.graphs_in_budget:
            return found
        estimate = self.printed.get("cudagraph_estimated")
        return None if estimate is None else found - estimate


def collect() -> list[Seen]:
    """Every report that can be fitted on."""
    found = []
    for row in all_rows():
        if row.fork or row.shared:
            continue
        try:
            request = request_of(row, row.version or ("0.6.6" if "v0" in row.text else None))
            if request.version:
                gpu = gpu_of(request.machine.devices[0].gpu)
                found.append(Seen(row, request.model, defaults.resolve(request)[0], gpu))
        except (Skip, PlannerError):
            continue
    return found


def entry(value: float, why: str, rows: Iterable[str] = (), *, low: float | None = None, high: float | None = None,
          basis: str = "calibrated", **when: Any) -> Entry:  # fmt: skip
    """One entry; without a given band it is the least one."""
    rows = sorted(rows)
    if not rows and basis == "calibrated":
        basis = "analytic"
    low = value * (1 - LEAST_BAND) if low is None else low
    high = value * (1 + LEAST_BAND) if high is None else high
    return {**when, "value": value, "low": min(low, value), "high": max(high, value), "basis": basis, "why": why,
            "rows": rows}  # fmt: skip


def middle(pairs: Sequence[tuple[str, float]], why: str, least: float = 0.0, **when: Any) -> Entry:
    """The median of (report, value) pairs with a band that holds nine tenths of them and `least` either side.

    Raises ValueError when there are no pairs: the law has lost its evidence.
    """
    if not pairs:
        raise ValueError(f"no report tells of: {why} {when}")
    values = sorted(value for _, value in pairs)
    value = statistics.median(values)
    cut = len(values) // 20
    low, high = values[cut], values[-1 - cut]
    spread = max(least, LEAST_BAND * abs(value)) * (1 + 2 / len(values))
    return entry(value, why, (name for name, _ in pairs), low=min(low, value - spread), high=max(high, value + spread),
                 **when)  # fmt: skip


def least_squares(points: Sequence[tuple[Sequence[float], float]]) -> list[float]:
    """Coefficients that fit value = Σ coefficient × feature, none negative (features dropped until none is)."""
    kept = list(range(len(points[0][0])))
    while True:
        size = len(kept)
        matrix = [
            [sum(f[i] * f[j] for f, _ in points) for j in kept] + [sum(f[i] * v for f, v in points)] for i in kept
        ]
        for i in range(size):
            matrix[i][i] += 1e-9 * (matrix[i][i] or 1)
        for i in range(size):
            for k in range(size):
                if k != i:
                    factor = matrix[k][i] / matrix[i][i]
                    matrix[k] = [a - factor * b for a, b in zip(matrix[k], matrix[i], strict=True)]
        solved = [matrix[i][-1] / matrix[i][i] for i in range(size)]
        if min(solved, default=0) >= 0:
            return [solved[kept.index(i)] if i in kept else 0.0 for i in range(len(points[0][0]))]
        kept.pop(solved.index(min(solved)))
