"""Writes start-up logs of vLLM, SGLang, llama.cpp and Ollama in the formats of their releases, from facts.

The formats are those of the engines' sources (vLLM 0.6.6 to 0.33, SGLang 0.4.6 to 0.5.23, llama.cpp's builds, Ollama
0.13); names and numbers are the tests' own.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kvplanner.units import GIB


class Facts(NamedTuple):
    """What a start measured; GiB per rank. fails: the stage that it fails at, "" for none."""

    version: str = "0.24.0"
    model: str = "org/Model-7B"
    options: Mapping[str, Any] = MappingProxyType({})
    tp: int = 1
    weights: tuple[float, ...] = (14.25,)
    kv: tuple[float, ...] = (8.5,)
    tokens: int = 69_632
    length: int = 8192
    concurrency: float = 8.5
    graphs: tuple[float, ...] = (0.75,)
    estimated: float = 0.5
    activations: float = 1.25
    runtime: float = 0.25
    total: float = 23.52
    share: float = 0.9
    free: float = 23.11
    tried: float = 0.5
    oom_free: float = 0.125
    needed: float = 16.0
    suggested: int = 4096
    blocks: int = 100
    sequences: int = 256
    v2: bool = False
    fails: str = ""
    failing_rank: int = 0
    pid: int = 70


Line = tuple[str, str]  # who writes it (a key of the tags), the text


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("rc")[0].split(".")[:3] if part.isdecimal())


def _tags(facts: Facts) -> dict[str, str]:
    """The processes' tags in a release: of the server, the engine and each worker."""
    v, pid = number(facts.version), facts.pid
    server = f"(APIServer pid={pid})" if v >= (0, 10, 1) else ""
    if v >= (0, 18):
        engine = f"(EngineCore pid={pid + 1})"
    elif v >= (0, 10, 2):
        engine = f"(EngineCore_DP0 pid={pid + 1})"
    else:
        engine = f"(EngineCore_0 pid={pid + 1})" if v >= (0, 10, 1) else ""
    tags = {"A": server, "E": engine}
    for rank in range(facts.tp):
        if facts.tp == 1:
            tags["W0"] = engine
        elif v < (0, 8):
            tags[f"W{rank}"] = f"(VllmWorkerProcess pid={pid + 2 + rank})" if rank else ""
        elif v < (0, 10, 1):
            tags[f"W{rank}"] = f"(VllmWorker rank={rank} pid={pid + 2 + rank})"
        elif v < (0, 10, 2):
            tags[f"W{rank}"] = f"(VllmWorker TP{rank} pid={pid + 2 + rank})"
        else:
            tags[f"W{rank}"] = f"(Worker_TP{rank} pid={pid + 2 + rank})"
    return tags


def vllm_lines(facts: Facts) -> list[Line]:
    """Who writes what, in order; records are marked by a leading INFO or ERROR."""
    v, ranks = number(facts.version), range(facts.tp)
    printing: Sequence[int] = ranks if facts.v2 or v < (0, 11, 1) else (0,)
    bars = [("W0", f"Loading safetensors checkpoint shards: {done:3}% Completed | {done // 50}/2") for done in (0, 50)]
    shapes = [("W0", "Capturing CUDA graph shapes:  48%|████      | 17/35 [00:06<00:07, 2.50it/s]")]
    start = "Loading model from scratch..." if facts.v2 else f"Starting to load model {facts.model}..."
    # What is printed before each stage may fail, and the function that a traceback names in it.
    steps: tuple[tuple[list[Line], str, str], ...] = (
        (_named(facts, v), "free_memory_check", "init_device"),
        ([*((f"W{rank}", f"INFO {start}") for rank in ranks), *bars], "weights", "load_model"),
        ([line for rank in printing for line in _weights(facts, rank)], "profile", "determine_available_memory"),
        (_profiled(facts, v, printing), "kv_cache_sizing", "_initialize_kv_caches"),
        ([], "kv_cache_too_small", "_initialize_kv_caches"),
        (_sized(facts, v), "kv_cache_allocation", "initialize_kv_cache"),
        (shapes, "graph_capture", "capture_model"),
        ([*((f"W{rank}", f"INFO Graph capturing finished in 14 secs, took "
             f"{facts.graphs[rank % len(facts.graphs)]:.2f} GiB") for rank in printing),
          ("E", "INFO init engine (profile, create kv cache, warmup model) took 18.64 seconds"),
          ("A", "INFO:     Application startup complete.")], "runtime", "execute_model"),
    )  # fmt: skip
    out: list[Line] = []
    for lines, stage, frame in steps:
        out += lines
        if facts.fails == stage:
            who, error = _error(facts, v)
            return out + _raised(who, error, frame, facts)
    return out


