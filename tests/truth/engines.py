"""The README's accuracy of SGLang and llama.cpp, from public start-up reports and from their own code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.truth import llamacpp, sglang

HERE = Path(__file__).parent


def sglang_lines(scores: list[sglang.Score]) -> list[str]:
    """What its reports let compare, by kind of figure."""
    data = sglang.summary(scores)
    cells, fraction, tokens = data["bytes_per_token"], data["fraction"], data["tokens_given_measured"]
    return [
        "### SGLang",
        "",
        f"Of {data['rows']} public reports, {data['models_known']} name a known model. Beside them stands what SGLang "
        "0.5.23's own code computes for known configurations (`tests/oracle/sglang`): every default, pool, request "
        "limit and refusal is equal.",
        "",
        "| Figure of a report | used | right |",
        "|---|---|---|",
        f"| bytes per token | {cells['used']} | {cells['right']} |",
        f"| static fraction, implied by the log and stated | {fraction['compared']} | {fraction['within_0.003']} |",
        f"| tokens, from the memory that the log measured | {tokens['used']} | {tokens['within_rounding']} |",
        f"| stage of a failure | {data['stages']['used']} | {data['stages']['right']} |",
        f"| way out of a failure | {data['remedies']['used']} | {data['remedies']['right']} |",
    ]


def llamacpp_lines(scores: list[llamacpp.Score], later: Sequence[llamacpp.Score] = ()) -> list[str]:
    """What its reports let compare, by build era. later: of reports that were found after the rules were written."""
    eras = sorted({score.build for score in scores if score.compared}, reverse=True)
    return [
        "### llama.cpp",
        "",
        f"Of {len(scores)} public reports, {sum(bool(s.compared) for s in scores)} state enough to compare buffers. "
        "Beside them stand 2,052 answers of unmodified llama.cpp for 132 models of 105 architectures "
        "(`tests/oracle/llamacpp`): weights and caches are equal on every device, compute buffers within 1 % in 99 of "
        "100, for the architectures whose graph is laid out; a plan names the others.",
        "",
        "| Reports | model buffers: used, equal | cache and output buffers: used, equal | "
        "compute buffers: used, within 2 % | failing allocation |",
        "|---|---|---|---|---|",
        _row("all", scores),
        *(_row(f"builds from {era}", [score for score in scores if score.build == era]) for era in eras),
        *([_row("found after the rules were written", later)] if later else []),
    ]


def _row(name: str, scores: Sequence[llamacpp.Score]) -> str:
    data = llamacpp.summary(scores)
    weights, cells = data["model"], data["cache_and_output"]
    compute, failing = data["compute"], data["failing"]
    shown = [
        f"{part['figures']}, {part[key]}" if part["figures"] else "–"
        for part, key in (
            (weights, "equal"),
            (cells, "equal"),
            (compute, "within_2_percent"),
            (failing, "within_2_percent"),
        )
    ]
    return f"| {name} | {' | '.join(shown)} |"


def main() -> int:
    """Print both parts as Markdown."""
    of_sglang = [
        sglang.score(row) for name in ("sglang.jsonl", "sglang-uncited.jsonl") for row in sglang.read(HERE / name)
    ]
    of_llamacpp = [
        llamacpp.score(row)
        for name in ("llamacpp.jsonl", "llamacpp-uncited.jsonl")
        for row in llamacpp.read(HERE / name)
    ]
    later = [llamacpp.score(row) for row in llamacpp.read(HERE / "llamacpp-found.jsonl")]
    lines = [
        *sglang_lines(of_sglang),
        "",
        *llamacpp_lines(of_llamacpp, later),
        "",
        "Made by `python -m tests.truth.engines`.",
    ]
    sys.stdout.write("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
