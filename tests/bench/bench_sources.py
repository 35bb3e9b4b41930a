"""sources: headers of GGUF and safetensors, folders, and searches of this machine."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import Row, cpu_ms, process_cpu_ms, repeats
from tests.bench.bench_window import child

_RISE = """
import sys
from pathlib import Path
from kvplanner.source.gguf.header import read_header
def status(field):
    return next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith(field))
Path('/proc/self/clear_refs').write_text('5')
base = status('VmRSS')
header = read_header(Path(sys.argv[1]))
print(status('VmHWM') - base)
"""


def run() -> list[Row]:
    """All figures of this area."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*_gguf(folder), *_safetensors(folder), *_search(folder)]


def _gguf(folder: Path) -> list[Row]:
    """A header with 1,000 tensors, 150,000 tokens and 150,000 merges."""
    import subprocess

    import gguf

    from kvplanner.source.gguf.header import read_header
    from tests.source.make_gguf import llama_pairs, llama_tensors, write

    tensors = llama_tensors(111, 150_000)
    path = write(folder / "large.gguf", llama_pairs(111, 150_000, 150_000), tensors)
    small = write(folder / "small.gguf", llama_pairs(111, 150_000, 150_000), tensors[1:100])
    started = time.process_time()
    gguf.GGUFReader(path)
    theirs = (time.process_time() - started) * 1e3
    ours = cpu_ms(lambda: read_header(path))
    bars = [float(_opened(path)) for _ in range(max(repeats(), 3))]
    first = [child(f"FILE = {str(path)!r}\n{_FIRST}")[0] for _ in range(max(repeats(), 3))]
    done = subprocess.run([sys.executable, "-c", _RISE, str(path)], capture_output=True, text=True, check=True)
    return [
        Row(f"GGUF header, {len(tensors):,} tensors, 150,000 + 150,000 strings", ours, budget=100),
        Row("the same file opened and planned on two GPUs, ready to draw", min(bars), budget=60),
        Row("the same, the first that a window opens, to the frame with its bars", min(first), budget=60),
        Row("the same, rise of memory at its peak", int(done.stdout) / 1024, budget=30, unit="MiB"),
        Row("the gguf package's reader as a multiple of ours", theirs / ours, unit="times", note="100 is asked for"),
        Row("the same strings, 99 tensors: what the strings cost", cpu_ms(lambda: read_header(small))),
    ]


# As in a window that has planned another file before: its modules are there, and nothing of this file is.
_OPEN = """
import sys, time
from kvplanner.catalog import gpus
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.source.resolve import open_model
machine, chosen = gpus.machine("2xRTX 4090"), engine("llamacpp")
chosen.plan(PlanRequest(open_model(sys.argv[1]), machine, "llamacpp"))
start = time.process_time()
chosen.plan(PlanRequest(open_model(sys.argv[2]), machine, "llamacpp"))
print((time.process_time() - start) * 1e3)
"""

# A window that shows a plan and is at rest, and has read no GGUF file: to the end of the frame with its bars, the form
# and the table among it.
_FIRST = """
import time
from pathlib import Path
from PySide6.QtCore import QEvent, QObject, QTimer
from kvplanner import ui
from kvplanner.ui.window import run

open_first = run.open_first

def opened(app, arguments):
    application, window = open_first(app, arguments)
    window.filled.connect(lambda: QTimer.singleShot(1000, lambda: drop(application, window)))
    return application, window

def drop(application, window):
    def done():
        print((time.process_time() - start) * 1000, flush=True)
        application.end()
    class Painted(QObject):
        def eventFilter(self, watched, event):
            plan = window.document.plan
            if event.type() == QEvent.Type.Paint and plan and plan.request.model.source_detail == FILE:
                watched.removeEventFilter(self)
                QTimer.singleShot(0, done)
            return False
    window.painted = Painted()
    window.centre.bars.canvas.installEventFilter(window.painted)
    start = time.process_time()
    window.opening.open_path(Path(FILE))

run.open_first = opened
ui.run(["Llama-3.3-70B-Instruct", "--gpu", "2xRTX 4090", "--engine", "llamacpp"])
"""