def _named(facts: Facts, v: tuple[int, ...]) -> list[Line]:
    arguments = {"model": facts.model, **facts.options}
    banner = ("   █▄█▀ █     █     █     █  version ", "    ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀  model   ")
    out = [banner[0] + facts.version, banner[1] + facts.model] if v >= (0, 15) else [
        f"vLLM API server version {facts.version}"]  # fmt: skip
    given = ", ".join(f"{k}={w!r}" for k, w in {**arguments, "host": None, "port": 8000}.items())
    out += [f"non-default args: {arguments!r}" if v >= (0, 9) else f"args: Namespace({given})"]
    config = (f"Initializing a{'n' if v < (0, 8) else ' V1'} LLM engine (v{facts.version}) with config: "
              f"model={facts.model!r}, dtype=torch.bfloat16, max_seq_len={facts.length}, "
              f"tensor_parallel_size={facts.tp}, "
              'compilation_config={"cudagraph_capture_sizes":[8,4,2,1]}, ')  # fmt: skip
    return [*(("A", f"INFO {text}") for text in out), ("E", f"INFO {config}")]


def _weights(facts: Facts, rank: int) -> list[Line]:
    loaded = _loaded(facts.weights[rank % len(facts.weights)], number(facts.version), v2=facts.v2)
    return [(f"W{rank}", "INFO Loading weights took 4.81 seconds"), (f"W{rank}", f"INFO {loaded}")]


def _error(facts: Facts, v: tuple[int, ...]) -> Line:
    """Who fails, and with which words."""
    if facts.fails == "free_memory_check":
        device, wanted = "" if v < (0, 14) else " cuda:0", facts.total * facts.share
        return "W0", (f"ValueError: Free memory on device{device} ({facts.free:.2f}/{facts.total:.2f} GiB) on startup "
                      f"is less than desired GPU memory utilization ({facts.share}, {wanted:.2f} GiB). Decrease GPU "
                      "memory utilization or reduce GPU memory used by other processes.")  # fmt: skip
    if facts.fails == "kv_cache_sizing":
        return "E", ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
                     "when initializing the engine.")  # fmt: skip
    if facts.fails == "kv_cache_too_small":
        return "E", _too_small(facts, v)
    return f"W{facts.failing_rank}", out_of_memory(facts)


def _loaded(size: float, v: tuple[int, ...], *, v2: bool) -> str:
    if v < (0, 8):
        return f"Loading model weights took {size:.4f} GB"
    unit = "GB" if v < (0, 8, 3) else "GiB"
    digits = f"{size:.4f}" if v < (0, 14) else f"{round(size, 2)}"
    memory = " memory" if v >= (0, 11, 1) and not (v2 and v < (0, 28)) else ""
    return f"Model loading took {digits} {unit}{memory} and 4.911237 seconds"


