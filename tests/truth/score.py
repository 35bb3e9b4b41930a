"""Score the planner on start-up reports: python -m tests.truth.score FILE.jsonl [--json | --markdown].

For each rule era and kind of architecture: how many reports were used, how far weights and available KV memory are
off, whether tokens and start-up stages are right, and how often the band holds the truth. A report that cannot be
used is listed with a reason from a closed list. Reports of SGLang and of llama.cpp print other figures and are scored
by tests.truth.sglang and tests.truth.llamacpp; files of several engines give one part each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from kvplanner.units import GIB
from tests.truth import llamacpp, neighbours, sglang
from tests.truth.measure import Pair, Score, score
from tests.truth.rows import read

NEW_SINCE: Final = 21
_WORST: Final = 10
_ONE_PERCENT: Final = 0.01


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Everything that is measured, as plain data."""
    weights = [s.weights for s in scores if s.weights]
    stages = [s.stage for s in scores if s.stage]
    failures = [pair for pair in stages if pair[0] is not None]
    exact = [s.tokens_exact for s in scores if s.tokens_exact is not None]
    return {
        "rows": len(scores),
        "weights": _relative(weights),
        "available_kv": _of_gpu([(s.kv, s.gpu_bytes) for s in scores if s.kv]),
        "available_kv_nearer": _of_gpu([(s.kv_nearer, s.gpu_bytes) for s in scores if s.kv_nearer]),
        "tokens_given_kv": {"used": len(exact), "exact": sum(exact)},
        "stages": {"used": len(stages), "right": sum(a == b for a, b in stages)},
        "failure_stages": {"used": len(failures), "right": sum(a == b for a, b in failures)},
        "explained_by_some_era": {
            "tried": sum(1 for s in scores if s.skipped.get("kv") == "version unknown and it matters" and s.era),
            "explained": sum(s.any_era for s in scores),
        },
        "skipped": {
            name: dict(Counter(s.skipped[name] for s in scores if name in s.skipped))
            for name in ("weights", "kv", "tokens", "stage")
        },
    }


def _relative(pairs: Sequence[Pair]) -> dict[str, Any]:
    errors = [abs(p.error) / p.reported for p in pairs]
    if not errors:
        return {"used": 0}
    return {
        "used": len(errors), "median": statistics.median(errors), "mean": statistics.fmean(errors),
        "p90": _percentile(errors, 0.9), "worst": max(errors), "within_1_percent": _within(errors),
    }  # fmt: skip


def _of_gpu(pairs: Sequence[tuple[Pair, int]]) -> dict[str, Any]:
    if not pairs:
        return {"used": 0}
    shares = [abs(p.error) / gpu for p, gpu in pairs]
    widths = [(p.high - p.low) / gpu for p, gpu in pairs]
    return {
        "used": len(pairs),
        "mean_gib": statistics.fmean(abs(p.error) for p, _ in pairs) / GIB,
        "mean_share_of_gpu": statistics.fmean(shares),
        "median_share_of_gpu": statistics.median(shares),
        "within_1_percent_of_gpu": _within(shares),
        "bias_share_of_gpu": statistics.fmean(p.error / gpu for p, gpu in pairs),
        "p90_share_of_gpu": _percentile(shares, 0.9),
        "covered": sum(p.covered for p, _ in pairs) / len(pairs),
        "median_width_share_of_gpu": statistics.median(widths),
    }


def _within(errors: Sequence[float]) -> float:
    """The share of errors that are at most 1 %."""
    return sum(error <= _ONE_PERCENT for error in errors) / len(errors)


def _percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def groups(scores: Sequence[Score]) -> dict[str, list[Score]]:
    """Scores by era, kind of architecture and platform, and the groups that targets speak of."""
    found: dict[str, list[Score]] = {}
    for s in scores:
        if not s.era:
            continue
        for name in (f"era {s.era}", f"kind {s.kind}", f"platform {s.platform}" if s.platform else ""):
            if not name:
                continue
            found.setdefault(name, []).append(s)
        minor = int(s.row.version.split(".")[1]) if s.row.version else 0
        if 15 <= minor <= 19 and "H100" in str(s.row.facts.get("gpu")):
            found.setdefault("H100, 0.15 to 0.19", []).append(s)
        if minor >= NEW_SINCE:
            found.setdefault("0.21 and later", []).append(s)
        elif minor:
            found.setdefault("before 0.21", []).append(s)
    return dict(sorted(found.items()))


def worst(scores: Sequence[Score]) -> list[Score]:
    """The reports whose available KV memory is furthest off, as a share of the GPU."""
    used = [s for s in scores if s.kv]
    return sorted(used, key=lambda s: -abs(s.kv.error) / s.gpu_bytes if s.kv else 0)[:_WORST]


def text(scores: Sequence[Score]) -> str:
    """The figures for people."""
    lines = [_line("all", scores)]
    lines += [_line(name, part) for name, part in groups(scores).items()]
    lines.append("\nnot used:")
    for name, reasons in summary(scores)["skipped"].items():
        lines.append(f"  {name}: " + ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items())))
    lines.append("\nworst available KV (planned − reported, GiB):")
    lines += [_kv_line(s, s.kv) for s in worst(scores) if s.kv]
    lines.append("\nworst weights:")
    by_weight = sorted(
        ((abs(s.weights.error / s.weights.reported), s, s.weights) for s in scores if s.weights), key=lambda x: -x[0]
    )
    lines += [
        f"  {s.row.id}: {w.planned / GIB:.2f} − {w.reported / GIB:.2f} GiB = {100 * w.error / w.reported:+.2f} %"
        for _, s, w in by_weight[:_WORST]
    ]
    lines.append("\nstages that are wrong (reported, planned):")
    lines += [f"  {s.row.id}: {s.stage[0]}, {s.stage[1]}" for s in scores if s.stage and s.stage[0] != s.stage[1]]
    return "\n".join(lines)


