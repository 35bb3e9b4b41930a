"""logs: start-up logs of 200 MB of several kinds, and what their first lines cost."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from tests.bench import Row, cpu_ms

SIZE = 200_000_000
_RISE = """
import sys
from pathlib import Path
from kvplanner.diagnose.diagnosis import diagnose_file
def status(field):
    return next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith(field))
Path('/proc/self/clear_refs').write_text('5')
base = status('VmRSS')
diagnose_file(Path(sys.argv[1]))
print(status('VmHWM') - base)
"""
_SERVED = (
    "(APIServer pid=70) INFO 01-14 08:12:00 [loggers.py:127] Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg "
    "generation throughput: 45.6 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 12.3%\n"
    '(APIServer pid=70) INFO:     10.0.0.3:41234 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
)


def run() -> list[Row]:
    """Each log beside counting its lines, the least that could be done with it."""
    with tempfile.TemporaryDirectory() as name:
        return [*_large(Path(name)), *_first()]


def _large(folder: Path) -> list[Row]:
    from kvplanner.diagnose.diagnosis import diagnose_file
    from tests.diagnose import writer
    from tests.diagnose.writer import Facts

    started = "\n".join(writer.vllm(Facts())) + "\n"
    failed = "\n".join(writer.vllm(Facts(fails="graph_capture"))) + "\n"
    bar = failed.index("Capturing")
    kinds = {
        "of a server that runs": (started, _SERVED, ""),
        "that waits before it fails": (failed[:bar] + "\n", _SERVED, failed[bar:]),
        "of starts that fail again and again": ("", failed, failed),
    }
    rows = []
    path = folder / "server.log"
    for name, (head, body, tail) in kinds.items():
        path.write_text(head + body * ((SIZE - len(head) - len(tail)) // len(body)) + tail, encoding="utf-8")
        floor = cpu_ms(lambda: _lines(path), repeat=2)
        rows.append(Row(f"200 MB {name}", cpu_ms(lambda: diagnose_file(path), repeat=2), floor, budget=3000))
    rise = subprocess.run([sys.executable, "-c", _RISE, str(path)], capture_output=True, text=True, check=True)
    return [*rows, Row("the last, rise of memory at its peak", int(rise.stdout) / 1024, budget=100, unit="MiB")]


def _lines(path: Path) -> int:
    count = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            count += block.count(b"\n")
    return count


def _first() -> list[Row]:
    """A thousand lines of starts, read and told."""
    from kvplanner.diagnose.diagnosis import diagnose
    from kvplanner.report import diagnosis as report
    from tests.diagnose import writer
    from tests.diagnose.writer import Facts

    lines = writer.vllm(Facts(version="0.10.0", tp=8, fails="graph_capture", failing_rank=3))
    data = ("\n".join((lines * 40)[:1000]) + "\n").encode()
    cost = cpu_ms(lambda: report.text(diagnose(BytesIO(data).read)))
    floor = cpu_ms(lambda: data.decode().splitlines())
    return [Row("1,000 lines of starts with eight workers, read and told", cost, floor, budget=100)]
