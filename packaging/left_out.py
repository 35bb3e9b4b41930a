"""How far off available KV memory is on reports that the constants were not fitted on, one source at a time.

    python packaging/left_out.py [--show]

Every source (a thread, a repository's logs) is left out in turn, the constants are fitted on all others, and its
reports are planned with them. The errors, and how often the 90 % band holds the truth, go into
resources/vllm_constants.json by platform.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fit_constants
from fit_tools import Entry, Seen, all_rows, collect

from kvplanner.engine.vllm import constants
from kvplanner.engine.vllm.gpu import gpu_of
from kvplanner.errors import PlannerError
from tests.truth.measure import Score, score
from tests.truth.rows import Row, Skip, request_of


def source_of(row: Row) -> str:
    """What reports share whose machine, author or harness is one: a thread, or a repository's folder of logs."""
    text = str(row.facts.get("source") or "")
    match = re.match(r"https?://[^/]+/(?:[^/]+/){2}(?:issues|pull)/\d+|https?://[^/]+/[^/]+/[^/]+", text)
    # Without a source, reports of one model and machine are taken for one author's.
    return match[0] if match else f"{row.facts['model']} {row.facts.get('gpu')}"


def platform_of(row: Row) -> str:
    """The kind of GPU, how many, and how the release accounts for memory."""
    try:
        gpu = gpu_of(request_of(row, row.version).machine.devices[0].gpu)
    except (Skip, PlannerError):
        return "unknown"
    ranks = int(row.facts.get("tp") or 1) * int(row.facts.get("pp") or 1)
    minor = int((row.version or "0.0").split(".")[1])
    era = "before 0.20" if minor < 20 else "0.20 to 0.26" if minor < 27 else "0.27 and later"
    kind = "windows" if gpu.windows else gpu.kind
    return f"{kind}, {'one GPU' if ranks == 1 else 'several'}, {era}"


def fitted_without(seen: Sequence[Seen], name: str, whole: Mapping[str, list[Entry]]) -> dict[str, list[Entry]]:
    """The constants without a source; laws that rest on it alone are left as assumed, or as they are."""
    rest = [s for s in seen if source_of(s.row) != name]
    try:
        return fit_constants.fit(rest)
    except (ValueError, ZeroDivisionError, IndexError):
        return dict(whole)


def use(entries: Mapping[str, list[Entry]]) -> None:
    """Have plans take these constants."""
    constants.replace_table(entries)


def left_out() -> list[Score]:
    """Every report that can be compared, planned by constants that know nothing of its source."""
    seen, rows = collect(), all_rows()
    whole = json.loads(fit_constants.TARGET.read_bytes())["constants"]
    compared = [row for row in rows if score(row).kv is not None]
    found: list[Score] = []
    for name in dict.fromkeys(map(source_of, compared)):
        use(fitted_without(seen, name, whole))
        found += [score(row) for row in compared if source_of(row) == name]
        use(whole)
    return found


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Errors as shares of the GPU, and how often the band holds."""
    pairs = [(s.kv, s.gpu_bytes) for s in scores if s.kv is not None]
    errors = [abs(pair.error) / gpu for pair, gpu in pairs]
    return {
        "reports": len(pairs),
        "mean_share_of_gpu": round(statistics.fmean(errors), 5),
        "median_share_of_gpu": round(statistics.median(errors), 5),
        "covered": round(sum(pair.covered for pair, _ in pairs) / len(pairs), 3),
        "median_width_share_of_gpu": round(statistics.median((p.high - p.low) / gpu for p, gpu in pairs), 5),
    }


def main(show: bool) -> None:
    """Measure, print, and write unless only shown."""
    scores = left_out()
    groups: dict[str, list[Score]] = {"all": scores}
    for item in scores:
        groups.setdefault(platform_of(item.row), []).append(item)
    found = {name: summary(part) for name, part in sorted(groups.items())}
    for name, figures in found.items():
        print(name, figures)
    missed = [s for s in scores if s.kv is not None and not s.kv.covered]
    print("not held by the band:", ", ".join(s.row.id for s in missed) or "none")
    if not show:
        document = json.loads(fit_constants.TARGET.read_bytes())
        text = json.dumps({**document, "left_out": found}, indent=1, ensure_ascii=False)
        fit_constants.TARGET.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main("--show" in sys.argv)