def _kv_line(s: Score, kv: Pair) -> str:
    band = f"[{kv.low / GIB:.2f}, {kv.high / GIB:.2f}]"
    share = 100 * kv.error / s.gpu_bytes
    return (
        f"  {s.row.id}: {kv.planned / GIB:.2f} {band} − {kv.reported / GIB:.2f} = {kv.error / GIB:+.2f},"
        f" {share:+.1f} % of the GPU ({s.era}, {s.kind})"
    )


def _line(name: str, scores: Sequence[Score]) -> str:
    data = summary(scores)
    weights, kv, stages = data["weights"], data["available_kv"], data["stages"]
    nearer = data["available_kv_nearer"]
    parts = [f"{name}: {data['rows']} reports"]
    if weights["used"]:
        parts.append(
            f"weights {weights['used']} used, {100 * weights['mean']:.2f} % mean, "
            f"{100 * weights['median']:.2f} % median, {100 * weights['p90']:.2f} % p90, "
            f"{100 * weights['within_1_percent']:.0f} % within 1 %"
        )
    if kv["used"]:
        parts.append(
            f"KV {kv['used']} used, {kv['mean_gib']:.2f} GiB mean = {100 * kv['mean_share_of_gpu']:.2f} % of the GPU "
            f"(median {100 * kv['median_share_of_gpu']:.2f}, bias {100 * kv['bias_share_of_gpu']:+.2f}), "
            f"{100 * kv['within_1_percent_of_gpu']:.0f} % within 1 %, band holds {100 * kv['covered']:.0f} %, "
            f"width {100 * kv['median_width_share_of_gpu']:.1f} %; with the nearer compile cache where none is stated "
            f"{100 * nearer['mean_share_of_gpu']:.2f} % mean, {100 * nearer['median_share_of_gpu']:.2f} % median"
        )
    tokens, failures = data["tokens_given_kv"], data["failure_stages"]
    if tokens["used"]:
        parts.append(f"tokens {tokens['exact']}/{tokens['used']} exact")
    if stages["used"]:
        parts.append(f"stages {stages['right']}/{stages['used']}, failures {failures['right']}/{failures['used']}")
    return "; ".join(parts)


def as_json(scores: Sequence[Score]) -> dict[str, Any]:
    """The figures, per group and per report."""
    return {
        "all": summary(scores),
        "groups": {name: summary(part) for name, part in groups(scores).items()},
        "reports": [
            {
                "id": s.row.id, "era": s.era, "kind": s.kind, "platform": s.platform,
                "skipped": s.skipped, "any_era": s.any_era,
                "weights": s.weights and s.weights._asdict(), "kv": s.kv and s.kv._asdict(),
                "kv_nearer": s.kv_nearer and s.kv_nearer._asdict(),
                "tokens": s.tokens and s.tokens._asdict(), "tokens_exact": s.tokens_exact, "stage": s.stage,
            }
            for s in scores
        ],
    }  # fmt: skip


def engine_of(path: Path) -> str:
    """Whose reports a file holds, by its name or by what its first report states: vllm, sglang or llamacpp."""
    for name in ("sglang", "llamacpp"):
        if path.name.startswith(name):
            return name
    with path.open(encoding="utf-8") as lines:
        first: dict[str, Any] = next((json.loads(line) for line in lines if line.strip()), {})
    return "llamacpp" if "engine_version" in first else "sglang" if "sglang_version" in first else "vllm"


def _vllm(files: Sequence[Path], *, form: str) -> str:
    reports = [row for path in files for row in read(path)]
    scores = [score(row) for row in reports]
    if form == "json":
        calibrated = neighbours.summary(neighbours.improved(reports))
        return json.dumps(as_json(scores) | {"calibrated": calibrated}, indent=1)
    if form == "markdown":
        from tests.truth.markdown import accuracy

        return accuracy(scores)
    return text(scores) + "\n\n" + neighbours.line(neighbours.improved(reports))


def _sglang(files: Sequence[Path], *, form: str) -> str:
    from tests.truth.engines import sglang_lines

    scores = [sglang.score(row) for path in files for row in sglang.read(path)]
    if form == "json":
        return json.dumps(sglang.as_json(scores), indent=1)
    return "\n".join(sglang_lines(scores)) if form == "markdown" else sglang.text(scores)


def _llamacpp(files: Sequence[Path], *, form: str) -> str:
    from tests.truth.engines import llamacpp_lines

    scores = [llamacpp.score(row) for path in files for row in llamacpp.read(path)]
    if form == "json":
        return json.dumps(llamacpp.as_json(scores), indent=1)
    return "\n".join(llamacpp_lines(scores)) if form == "markdown" else llamacpp.text(scores)


_SCORERS: Final = {"vllm": _vllm, "sglang": _sglang, "llamacpp": _llamacpp}


def main(arguments: Sequence[str]) -> int:
    """Score the files that are named and print the result."""
    parser = argparse.ArgumentParser(prog="python -m tests.truth.score", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)
    form = "json" if options.json else "markdown" if options.markdown else "text"
    files: dict[str, list[Path]] = {}
    for path in options.files:
        files.setdefault(engine_of(path), []).append(path)
    parts = {engine: _SCORERS[engine](given, form=form) for engine, given in files.items()}
    if form == "json" and len(parts) > 1:
        out = json.dumps({engine: json.loads(part) for engine, part in parts.items()}, indent=1)
    else:
        out = "\n\n".join(parts.values())
    sys.stdout.write(out + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
