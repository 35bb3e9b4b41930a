"""The accuracy section of the project's README, made from scores: what was measured, on what, and what is off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvplanner.units import GIB
from tests.truth.measure import Pair, Score
from tests.truth.rows import REASONS
from tests.truth.score import groups, summary, worst

_EXPLAINED: dict[str, str] = {
    "qwen25-72b-gptq-a40vgpu-064-11230": "a virtual GPU: 4.1 GiB outside PyTorch, more than any other start shows",
    "qwen3-32b-pro6000-0271-tp1": "3.9 GiB beside the weights, 1.7 GiB on two GPUs: a first compilation, probably",
    "qwen3-32b-pro6000-0271-pp2": "channels between stages: two reports, far apart",
    "olmocr-7b-4090-269": "a vision profile of this older version, larger than the law for today's encoders",
    "kimik26-8xgb200-47654": "expert kernels of this GPU route inside; what they keep is not known",
}
# Reports whose numbers follow from no rule of the engine, and why.
_BEYOND: dict[str, str] = {
    "qwen36-35b-nvfp4-gb10-neggraph-44740": "the graph estimate came out at −20.5 GiB and went into the KV cache",
    "qwen35-122b-nvfp4-gb10-neggraph-44740": "the graph estimate came out at −10.3 GiB and went into the KV cache",
    "qwen38-2p4t-gb300-53013": "a graph estimate of 119 GiB",
    "b200-huge-graphs-57936": "graphs of 64 GiB, more than the weights",
    "awq-v100-turbomind14-plugin": "a kernel library that takes 9 GiB outside PyTorch",
    "qwen36-27b-fp8-pro6000-wsl-41619": "a driver layer that holds 16 GiB which no query shows",
    "qwen3omni-talker-h20-omni276": "a second engine on the same GPU: everything resident counts against its share",
}
_SHOWN: int = 8


def accuracy(scores: Sequence[Score]) -> str:
    """Markdown: a table by group, the worst reports with what is known of them, and what could not be used."""
    data = summary(scores)
    lines = [
        "## Accuracy against public start-up reports",
        "",
        _prose(data),
        "",
        "| Reports | weights: used, mean error | KV memory: used, mean error, of the GPU | band holds | tokens exact |",
        "|---|---|---|---|---|",
    ]
    lines.append(_row("all", data))
    lines += [_row(name, summary(part)) for name, part in groups(scores).items() if _has_figures(part)]
    lines += [
        "",
        "The furthest off:",
        "",
        "| Report | planned (band), GiB | reported | of the GPU | why |",
        "|---|---|---|---|---|",
    ]
    lines += [_worst_row(s, s.kv) for s in worst(scores)[:_SHOWN] if s.kv]
    lines += [
        "",
        "Reports that could not be used, by reason:",
        "",
        "| Reason | weights | KV memory | stage |",
        "|---|---|---|---|",
    ]
    skipped = data["skipped"]
    for reason in REASONS:
        counts = [skipped[name].get(reason, 0) for name in ("weights", "kv", "stage")]
        if any(counts):
            lines.append(f"| {reason} | " + " | ".join(str(count) for count in counts) + " |")
    lines += ["", "Reports that no plan can explain:", ""]
    lines += [f"- {_link(s)}: {_BEYOND[s.row.id]}" for s in scores if s.row.id in _BEYOND]
    lines += ["", "Made by `python -m tests.truth.score --markdown tests/truth/vllm.jsonl`."]
    return "\n".join(lines)


def _prose(data: dict[str, Any]) -> str:
    """How far off the plans are; what no report states enough for is left out."""
    weights, kv, failures = data["weights"], data["available_kv"], data["failure_stages"]
    found = [
        f"Of {data['rows']} public vLLM start-up reports, {weights['used']} state enough to compare loaded weights and "
        f"{kv['used']} to compare the memory left for the KV cache."
    ]
    off: list[str] = []
    if weights["used"]:
        off.append(
            f"Weights are off by {_percent(weights['mean'])} on average (median {_percent(weights['median'])}, "
            f"{_percent(weights['within_1_percent'], 0)} of them within 1 %)"
        )
    if kv["used"]:
        subject = "available KV memory" if off else "Available KV memory is off"
        off.append(
            f"{subject} by {kv['mean_gib']:.2f} GiB, {_percent(kv['mean_share_of_gpu'])} of the GPU (median "
            f"{_percent(kv['median_share_of_gpu'])}, {_percent(kv['within_1_percent_of_gpu'], 0)} within 1 %)"
        )
    if off:
        found.append("; ".join(off) + ".")
    if kv["used"]:
        nearer = data["available_kv_nearer"]
        found.append(
            "A report that does not say whether kernels had been compiled before is planned as a first start, the "
            "default; were the nearer of a first and a later start taken, it would be "
            f"{_percent(nearer['mean_share_of_gpu'])} and {_percent(nearer['median_share_of_gpu'])}. The stated 90 % "
            f"band holds {_percent(kv['covered'], 0)} of them at a median width of "
            f"{_percent(kv['median_width_share_of_gpu'])} of the GPU."
        )
    found.append(
        f"Of {failures['used']} reported failures that state what decides them, {failures['right']} fail in the plan "
        "at the same stage."
    )
    return " ".join(found)


def _has_figures(part: Sequence[Score]) -> bool:
    return any(s.weights or s.kv for s in part)


def _row(name: str, data: dict[str, Any]) -> str:
    weights, kv, tokens = data["weights"], data["available_kv"], data["tokens_given_kv"]
    cells = [
        f"{weights['used']}, {_percent(weights['mean'])}" if weights["used"] else "–",
        f"{kv['used']}, {kv['mean_gib']:.2f} GiB, {_percent(kv['mean_share_of_gpu'])}" if kv["used"] else "–",
        _percent(kv["covered"], 0) if kv["used"] else "–",
        f"{tokens['exact']} of {tokens['used']}" if tokens["used"] else "–",
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


def _worst_row(s: Score, kv: Pair) -> str:
    band = f"{kv.planned / GIB:.2f} ({kv.low / GIB:.2f} to {kv.high / GIB:.2f})"
    why = _EXPLAINED.get(s.row.id, "")
    return f"| {_link(s)} | {band} | {kv.reported / GIB:.2f} | {100 * kv.error / s.gpu_bytes:+.1f} % | {why} |"


def _link(s: Score) -> str:
    source = str(s.row.facts["source"])
    return f"[{s.row.id}]({source})" if source.startswith("http") else s.row.id


def _percent(share: float, digits: int = 2) -> str:
    return f"{100 * share:.{digits}f} %"