def _opened(path: Path) -> str:
    import subprocess

    small = path.with_name("small.gguf")
    words = [sys.executable, "-c", _OPEN, str(small), str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def _safetensors(folder: Path) -> list[Row]:
    from kvplanner.source.checkpoint.folder import list_files, read_headers
    from kvplanner.source.checkpoint.opening import open_folder
    from tests.source.checkpoints import MODELS, configs
    from tests.source.checkpoints_dense import llama
    from tests.source.make_models import write_folder

    known = configs()
    config = {**known["meta-llama/Llama-3.1-8B-Instruct"], "num_hidden_layers": 80}
    sixty = write_folder(folder / "sixty", config, llama(config), 60)
    deep = {**known["deepseek-ai/DeepSeek-V3"], "num_hidden_layers": 31}
    many = write_folder(folder / "many", deep, MODELS["deepseek-ai/DeepSeek-V3"](deep), 163)
    files, many_files = list_files(sixty), list_files(many)
    tensors = len(read_headers(many_files).tensors)
    return [
        Row("60 safetensors shards, headers", cpu_ms(lambda: read_headers(files)), budget=10),
        Row("60 safetensors shards, opened as a model", cpu_ms(lambda: open_folder(sixty))),
        Row(f"163 shards, {tensors:,} tensors, headers", cpu_ms(lambda: read_headers(many_files), repeat=5)),
        Row(f"163 shards, {tensors:,} tensors, as a model", cpu_ms(lambda: open_folder(many), repeat=5), budget=1000),
    ]


def _search(folder: Path) -> list[Row]:
    """2,000 repositories of ten files in a Hub cache."""
    from kvplanner.source.stores import local

    cache, kept = folder / "hub", folder / "kept"
    _fill(cache, 2000)
    where = local.Places(hub_caches=(cache,))
    first = cpu_ms(lambda: local.scan(where), repeat=2)
    local.scan(where, remember_in=kept)
    again = cpu_ms(lambda: local.scan(where, remember_in=kept), repeat=3)
    start = cpu_ms(lambda: local.remembered(kept), repeat=5)
    code = "import huggingface_hub as h, sys; h.scan_cache_dir(sys.argv[1])"
    theirs = process_cpu_ms([sys.executable, "-c", code, str(cache)], repeat=2)
    code = (
        "from kvplanner.source.hub import cache as hub_cache; from kvplanner.source.stores import found; "
        "from pathlib import Path; import sys; "
        "list(hub_cache.candidates(Path(sys.argv[1]), found.Unwatched()))"
    )
    ours = process_cpu_ms([sys.executable, "-c", code, str(cache)], repeat=2)
    return [
        Row("2,000 models, first search, all described", first),
        Row("2,000 models, searched again, nothing changed", again),
        Row("2,000 models, remembered at start", start),
        Row("2,000 models, our walk in a fresh process", ours),
        Row("2,000 models, huggingface_hub's scan in a fresh process", theirs, floor=ours),
    ]


def _fill(cache: Path, count: int) -> None:
    """Repositories as the Hub's client lays them out, their weights holes."""
    from tests.source.kit import CONFIG

    config = json.dumps(CONFIG).encode()
    commit = "a" * 40
    names = ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "README.md",
             *(f"model-0000{n}-of-00005.safetensors" for n in range(1, 6))]  # fmt: skip
    for number in range(count):
        repository = cache / f"models--org{number % 50}--model-{number}"
        snapshot = repository / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (repository / "refs").mkdir()
        (repository / "blobs").mkdir()
        (repository / "refs" / "main").write_text(commit)
        for at, name in enumerate(names):
            blob = repository / "blobs" / f"{number:032x}{at:032x}"
            blob.write_bytes(config if name == "config.json" else b"x")
            (snapshot / name).symlink_to(f"../../blobs/{blob.name}")
