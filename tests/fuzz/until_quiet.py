"""Fuzzes target after target, each until ten minutes of its own processor time bring no new branch.

`python -m tests.fuzz.until_quiet FOLDER [TARGET …]` keeps the inputs of each target under FOLDER from run to run, so
that a run goes on where the last one stopped, and adds one line for each target to FOLDER/table.jsonl. A branch is an
edge as libFuzzer counts it (its `cov`); how often an edge is taken (its `ft`) is not novelty here.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.fuzz.targets import TARGETS, catalogue_configs

QUIET_S: Final = 600.0
MOST_S: Final = 3600.0
_LINE: Final = re.compile(rb"^#(\d+)\s+(\w+)\s+cov: (\d+) ft: (\d+).* rss: (\d+)Mb")


def fuzz(target: str, folder: Path, quiet: float = QUIET_S, most: float = MOST_S) -> dict[str, Any]:
    """Runs one target; what came of it. Processor seconds, bytes in MiB."""
    corpus, crashes = folder / f"c-{target}", folder / "crashes"
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(exist_ok=True)
    if target == "json":
        for name, data in catalogue_configs():
            (corpus / f"catalogue-{name}").write_bytes(data)
    command = [sys.executable, "-m", "tests.fuzz", target, str(corpus), f"-artifact_prefix={crashes}/{target}-"]
    command += ["-print_final_stats=1", "-report_slow_units=1"]
    at: dict[str, Any] = dict.fromkeys(("runs", "branches", "first_branches", "last_branch_run", "peak_mib"), 0)
    spent, begun, last, asked = 0.0, 0.0, 0.0, False
    with (folder / f"{target}.log").open("wb") as log, subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        for line in _lines(process):
            log.write(line)
            spent = _spent(process.pid) or spent
            if found := _LINE.match(line):
                runs, branches, rss = int(found[1]), int(found[3]), int(found[5])
                if found[2] == b"INITED":
                    begun, at["first_branches"] = spent, branches
                at["runs"], at["peak_mib"] = runs, max(at["peak_mib"], rss)
                if branches > at["branches"]:
                    at["branches"], at["last_branch_run"], last = branches, runs, spent
            elif line.startswith(b"stat::"):
                at[line.split(b":")[2].decode()] = line.split()[-1].decode()
            if not asked and begun and (spent - last >= quiet or spent - begun >= most):
                asked = True
                process.send_signal(signal.SIGTERM)
    at.update(cpu_s=round(spent - begun), last_branch_s=round(last - begun), quiet_s=round(spent - last))
    return {
        "target": target, **at, "exit": process.returncode,
        "crashes": sorted(path.name for path in crashes.glob(f"{target}-*")),
    }  # fmt: skip


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """What a fuzzer writes, and an empty line at least every five seconds while it writes nothing."""
    assert process.stderr is not None
    pipe, rest = process.stderr.fileno(), b""
    while True:
        if not select.select([pipe], [], [], 5.0)[0]:
            yield b""
            continue
        read = os.read(pipe, 1 << 16)
        if not read:
            return
        *lines, rest = (rest + read).split(b"\n")
        yield from (line + b"\n" for line in lines)


def _spent(pid: int) -> float:
    """Processor seconds of a process, its own and its system's."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    folder, targets = Path(sys.argv[1]), sys.argv[2:] or list(TARGETS)
    for target in targets:
        row = fuzz(target, folder)
        with (folder / "table.jsonl").open("a", encoding="utf-8") as table:
            print(json.dumps({"ended": time.strftime("%H:%M"), **row}), file=table, flush=True)


if __name__ == "__main__":
    main()
