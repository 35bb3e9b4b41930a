"""llama.cpp's server log, builds of 2024 to 2026 (data only; fields as in kvplanner.engine.log).

Sizes are MiB and stand for one device each. The same line is printed for the passes that fit the parameters, with
0.00 MiB, and again for a draft model's context, which comes after the model's own.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.log import NO_STAGE, Figure, LogFailure, LogGrammar, LogLine

# A device's name, as in "CUDA0", "MTL0_Mapped" and "CUDA0_Split"; what is the host's is named otherwise.
# RPC's devices say where they are: "RPC0[10.0.0.2:50052]".
_DEVICE: Final = r"(?P<device>(?!CPU)[A-Za-z]+\d+)(?:\[[^\]\s]{1,80}\])?(?:_Mapped|_Split|-REPACK)?"
_HOST: Final = r"(?:CPU\w*|[A-Za-z]+_Host\w*|Metal_Mapped)"
_MIB: Final = r"\s*(?P<{0}>\d+(?:\.\d+)?) MiB"


def _mib(name: str) -> str:
    return _MIB.format(name)


def _one(name: str) -> tuple[Figure, ...]:
    return (Figure(name, "MiB", "most"),)


def _sum(name: str) -> tuple[Figure, ...]:
    return (Figure(name, "MiB", "most", keep="sum"),)


_FREE: Final = Figure("free_at_start", "MiB", "least", keep="first")
_TOTAL: Final = Figure("gpu_total", "MiB", "least", keep="first")
_NAME: Final = Figure("gpu_name", "text", keep="first")
_TRIED: Final = Figure("tried", "bytes", keep="first")
_GPU: Final = Figure("gpu", "count", keep="first")

LINES: Final = (
    LogLine(r"\bbuild(?::| =|) (?P<version>[1-9]\d*) \([0-9a-f]{5,}\)", (Figure("version", "text"),), restart=True),
    LogLine(r"llama_server: initializing \.\.\.", restart=True),
    LogLine(r"loading model '(?P<model>[^']+)'", (Figure("model", "text", keep="first"),)),
    LogLine(r"llama_model_loader: loaded meta data with .*? from (?P<model>.+?) \(version GGUF",
            (Figure("model", "text", keep="first"),), "load"),
    LogLine(r"general\.architecture str\s*= (?P<architecture>\S+)", (Figure("architecture", "text", keep="first"),)),
    LogLine(r"file type\s*= (?P<file_type>\S.*?)\s*$", (Figure("file_type", "text", keep="first"),)),
    # Devices.
    LogLine(rf"- {_DEVICE}\s*: (?P<gpu_name>.+?) \((?P<gpu_total>\d+) MiB, (?P<free_at_start>\d+) MiB free\)",
            (_NAME, _TOTAL, _FREE)),
    LogLine(rf"using device {_DEVICE} \((?P<gpu_name>[^()]*(?:\([^()]*\)[^()]*)*)\)(?: \([^()]*\))? - "
            r"(?P<free_at_start>\d+) MiB free", (_NAME, _FREE)),
    LogLine(rf"- {_DEVICE} \((?P<gpu_name>[^|]+?)\)\s*:\s*(?P<gpu_total>\d+) total,\s*\d+ used", (_NAME, _TOTAL)),
    # Builds that say nothing of the devices that they use list those that there are, by number.
    LogLine(r"^.{0,80}?\bDevice (?P<device>\d{1,2}): (?P<gpu_name>[^,]{2,60}), (?:compute capability|gfx)", (_NAME,)),
    # Weights.
    LogLine(r"offloaded (?P<offloaded>\d+)/(?P<offloadable>\d+) layers to GPU",
            (Figure("offloaded", "count", keep="first"), Figure("offloadable", "count", keep="first"))),
    LogLine(rf"load_tensors:\s+{_DEVICE} (?:model )?buffer size ={_mib('weights')}", _sum("weights"), "loaded"),
    LogLine(rf"load_tensors:\s+{_HOST} (?:model )?buffer size ={_mib('host_weights')}", _sum("host_weights"), "loaded"),
    # The context: what it holds begins anew with each one.
    LogLine(r"constructing llama_context|(?:llama_new_context_with_model|llama_init_from_model): n_ctx  ",
            forgets=("kv_cache", "host_kv_cache", "tokens")),
    LogLine(r"\bn_ctx\s+= (?P<context_length>\d+)", (Figure("context_length", "count"),)),
    LogLine(r"\bn_seq_max\s+= (?P<sequences>\d+)", (Figure("sequences", "count"),)),
    LogLine(r"\bn_ubatch\s+= (?P<ubatch>\d+)", (Figure("ubatch", "count"),)),
    LogLine(r"\bn_batch\s+= (?P<batch>\d+)", (Figure("batch", "count"),)),
    LogLine(rf"{_DEVICE} (?:KV|RS) (?:cache )?buffer size ={_mib('kv_cache')}", _sum("kv_cache"), "cached"),
    LogLine(rf"{_HOST} (?:KV|RS) (?:cache )?buffer size ={_mib('host_kv_cache')}", _sum("host_kv_cache"), "cached"),
    LogLine(r"llama_kv_cache(?:_unified)?: size =\s*[1-9][\d.]* MiB \(\s*(?P<tokens>\d+) cells",
            (Figure("tokens", "count", "most", keep="first"),)),
    LogLine(r"K \((?P<key_type>\w+)\):.*?V \((?P<value_type>\w+)\):",
            (Figure("key_type", "text"), Figure("value_type", "text"))),
    LogLine(rf"{_HOST}\s+output buffer size ={_mib('output')}", _one("output")),
    # Compute buffers; the projector's own lines are named otherwise.
    LogLine(rf"(?<!_meta): +{_DEVICE} compute buffer size ={_mib('compute')}", _one("compute"), "reserved"),
    LogLine(rf"(?<!_meta): +{_HOST} compute buffer size ={_mib('host_compute')}", _one("host_compute"), "reserved"),
    LogLine(rf"_meta:\s+{_DEVICE} compute buffer size ={_mib('projector_compute')}", _one("projector_compute")),
    LogLine(r"compute buffer allocation failed, retrying without pipeline parallelism", recovers=True),
    # What the fit chose, and what was left at the end.
    LogLine(r"context size reduced from \d+ to (?P<fitted_context>\d+)", (Figure("fitted_context", "count"),)),
    LogLine(rf"- {_DEVICE} \([^|]*\)\s*\|\s*(?P<gpu_total>\d+) = \s*\d+ \+ \(\s*\d+ =.*?\) \+ "
            r"\s*(?P<unaccounted>\d+) \|", (_TOTAL, *_one("unaccounted"))),
    LogLine(r"creating (?:MTP )?draft context|loading draft model", aside="draft"),
    LogLine(r"\bserver is listening on http|\blistening on http|\bmodel loaded\b", reached="started", recovers=True),
)  # fmt: skip

FAILURES: Final = (
    LogFailure(r"failed to allocate (?:CPU\w*|\w+_Host) buffer of size (?P<tried>\d+)", "host_full", "", (_TRIED,)),
    LogFailure(r"unable to allocate (?:CPU\w*|\w+_Host) buffer", "host_full", "weights"),
    LogFailure(r"allocating (?P<tried>[\d.]+) (?P<tried_unit>MiB) on device (?P<gpu>\d+): \w+ failed: out of memory",
               "out_of_memory", "", (_TRIED, _GPU)),
    LogFailure(r"ggml_vulkan: Device memory allocation of size (?P<tried>\d+) failed", "out_of_memory", "", (_TRIED,)),
    LogFailure(r"failed to allocate buffer for (?:kv|rs) cache", "out_of_memory", "kv_cache_allocation"),
    LogFailure(r"failed to allocate compute (?:pp |tg )?buffers", "out_of_memory", "compute"),
    LogFailure(r"ggml_gallocr_reserve_n(?:_impl)?: failed to allocate \w+ buffer of size (?P<tried>\d+)",
               "out_of_memory", "compute", (_TRIED,)),
    LogFailure(r"alloc_tensor_range: failed to allocate \w+ buffer of size (?P<tried>\d+)", "out_of_memory", "",
               (_TRIED,)),
    LogFailure(r"error loading model: unable to allocate \w+ buffer", "out_of_memory", "weights"),
    LogFailure(r"(?:CUDA|ROCm) error: out of memory|ErrorOutOfDeviceMemory|(?:cuda|hip)Malloc failed: out of memory",
               "out_of_memory", ""),
    LogFailure(r"(?P<why>quantized V cache requires flash_attn to be enabled|"
               r"model does not support different K (?:\(\w+\) )?and V (?:\(\w+\) )?cache types|"
               r"device \w+ does not support split buffers)", "refused", NO_STAGE, (Figure("why", "text"),)),
)  # fmt: skip

GRAMMAR: Final = LogGrammar(
    engine="llamacpp",
    title="llama.cpp",
    marks=("llama_server:", "llama_model_loader", "load_tensors:", "llama_context:", "llama_kv_cache", "ggml_",
           "common_init_from_params", "llama-server", "llm_load_"),
    anchors=(
        "build", "llama_server: init", "loading model '", "loaded meta data", "general.architecture", "file type",
        "MiB", " total,", "Device ",
        "offloaded ", "constructing llama_context", "n_ctx ", "n_seq_max", "n_ubatch", "n_batch", "retrying without",
        "context size reduced", "draft", "listening on", "model loaded", "out of memory", "OutOfDeviceMemory",
        "failed to allocate", "failed.", "unable to allocate", "flash_attn to be", "different K ", "split buffers",
        "llama-server", " + (",
    ),
    late_anchors=("build", "llama_server: init", "out of memory", "OutOfDeviceMemory", " + (", "llama-server"),
    lines=LINES,
    failures=FAILURES,
    steps=(
        ("", "weights"), ("load", "weights"), ("loaded", "kv_cache_allocation"), ("cached", "compute"),
        ("reserved", "runtime"), ("started", "runtime"),
    ),
    wrappers=("failed to load model", "failed to create context", "encountered an error while trying to fit"),
    command=r"(?:^|[#$>+] *|/)(?:\S*/)?llama-server(?:\.exe)? (?P<command>-.*)",
    figure_options=(
        ("context_length", "ctx-size"), ("sequences", "parallel"), ("ubatch", "ubatch-size"), ("batch", "batch-size"),
        ("offloaded", "n-gpu-layers"), ("key_type", "cache-type-k"), ("value_type", "cache-type-v"),
    ),
    version_prefix="b",
    by_device=True,
    cells="context_length",
    restarts=("llama_model_loader: loaded meta data",),
)  # fmt: skip
