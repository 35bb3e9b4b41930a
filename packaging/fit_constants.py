"""Fit the few constants of vLLM's memory laws on start-up reports and write resources/vllm_constants.json.

    python packaging/fit_constants.py [--show]

The laws themselves live in kvplanner/engine/vllm (activations, runtime, graphs, workspace); this script only finds
their numbers. Every entry names the reports that it rests on; an entry without reports says where it was read.
A value is the median of what the reports imply, its band holds nine tenths of them, widened where they are few.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fit_tools import (
    ROOT,
    Entry,
    Seen,
    collect,
    entry,
    least_squares,
    middle,
)

from kvplanner.engine.vllm.memory import activations, graphs, workspace
from kvplanner.engine.vllm.weights import loaded as weights
from kvplanner.units import GIB, MIB
from tests.truth.measure import architecture

TARGET: Final = ROOT / "resources" / "vllm_constants.json"
FEW: Final = 4
# Capture sizes up to which what graphs share outweighs what each takes.
_HANDFUL: Final = 12
_KERNELS: Final = "libraries and kernels that load late"
_BOTH: Final = "collectives' buffers and late kernels"
_MIDDLE_ERA: Final = {"first": [17, 0], "last": [20, 99], "gpu": "hbm"}
# A start whose memory nothing explains: the band of its kind of model reaches to it, the middle leaves it out.
_UNEXPLAINED: Final = "qwen35-08b-a100-0280-serve8k"
# Memory outside PyTorch in the budget, from the most particular group to the least: name, value where no report
# tells, what it is, band (GiB), conditions.
_LATE: Final[tuple[tuple[str, float, str, float, float, dict[str, Any]], ...]] = (
    ("unified", 2.0, "on unified memory the host's use counts too", 0.2, 6.0, {"gpu": "unified"}),
    # Starts under WSL2 leave 0.0 to 0.2 GiB unexplained (Gemma 4) and 1.5 to 1.7 (Qwen3.6-35B), on one machine: what
    # sets them apart is not known, so no middle is fitted.
    (
        "windows",
        0.8,
        "starts under Windows show 0.1 to 1.7 GiB",
        0.05,
        1.75,
        {"first": [9, 1], "host": "windows"},
    ),
    ("V0 old", 1.2, "everything outside PyTorch counts, the context included", 0.3, 4.2, {"last": [6, 4]}),
    ("pipeline", 0.9, "point-to-point channels between stages", 0.1, 2.4, {"first": [21, 0], "pipeline": "yes"}),
    ("first stage", 0.07, "stages before the last load no sampler", 0.03, 0.3, {"stage": "before last"}),
    ("two 17-20 hbm", 2.07, _BOTH, 2.0, 2.2, {**_MIDDLE_ERA, "ranks": "two"}),
    ("many 17-20 hbm", 2.13, _BOTH, 2.0, 2.3, {**_MIDDLE_ERA, "ranks": "many"}),
    ("many old hbm", 0.55, _BOTH, 0.3, 0.9, {"last": [16, 99], "ranks": "many", "gpu": "hbm"}),
    ("many new hbm", 0.9, _BOTH, 0.3, 1.6, {"first": [21, 0], "ranks": "many", "gpu": "hbm"}),
    ("many new pcie", 0.5, _BOTH, 0.15, 1.2, {"first": [21, 0], "ranks": "many"}),
    ("many pcie", 0.3, _BOTH, 0.15, 0.8, {"ranks": "many"}),
    ("eager", 0.07, "nothing was captured", 0.03, 0.3, {"last": [20, 99], "graphs": "no"}),
    ("V0", 0.1, _KERNELS, 0.02, 0.3, {"runner": "V0"}),
    ("one old", 0.13, _KERNELS, 0.05, 0.25, {"last": [17, 99]}),
    # Of two hybrids one took 2.5 GiB; of other models none took more than models do in other releases.
    (
        "one new states",
        0.2,
        f"{_KERNELS}, those of recurrent states among them",
        0.05,
        2.5,
        {"first": [21, 0], "states": "yes"},
    ),
    ("one new", 0.2, _KERNELS, 0.05, 0.8, {"first": [21, 0]}),
    ("one", 0.25, _KERNELS, 0.05, 0.4, {}),
)


def sampler_and_fixed(seen: Sequence[Seen]) -> dict[str, list[Entry]]:
    """Bytes per logit in the sampler, and what libraries add to every peak, from text models that it bounds."""
    text = [s for s in seen if not s.model.spec.towers and s.ranks.pp == 1 and s.settings.model.dtype != "float32"]
    points = [(s, p) for s in text if (p := s.peak()) is not None and s.runner == "V1" and s.version >= (17, 0)]
    points = [(s, p) for s, p in points if p > 1.15 * (s.halves + 2 * s.hidden_row) and s.plain]
    logit, fixed = least_squares([((s.rows * s.model.spec.vocab_size, 1.0), p - s.hidden_row) for s, p in points])
    fixed_entry = entry(fixed, "what stays of libraries' workspaces in the peak", (s.id for s, _ in points),
                        low=0.3 * fixed, high=fixed + 120 * MIB)  # fmt: skip

    def per_logit(choose: Callable[[Seen], bool]) -> list[tuple[str, float]]:
        found = []
        for s in text:
            peak = s.peak()
            if peak is None or not choose(s) or not s.plain or peak < 1.15 * (s.halves + 2 * s.hidden_row):
                continue
            found.append((s.id, (peak - s.hidden_row - fixed) / (s.rows * s.model.spec.vocab_size)))
        return found

    sorting = "the sampler sorts every row in fp32"
    v0, v1 = per_logit(lambda s: s.runner == "V0"), per_logit(lambda s: s.runner == "V1" and s.version < (17, 0))
    new = per_logit(lambda s: s.runner == "V1" and s.version >= (17, 0))
    logits = [
        middle(v0, sorting, runner="V0"), middle(v1, sorting, last=[16, 99], runner="V1"),
        {**middle(new, "fp32 logits, a copy and probabilities", runner="V1"), "value": logit},
        entry(3.1, "less than one fp32 copy: a warm 0.27.1 start", ["qwen3-8b-4090-0271-warm"], low=1.5, high=10.0,
              last=[28, 99], runner="V2"),
        entry(10.0, "16-bit logits, an fp32 copy and probabilities, read in 0.33", low=4.0, high=10.5, basis="analytic",
              runner="V2"),
    ]  # fmt: skip
    recent = {**fixed_entry, "first": [21, 0], "low": 0.0, "high": fixed + 200 * MIB}
    return {"sampler_logit_bytes": logits, "peak_fixed_bytes": [recent, fixed_entry]}


def forward(seen: Sequence[Seen], fixed: float) -> dict[str, list[Entry]]:
    """Hidden-sized tensors alive at the widest point of the forward pass, from starts that it bounds."""
    v1 = [
        (s.id, (p - fixed - s.halves) / s.hidden_row)
        for s in seen
        if (p := s.peak()) is not None and s.runner == "V1" and s.ranks.pp > 1 and s.version < (21, 0)
    ]
    why = "residual, normed input and what the stage hands on"
    handing_on = middle(v1, why, runner="V1", stage="before last")
    ids = handing_on["rows"]
    return {
        "forward_hidden_rows": [
            handing_on,
            entry(
                handing_on["value"] - 2,
                "as stages before the last, less the two that they hand on",
                ids,
                low=1.5,
                high=handing_on["high"],
                runner="V1",
            ),
            entry(2.0, "residual and normed input", low=1.0, high=6.0, basis="analytic"),
        ],
        "forward_share": [
            entry(1.0, "16-bit tensors at the widest point of a layer", low=0.9, high=1.25, basis="analytic")
        ],
    }


def vision(seen: Sequence[Seen], fixed: float, logit: float) -> dict[str, list[Entry]]:
    """What encoders leave in the peak beside their outputs."""
    found = []
    for s in seen:
        peak = s.peak()
        if peak is None or not s.model.spec.towers or s.ranks.pp > 1 or s.runner != "V1" or s.version < (17, 0):
            continue
        kept = activations.moments(s.model, s.settings, s.gpu, 0).kept.value
        found.append((s.id, peak - fixed - kept - s.hidden_row - logit * s.rows * s.model.spec.vocab_size))
    usual = [(name, value) for name, value in found if 0 < value < GIB]
    if not usual:
        return {"encoder_rest_bytes": [entry(150 * MIB, "encoders leave this in the peak", low=0, high=400 * MIB)]}
    return {"encoder_rest_bytes": [middle(usual, "encoders leave this in the peak", 60 * MIB)]}


def late(seen: Sequence[Seen]) -> dict[str, list[Entry]]:
    """Memory outside PyTorch that appears in the budget: by version, kind of GPU and ranks."""
    groups: dict[str, list[tuple[str, float]]] = {}
    told: set[tuple[object, ...]] = set()
    for s in seen:
        value = s.printed.get("non_torch")
        consumed, loading = s.printed.get("consumed_weights_plus_non_torch"), s.printed.get("model_loading")
        if value is None and consumed is not None:
            load = weights.loaded(s.model, s.settings, s.gpu, 0).value if loading is None else loading
            tables = weights.tables(s.model, s.settings, s.gpu, 0).value
            value = consumed - load - workspace.persistent(s.model, s.settings, s.gpu, 0).value + tables
        several = s.ranks.tp * s.ranks.pp > 1 and s.version >= (21, 0)
        if value is None and several:
            value = _rest(s)
        if value is None or s.gpu.windows or not 0 <= value < 4 * GIB or s.id == _UNEXPLAINED:
            continue
        start = (
            s.model.id,
            s.model.weight_format,
            s.gpu.name,
            s.ranks.tp,
            s.ranks.pp,
            s.version,
        )
        if s.ranks.pp == 1 or start not in told:  # the same start told twice counts once
            groups.setdefault(_late_group(s), []).append((s.id, value))
        told.add(start)
    entries = []
    for name, default, why, low, high, when in _LATE:
        pairs = groups.get(name, [])
        given = {"low": low * GIB, "high": high * GIB}
        made = middle(pairs, why, 40 * MIB, **when) if pairs else entry(
            default * GIB, why, (), basis="assumed", **given, **when)  # fmt: skip
        if len(pairs) < FEW:
            # Few starts say little about the spread: the band is what longer runs of reports show.
            made |= {"low": min(made["value"], given["low"]), "high": max(made["value"], given["high"])}
        entries.append(made)
    return {"late_bytes": entries}


def _rest(s: Seen) -> float | None:
    """What a report leaves unexplained: its budget less weights, KV memory and the other terms of the plan."""
    if not {"available_kv", "model_loading"} <= s.printed.keys():
        return None
    tables = weights.tables(s.model, s.settings, s.gpu, 0).value
    graph = s.printed.get("cudagraph_estimated", float(graphs.estimate(s.model, s.settings, s.gpu, 0).value))
    told = s.printed["available_kv"] + s.printed["model_loading"] + graph
    planned = (
        workspace.persistent(s.model, s.settings, s.gpu, 0).value
        - tables
        + activations.peak(s.model, s.warm, s.gpu, 0).value
    )
    return s.settings.cache.utilization * s.gpu.total_bytes - told - planned


def _late_group(s: Seen) -> str:
    if s.gpu.kind == "unified":
        return "unified"
    if s.gpu.windows and s.version >= (9, 1):
        return "windows"
    if s.version <= (6, 4):
        return "V0 old" if "virtual" not in s.row.text and "vgpu" not in s.row.text else "virtual GPU"
    if s.ranks.pp > 1:
        return "first stage" if s.version < (21, 0) else "pipeline"
    if s.ranks.tp > 1:
        if s.gpu.kind != "hbm":
            return "many pcie" if s.version < (21, 0) else "many new pcie"
        if s.version < (17, 0) or s.version >= (21, 0):
            return "many old hbm" if s.version < (17, 0) else "many new hbm"
        return "two 17-20 hbm" if s.ranks.tp == 2 else "many 17-20 hbm"
    if s.settings.graphs.mode == "NONE":
        return "eager"
    if s.runner == "V0":
        return "V0"
    if s.version < (18, 0):
        return "one old"
    if s.version < (21, 0):
        return "one"
    return "one new states" if s.model.spec.has_states else "one new"


def outside(seen: Sequence[Seen]) -> dict[str, list[Entry]]:
    """What is gone before the first snapshot: the context on one rank, collectives on several."""
    gone = [
        (s, s.printed["total_gpu"] - s.printed["free"])
        for s in seen
        if {"total_gpu", "free"} <= s.printed.keys() and s.row.facts["outcome"] != "free_check"
    ]
    alone = [
        (s.id, min(s.gpu.total_bytes, 96 * GIB), value)
        for s, value in gone
        if s.ranks.tp * s.ranks.pp == 1 and value < 0.7 * GIB and s.gpu.kind != "unified"
    ]
    base, share = least_squares([((1.0, float(size)), value) for _, size, value in alone])
    ids = [name for name, _, _ in alone]
    off = sorted(value - base - share * size for _, size, value in alone)
    many = [
        (s.id, value - base - share * min(s.gpu.total_bytes, 96 * GIB))
        for s, value in gone
        if s.ranks.tp > 1 and s.gpu.kind == "hbm"
    ]
    host = "what else the host's memory holds"
    return {
        "context_base_bytes": [
            entry(8 * GIB, host, low=0.3 * GIB, high=9 * GIB, basis="assumed", gpu="unified"),
            entry(base, "CUDA context", ids, low=base + min(off[0], -50 * MIB),
                  high=base + max(off[-1], 300 * MIB)),
        ],
        "context_share": [
            entry(0.0, host, basis="assumed", gpu="unified"),
            entry(share, "the context grows with the GPU", ids, low=share, high=share),
        ],
        "nccl_outside_bytes": [
            entry(0, "the snapshot comes before the collectives", low=0, high=0, last=[17, 99]),
            middle(many, "collectives before the snapshot", 300 * MIB, gpu="hbm") if many else
            entry(1600 * MIB, "collectives before the snapshot", low=900 * MIB, high=2100 * MIB, gpu="hbm"),
            entry(300 * MIB, "one communicator without NVLink", low=0, high=1600 * MIB, basis="analytic"),
        ],
    }  # fmt: skip


def cuda_graphs(seen: Sequence[Seen]) -> dict[str, list[Entry]]:
    """The graph law for the estimate and for what capture took: coefficients, and factors by kind of model."""
    found: dict[str, list[Entry]] = {}
    for name, key in (("graph_estimate", "cudagraph_estimated"), ("graph_actual", "graph_capture")):
        eras: tuple[tuple[str, dict[str, Any], bool], ...] = (
            ("before 0.21", {"last": [20, 99]}, True), ("from 0.21", {}, False),
        )  # fmt: skip
        for label, when, old in eras:
            used = [
                s for s in seen if 0 < s.printed.get(key, 0) < 6 * GIB and (s.version < (21, 0)) is old and s.graphs
            ]
            for part, entries in _graph_law(name, key, label, when, used).items():
                found.setdefault(part, []).append(entries)
    # The starts with experts since 0.21 ran on four and eight joined data-centre GPUs, whose collectives register
    # buffers while they are captured: what others take lies between these and the starts before.
    newest = found["graph_actual_experts"][-1]
    found["graph_actual_experts"][-1] = {**newest, "gpu": "hbm"}
    others = entry(2.0, "experts against plain models, between reports before and since 0.21", low=0.8, high=3.3,
                   basis="assumed")  # fmt: skip
    found["graph_actual_experts"].append(others)
    return found


def _graph_law(name: str, key: str, label: str, when: dict[str, Any], used: Sequence[Seen]) -> dict[str, Entry]:
    """Entries of one law: least squares of relative errors on plain models, the furthest fifth left out."""
    points = {s.id: ((float(s.graphs), float(s.graphs * s.layers)), s.printed[key]) for s in used}
    plain = [s.id for s in used if s.plain and not s.packed]
    coefficients = [0.0, 0.0]
    for _ in range(3):
        relative = [(tuple(f / points[i][1] for f in points[i][0]), 1.0) for i in plain]
        coefficients = least_squares(relative)
        worst = sorted(plain, key=lambda i: abs(_ratio(coefficients, *points[i]) - 1))
        plain = worst[: max(4, len(worst) - len(worst) // 5)]
    parts = {
        f"{name}_base": entry(0.0, "nothing without graphs", basis="analytic", **when),
        f"{name}_packed": _packed_base(key, coefficients, used, when),
        f"{name}_each": entry(coefficients[0], f"per captured size, {label}", plain, **when),
        f"{name}_layer": entry(coefficients[1], f"per captured size and layer, {label}", plain, **when),
    }
    for kind, chosen in (
        ("plain", [s for s in used if s.plain and not s.packed]),
        ("experts", [s for s in used if architecture(s.model.spec) in ("experts", "latent attention")]),
        ("states", [s for s in used if architecture(s.model.spec) == "hybrid"]),
    ):
        ratios = [(s.id, _ratio(coefficients, *points[s.id])) for s in chosen]
        why = f"{kind} models against plain ones, {label}" if kind != "plain" else f"spread of plain models, {label}"
        if ratios:
            made = middle(ratios, why, 0.35, **when)
            value = 1.0 if kind == "plain" else made["value"]
            made |= {
                "value": value,
                "low": max(0.3 * value, min(made["low"], value)),
                "high": min(3 * value, made["high"]),
            }
        else:
            value = 2.0 if kind != "plain" else 1.0
            made = entry(value, why, low=0.5, high=2 * value, basis="assumed", **when)
        parts[f"{name}_{kind}"] = made
    return parts


def _packed_base(key: str, coefficients: Sequence[float], used: Sequence[Seen], when: dict[str, Any]) -> Entry:
    """What the graphs of 4-bit kernels take however few they are: starts that capture a handful of sizes."""
    why = "scratch of 4-bit kernels in the first graph's pool"
    found = [
        (s.id, max(s.printed[key] - s.graphs * (coefficients[0] + coefficients[1] * s.layers), 0.0))
        for s in used
        if s.packed and s.graphs <= _HANDFUL
    ]
    if not found:
        return entry(0.28 * GIB, why, low=0, high=0.45 * GIB, basis="assumed", **when)
    return middle(found, why, 0.1 * GIB, **when)


def _ratio(coefficients: Sequence[float], features: Sequence[float], value: float) -> float:
    return value / sum(c * f for c, f in zip(coefficients, features, strict=True))


def fit(reports: Sequence[Seen] | None = None) -> dict[str, list[Entry]]:
    """All entries, from every report or from these."""
    seen = collect() if reports is None else reports
    constants = sampler_and_fixed(seen)
    fixed = constants["peak_fixed_bytes"][-1]["value"]
    logit = next(e["value"] for e in constants["sampler_logit_bytes"] if e.get("runner") == "V1" and "last" not in e)
    constants |= forward(seen, fixed) | vision(seen, fixed, logit) | late(seen) | outside(seen)
    return constants | cuda_graphs(seen)


def main(show: bool) -> None:
    """Fit twice, since the second pass reads what the first one wrote, and write the result."""
    for _ in range(1 if show else 2):
        constants = fit()
        if not show:
            kept = json.loads(TARGET.read_bytes()).get("left_out", {})
            text = json.dumps({"schema": 1, "constants": constants, "left_out": kept}, indent=1, ensure_ascii=False)
            TARGET.write_text(text + "\n", encoding="utf-8")
    for name, entries in constants.items():
        for item in entries:
            when = {
                k: v
                for k, v in item.items()
                if k in ("first", "last", "runner", "gpu", "ranks", "stage", "pipeline", "graphs", "host")
            }
            scale = MIB if abs(item["value"]) > 10_000 else 1
            band = " ".join(f"{item[k] / scale:.2f}" for k in ("value", "low", "high"))
            print(f"{name} {when}: {band}{' MiB' if scale == MIB else ''}, {len(item['rows'])} reports")


if __name__ == "__main__":
    main("--show" in sys.argv)
