"""Runs the benchmarks of one area or of all and prints a table."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import sys

import tests.bench
from tests.bench import Row


def areas() -> list[str]:
    """The names of the areas, each a module bench_NAME beside this one."""
    names = (m.name for m in pkgutil.iter_modules(tests.bench.__path__))
    return sorted(n.removeprefix("bench_") for n in names if n.startswith("bench_"))


def show(area: str, rows: list[Row]) -> None:
    """Prints one area's rows."""
    print(f"\n{area}")
    for row in rows:
        ratio = f"{row.ratio:6.2f} × floor {row.floor:.1f}" if row.ratio is not None else ""
        allowed = [f"≤ {row.budget:g}"] if row.budget is not None else []
        allowed += [f"≤ {row.budget_ratio:g} ×"] if row.budget_ratio is not None else []
        verdict = {True: "within", False: "OVER", None: ""}[row.within]
        budget = f"{verdict} {' and '.join(allowed)}" if allowed else ""
        print(f"  {row.name:<58} {row.value:10.3f} {row.unit:<8} {ratio:<22} {budget} {row.note}".rstrip())


def main() -> int:
    """Returns 0; a missed budget is reported, an area that cannot run ends the run with its error."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("area", nargs="*", help=f"of {', '.join(areas())}; all when left out")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeat", type=int, help="runs of each measurement (15)")
    args = parser.parse_args()
    if unknown := set(args.area) - set(areas()):
        parser.error(f"no area {', '.join(sorted(unknown))}; there are {', '.join(areas())}")
    if args.repeat:
        os.environ["KVPLANNER_BENCH_REPEAT"] = str(args.repeat)
    results: dict[str, list[Row]] = {}
    for area in args.area or areas():
        results[area] = importlib.import_module(f"tests.bench.bench_{area}").run()
        if not args.json:
            show(area, results[area])
    if args.json:
        rows = {a: [{**r._asdict(), "ratio": r.ratio, "within": r.within} for r in rs] for a, rs in results.items()}
        json.dump(rows, sys.stdout, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
