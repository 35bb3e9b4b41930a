"""Ollama's server log, 0.6 to 0.33 (data only; fields as in kvplanner.engine.log): its own lines and its runner's.

Its own engine prints sizes with one decimal by device; a llama-server that it starts prints llama.cpp's lines.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.llamacpp.log import GRAMMAR as RUNNER
from kvplanner.engine.log import Figure, LogFailure, LogGrammar, LogLine

_SIZE: Final = r'="?(?P<{0}>\d+(?:\.\d+)?) (?P<{0}_unit>GiB|MiB|KiB)'
_DEVICE: Final = r"(?:device|buffer|backend)=(?P<device>(?!CPU)[A-Za-z]+\d+)"
_HOST: Final = r"(?:device|buffer|backend)=CPU"


def _of_device(message: str, name: str, reached: str) -> tuple[LogLine, LogLine]:
    """A size of a device, and the host's of the same kind."""
    host = f"host_{name}"
    return (
        LogLine(rf'msg="{message}" {_DEVICE}\b.*? size{_SIZE.format(name)}', (Figure(name, "GiB", "most"),), reached),
        LogLine(rf'msg="{message}" {_HOST}\b.*? size{_SIZE.format(host)}', (Figure(host, "GiB", "most"),), reached),
    )


_GPU: Final = (
    Figure("gpu_name", "text", keep="first"), Figure("gpu_total", "GiB", "least", keep="first"),
    Figure("free_at_start", "GiB", "least", keep="first"),
)  # fmt: skip
LINES: Final = (
    LogLine(r'msg="Listening on \S+ \(version (?P<version>[\w.+-]+)\)', (Figure("version", "text"),), restart=True),
    LogLine(r'msg="starting (?:runner|llama server|llama-server)"', reached="load", restart=True),
    LogLine(r"--model (?P<model>[^\s\"]+)", (Figure("model", "text"),)),
    LogLine(r"OLLAMA_CONTEXT_LENGTH:(?P<context>[1-9]\d*)", (Figure("context", "count"),)),
    LogLine(r"OLLAMA_NUM_PARALLEL:(?P<sequences>[1-9]\d*)", (Figure("sequences", "count"),)),
    LogLine(r"OLLAMA_KV_CACHE_TYPE:(?P<kv_type>\w+)", (Figure("kv_type", "text"),)),
    LogLine(r'msg="inference compute" .*?name=(?P<device>[A-Za-z]+\d+) description="(?P<gpu_name>[^"]+)".*? '
            rf"total{_SIZE.format('gpu_total')}\" available{_SIZE.format('free_at_start')}",
            _GPU, since="0.12.4"),
    LogLine(r'msg="inference compute" .*?compute=\S* driver=\S* name="(?P<gpu_name>[^"]+)" '
            rf"total{_SIZE.format('gpu_total')}\" available{_SIZE.format('free_at_start')}", _GPU, numbered="CUDA"),
    *_of_device("model weights", "weights", "loaded"),
    *_of_device("kv cache", "kv_cache", "cached"),
    *_of_device("compute graph", "compute", "reserved"),
    LogLine(r'msg="offloaded (?P<offloaded>\d+)/(?P<offloadable>\d+) layers to GPU',
            (Figure("offloaded", "count", keep="first"), Figure("offloadable", "count", keep="first"))),
    LogLine(r'msg="(?:llama runner|llama-server) started in', reached="started", recovers=True),
)  # fmt: skip

FAILURES: Final = (
    LogFailure(r"model requires more system memory \((?P<tried>[\d.]+) (?P<tried_unit>GiB|MiB)\) than is available",
               "out_of_memory", "weights", (Figure("tried", "GiB", keep="first"),)),
)  # fmt: skip

GRAMMAR: Final[LogGrammar] = RUNNER._replace(
    engine="ollama",
    title="Ollama",
    marks=(
        *RUNNER.marks, "OLLAMA_", "inference compute", "source=server.go", "source=sched.go", "source=routes.go",
        "source=device.go", "source=memory.go", "source=ggml.go", "ollama runner", "starting runner",
    ),
    anchors=(*RUNNER.anchors, "msg=", "OLLAMA_", "--model ", "system memory"),
    late_anchors=(*RUNNER.late_anchors, 'msg="starting', 'msg="Listening', "requires more system memory"),
    lines=(*LINES, *RUNNER.lines),
    failures=(*FAILURES, *RUNNER.failures),
    command="",
    figure_options=(("context", "num-ctx"), ("sequences", "num-parallel"), ("kv_type", "kv-cache-type")),
    version_prefix="",
    kept=("version", "context", "sequences", "kv_type", "gpu_name", "gpu_total"),
)  # fmt: skip