def _profiled(facts: Facts, v: tuple[int, ...], printing: Iterable[int]) -> list[Line]:
    out: list[Line] = []
    for rank in printing:
        kv = facts.kv[rank % len(facts.kv)]
        if v < (0, 8):
            budget = facts.total * facts.share
            weights = facts.weights[rank % len(facts.weights)]
            record = (
                "Memory profiling takes 1.37 seconds",
                f"the current vLLM instance can use total_gpu_memory ({facts.total:.2f}GiB) x gpu_memory_utilization "
                f"({facts.share:.2f}) = {budget:.2f}GiB",
                f"model weights take {weights:.2f}GiB; non_torch_memory takes {facts.runtime:.2f}GiB; PyTorch "
                f"activation peak memory takes {facts.activations:.2f}GiB; the rest of the memory reserved for KV "
                f"Cache is {kv:.2f}GiB.",
            )
            out += [(f"W{rank}", f"INFO {line}") for line in record]
            continue
        if v >= (0, 18) and not facts.v2:
            out.append((f"W{rank}", f"INFO Estimated CUDA graph memory: {facts.estimated:.2f} GiB total"))
        if v >= (0, 29) and facts.v2:
            taken = f"INFO Graph capturing finished in 3 secs, took {facts.estimated:.2f} GiB"
            out.append((f"W{rank}", taken))
        if v >= (0, 9, 1):
            digits = f"{kv:.2f}" if v < (0, 14) else f"{round(kv, 2)}"
            out.append((f"W{rank}", f"INFO Available KV cache memory: {digits} GiB"))
    return out


def _sized(facts: Facts, v: tuple[int, ...]) -> list[Line]:
    if v < (0, 7, 3):
        blocks = facts.tokens // 16
        return [
            ("E", f"INFO # GPU blocks: {blocks}, # CPU blocks: 2048"),
            ("E", f"INFO Maximum concurrency for {facts.length} tokens per request: {facts.concurrency:.2f}x"),
        ]
    if v < (0, 8):
        return [
            ("E", f"INFO # cuda blocks: {facts.tokens // 16}, # CPU blocks: 2048"),
            ("E", f"INFO Maximum concurrency for {facts.length} tokens per request: {facts.concurrency:.2f}x"),
        ]
    size = f"INFO GPU KV cache size: {facts.tokens:,} tokens"
    most = f"Maximum concurrency for {facts.length:,} tokens per request: {facts.concurrency:.2f}x"
    return [("E", f"{size}, {most}")] if v >= (0, 33) else [("E", size), ("E", f"INFO {most}")]


def _too_small(facts: Facts, v: tuple[int, ...]) -> str:
    least = min(facts.kv)
    if v < (0, 7, 3):
        return (f"ValueError: The model's max seq len ({facts.length}) is larger than the maximum number of tokens "
                f"that can be stored in KV cache ({facts.tokens}). Try increasing `gpu_memory_utilization` or "
                "decreasing `max_model_len` when initializing the engine.")  # fmt: skip
    unit = "GB" if v < (0, 8, 3) else "GiB"
    text = (
        f"ValueError: To serve at least one request with the model{'s' if v < (0, 22) else ''}'s max seq len "
        f"({facts.length}), ({facts.needed:.2f} {unit} KV cache is needed, which is larger than the available KV cache "
        f"memory ({least:.2f} {unit})."
    )
    if v >= (0, 9, 1):
        text += f" Based on the available memory, the estimated maximum model length is {facts.suggested}."
    return text + " Try increasing `gpu_memory_utilization` or decreasing `max_model_len`."


def mamba(facts: Facts) -> str:
    return (f"ValueError: max_num_seqs ({facts.sequences}) exceeds available Mamba cache blocks ({facts.blocks}). Each "
            "decode sequence requires one Mamba cache block, so CUDA graph capture cannot proceed.")  # fmt: skip


def out_of_memory(facts: Facts) -> str:
    tried, free = (
        f"{size * 1024:.2f} MiB" if size < 1 else f"{size:.2f} GiB" for size in (facts.tried, facts.oom_free)
    )
    kind = "torch.cuda.OutOfMemoryError" if number(facts.version) < (0, 7) else "torch.OutOfMemoryError"
    return (
        f"{kind}: CUDA out of memory. Tried to allocate {tried}. GPU {facts.failing_rank} has a total capacity of "
        f"{facts.total:.2f} GiB of which {free} is free. Including non-PyTorch memory, this process has "
        f"{facts.total - facts.oom_free:.2f} GiB memory in use. Of the allocated memory {facts.total * 0.9:.2f} GiB is "
        "allocated by PyTorch, and 24.31 MiB is reserved by PyTorch but unallocated."
    )


def _raised(who: str, error: str, frame: str, facts: Facts) -> list[Line]:
    """The traceback as a record of its process, Python's own of the dying one, and the server's wrapper."""
    where = f'  File "/usr/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 658, in {frame}'
    trace = ("Traceback (most recent call last):", where, "    self.step()", error)
    head = "WorkerProc failed to start." if who != "E" and facts.tp > 1 else "EngineCore failed to start."
    out = [(who, f"ERROR {line}") for line in (head, *trace)]
    out += [("E", "Process EngineCore:")]
    if number(facts.version) < (0, 31):
        out += [(who, line) for line in trace]
    out += [
        ("A", "Traceback (most recent call last):"),
        ("A", '  File "api_server.py", line 19, in <module>'),
        ("A", "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
    ]
    return out


def tagged(lines: Iterable[Line], facts: Facts) -> list[str]:
    """Lines as their release writes them to a file."""
    v, tags = number(facts.version), _tags(facts)
    coloured = (0, 8) <= v < (0, 12)
    out = []
    for place, (who, text) in enumerate(lines):
        level, _, message = text.partition(" ")
        record = level in ("INFO", "ERROR")
        stamp = f"01-14 08:{place // 60 % 60:02}:{place % 60:02}"
        brackets = ("", "") if v < (0, 8) else ("[", "")
        line = f"{level} {stamp} {brackets[0]}worker.py:{100 + place}] {message}" if record else text
        tag = tags[who]
        if tag and (record or v < (0, 31)):
            line = f"\x1b[1;36m{tag}\x1b[0;0m {line}" if coloured else f"{tag} {line}"
        out.append(line)
    return out


def vllm(facts: Facts) -> list[str]:
    """A log of vLLM."""
    return tagged(vllm_lines(facts), facts)


def interleaved(lines: Sequence[str], keys: Sequence[str], order: Callable[[int], int]) -> list[str]:
    """Lines of several writers in another order; each writer's own stay in theirs. order: which queue is next."""
    queues: dict[str, list[str]] = {}
    for line, key in zip(lines, keys, strict=True):
        queues.setdefault(key, []).append(line)
    out = []
    while queues:
        names = sorted(queues)
        name = names[order(len(names)) % len(names)]
        out.append(queues[name].pop(0))
        if not queues[name]:
            del queues[name]
    return out


def sglang(facts: Facts) -> list[str]:
    """A log of SGLang; each rank prints its own figures."""
    new = number(facts.version) >= (0, 5, 15)

    def stamp(rank: int | None) -> str:
        tag = f" TP{rank}" if facts.tp > 1 and rank is not None else ""
        return f"[2026-08-15 10:00:00{tag}] "

    given = ", ".join(f"{k}={w!r}" for k, w in {"tp_size": facts.tp, **facts.options}.items())
    out = [f"{stamp(None)}server_args=ServerArgs(model_path={facts.model!r}, tokenizer_mode='auto', {given})"]
    ranks = range(facts.tp)

    def each(text: Callable[[int], str]) -> None:
        out.extend(stamp(rank) + text(rank) for rank in ranks)

    def fail(frame: str, rank: int = 0) -> list[str]:
        trace = ("Scheduler hit an exception: Traceback (most recent call last):",
                 f'  File "/sgl-workspace/sglang/python/sglang/srt/model_executor/model_runner.py", line 9, in {frame}',
                 out_of_memory(facts))  # fmt: skip
        return [*out, stamp(rank) + trace[0], *trace[1:], "", f"{stamp(None)}Received sigquit from a child process."]

    each(lambda rank: f"Load weight begin. avail mem={facts.free:.2f} GB")
    if facts.fails == "weights":
        return fail("load_model", facts.failing_rank)
    left = facts.free - facts.weights[0]
    kind = "elapsed=4.20 s, type=LlamaForCausalLM, quant=none" if new else "type=LlamaForCausalLM, dtype=torch.bfloat16"
    each(lambda rank: f"Load weight end. {kind}, avail mem={left:.2f} GB, mem usage="
         f"{facts.weights[rank % len(facts.weights)]:.2f} GB.")  # fmt: skip
    if facts.fails == "kv_cache_sizing":
        words = ("Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static="
                 f"{facts.share}. (minimum viable = 1 - available/pre = 0.912)" if new
                 else "Not enough memory. Please try to increase --mem-fraction-static.")  # fmt: skip
        return [
            *out,
            stamp(0) + "Scheduler hit an exception: Traceback (most recent call last):",
            "RuntimeError: " + words,
        ]
    half = min(facts.kv) / 2
    dtype = "dtype: torch.bfloat16, " if new else ""
    each(lambda rank: f"KV Cache is allocated. {dtype}#tokens: {facts.tokens}, K size: {half:.2f} GB, V size: "
         f"{half:.2f} GB")  # fmt: skip
    each(lambda rank: "Memory pool end. avail mem=12.20 GB")
    name = "target decode CUDA graph" if new else "cuda graph"
    each(lambda rank: f"Capture {name} begin. This can take up to several minutes. avail mem=12.10 GB")
    out.append("Capturing batches (bs=8 avail_mem=11.02 GB):  50%|█████     | 4/8 [00:01<00:01,  3.1it/s]")
    if facts.fails == "graph_capture":
        return fail("capture_one_batch_size", facts.failing_rank)
    dot = "," if new else "."
    each(lambda rank: f"Capture {name} end. Time elapsed: 8.10 s. mem usage="
         f"{facts.graphs[rank % len(facts.graphs)]:.2f} GB{dot} avail mem=10.60 GB.")  # fmt: skip
    each(lambda rank: f"max_total_num_tokens={facts.tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
         f"max_running_requests=2048, context_len={facts.length}, available_gpu_mem=11.90 GB")  # fmt: skip
    out.append(f"{stamp(None)}The server is fired up and ready to roll!")
    return fail("forward", facts.failing_rank) if facts.fails == "runtime" else out


def llamacpp(facts: Facts, *, devices: int = 1, old: bool = False) -> list[str]:
    """A log of llama-server on one or several CUDA devices; sizes are facts' GiB as MiB per device."""
    load, context, cache = (
        ("llm_load_tensors", "llama_new_context_with_model", "llama_kv_cache_init") if old
        else ("load_tensors", "llama_context", "llama_kv_cache")
    )  # fmt: skip

    def mib(size: float) -> str:
        return f"{size * 1024:8.2f} MiB"

    out = ["build: 4466 (924518e2) with gcc-12 for x86_64-linux-gnu" if old else
           "common_params_print_info: build 9860 (abc) with GNU 12.2.0 for Linux x86_64",
           f"srv    load_model: loading model '{facts.model}'"]  # fmt: skip
    names = [f"CUDA{place}" for place in range(devices)]
    out += [f"llama_model_load_from_file_impl: using device {name} (NVIDIA GeForce RTX 3090) - 23871 MiB free"
            for name in names]  # fmt: skip
    out += [f"llama_model_loader: loaded meta data with 30 key-value pairs and 292 tensors from {facts.model} "
            "(version GGUF V3 (latest))", f"{load}: offloaded 33/33 layers to GPU"]  # fmt: skip

    def fail(size: float, words: str) -> list[str]:
        tried = round(size * GIB)
        return [*out, f"ggml_backend_cuda_buffer_type_alloc_buffer: allocating {size * 1024:.2f} MiB on device 0: "
                "cudaMalloc failed: out of memory",
                f"alloc_tensor_range: failed to allocate CUDA0 buffer of size {tried}", words]  # fmt: skip

    if facts.fails == "weights":
        return fail(facts.weights[0], "llama_model_load: error loading model: unable to allocate CUDA0 buffer")
    out += [f"{load}:   CPU_Mapped model buffer size ={mib(0.275)}"]
    out += [f"{load}:        {name} model buffer size ={mib(facts.weights[i % len(facts.weights)])}"
            for i, name in enumerate(names)]  # fmt: skip
    out += [f"{context}: n_seq_max     = 1", f"{context}: n_ctx         = {facts.length}",
            f"{context}: n_batch       = 2048", f"{context}: n_ubatch      = 512"]  # fmt: skip
    if facts.fails == "kv_cache_allocation":
        return fail(facts.kv[0], "llama_init_from_model: failed to initialize the context: failed to allocate buffer "
                    "for kv cache")  # fmt: skip
    out += [f"{cache}:      {name} KV buffer size ={mib(facts.kv[i % len(facts.kv)])}" for i, name in enumerate(names)]
    if not old:
        out += [f"{cache}: size ={mib(sum(facts.kv))} ({facts.length:7} cells,  32 layers,  1/1 seqs), K (f16):"
                f"{mib(sum(facts.kv) / 2)}, V (f16):{mib(sum(facts.kv) / 2)}"]  # fmt: skip
    if facts.fails == "compute":
        return fail(facts.activations, "sched_reserve: failed to allocate compute buffers")
    out += [f"{context}:      {name} compute buffer size ={mib(facts.activations)}" for name in names]
    out += [f"{context}:  CUDA_Host compute buffer size ={mib(0.0156)}", "main: model loaded",
            "main: server is listening on http://127.0.0.1:8080 - starting the main loop"]  # fmt: skip
    return [*out, "CUDA error: out of memory", "  current device: 0, in function alloc"] if facts.fails else out


def ollama(facts: Facts) -> list[str]:
    """A log of Ollama with its own engine on one device; sizes have one decimal."""
    stamp = "time=2026-01-05T10:00:00.000Z level=INFO source=device.go:206 "
    out = [f'{stamp}msg="server config" env="map[OLLAMA_CONTEXT_LENGTH:{facts.length} OLLAMA_NUM_PARALLEL:1]"',
           f'{stamp}msg="Listening on 127.0.0.1:11434 (version {facts.version})"',
           f'{stamp}msg="inference compute" id=GPU-1 library=CUDA name=CUDA0 description="NVIDIA GeForce RTX 4090" '
           f'type=discrete total="{facts.total:.1f} GiB" available="{facts.free:.1f} GiB"',
           f'{stamp}msg="starting runner" cmd="/bin/ollama runner --model {facts.model} --port 4"']  # fmt: skip
    if facts.fails == "weights":
        return [*out, "alloc_buffer: allocating 464.04 MiB on device 0: cudaMalloc failed: out of memory"]
    out += [f'{stamp}msg="model weights" device=CUDA0 size="{facts.weights[0]:.1f} GiB"',
            f'{stamp}msg="kv cache" device=CUDA0 size="{facts.kv[0]:.1f} GiB"',
            f'{stamp}msg="compute graph" device=CUDA0 size="{facts.activations * 1024:.1f} MiB"',
            f'{stamp}msg="llama runner started in 1.50 seconds"']  # fmt: skip
    return [*out, "CUDA error: out of memory"] if facts.fails == "runtime" else out


WRAPS: dict[str, Callable[[str], str]] = {
    "bare": lambda line: line,
    "compose": lambda line: f"server-1  | {line}",
    "kubectl": lambda line: f"[pod/server-0/main] {line}",
    "docker time": lambda line: f"2026-11-24T08:12:00.123456789Z {line}",
    "containerd": lambda line: f"2026-11-24T08:12:00.123456789Z stderr F {line}",
    "stern": lambda line: f"server-0 main {line}",
    "journal": lambda line: f"Nov 24 08:12:00 host server[99]: {line}",
    "json-file": lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "x"}),
    "json message": lambda line: json.dumps({"severity": "INFO", "message": line}),
    "text payload": lambda line: json.dumps({"insertId": "a", "textPayload": line}),
    "kubectl with times": lambda line: f"[pod/server-0/main] 2026-11-24T08:12:00.123456789Z {line}",
    "coloured compose": lambda line: f"\x1b[36mserver-1  | \x1b[0m{line}",
    "named container": lambda line: f"vllm  | {line}",
    "journal, ISO time": lambda line: f"2026-11-24T08:12:00+0100 host server[99]: {line}",
    "journal as JSON": lambda line: json.dumps({"_HOSTNAME": "h", "MESSAGE": line, "PRIORITY": "6"}),
    "lines of Loki": lambda line: json.dumps({"line": line, "timestamp": "x", "fields": {}}),
    "fluentd": lambda line: f"2026-11-24 08:12:00.1 kube.vllm: {json.dumps({'log': line, 'stream': 'stderr'})}",
    "JSON in JSON": lambda line: json.dumps({"kubernetes": {"pod": "x"}, "log": {"message": line}}),
    "JSON array": lambda line: json.dumps({"message": line}) + ",",
    "quoted": lambda line: f"> {line}",
    "escapes lost": lambda line: line.replace("\x1b", ""),
    "escapes in carets": lambda line: line.replace("\x1b", "^["),
    "escapes written": lambda line: line.replace("\x1b", "\\u001b"),
    "supervisor": lambda line: f"2026-11-24 08:12:00,123 DEBG 'vllm' stdout output: {line}",
    "process manager": lambda line: f"0|vllm     | {line}",
    "spreadsheet": lambda line: '"2026-11-24","' + line.replace('"', '""') + '"',
    "web page": lambda line: html.escape(line),
    "coloured": lambda line: f"\x1b[32m{line}\x1b[0m",
    "carriage": lambda line: f"{line}\r",
    "docker desktop": lambda line: f"2026-11-24 08:12:00 {line}",
    "GitHub's runner": lambda line: f"[2026-11-24T08:12:00Z] {line}",
    "build's log": lambda line: f"2026-11-24T08:12:00.1234567Z {line}",
    "bordered": lambda line: f"│ {line.ljust(140)} │",
    "TorchServe": lambda line: f"2026-11-24T08:12:00,595 [INFO ] W-9000-m_1.0-stdout MODEL_LOG - {line}",
    "lemonade": lambda line: f"2026-11-24 08:12:00.982 [Info] (Process) {line}",
    "router's child": lambda line: f"[34333] {line}",
    "child of a router in a program": lambda line: f"[llamacpp-router stdout] [34333] {line}",
    "LM Studio": lambda line: f"2026-11-24 08:12:00 [DEBUG] {line}",
    "bytes": lambda line: repr(line.encode()),
    "journal's lists": lambda line: f'{{"_PID":"9","MESSAGE":{list(line.encode())}}}',
    "journal's lists, bare": lambda line: f"MESSAGE: {list(line.encode())}",
    "numbered": lambda line: f"   217\t{line}",
    "indented": lambda line: f"    {line}",
    "syslog of RFC 5424": lambda line: f"<14>1 2026-11-24T08:12:00.123Z host server 99 - - {line}",
    "logfmt": lambda line: f"time=2026-11-24T08:12:00Z stream=stderr msg={json.dumps(line)}",
    "Python's logging": lambda line: f"2026-11-24 08:12:00,123 - server - INFO - {line}",
    "CloudWatch": lambda line: f"2026-11-24T08:12:00.000+01:00\tserver/abc\t{line}",
}
