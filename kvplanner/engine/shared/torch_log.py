"""What PyTorch prints when a GPU's memory is at its end, for the logs of every server that is built on it (data only).

The texts are those of c10/cuda/CUDACachingAllocator.cpp, torch 1.13 to 2.9: "capacty" (2.1), the older form in
parentheses (until 2.0), the part in graphs' private pools (2.4 and later), HIP in place of CUDA on AMD.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.log import Figure, LogFailure, LogLine

_ANY: Final = r"(?P<{0}>\d+(?:\.\d+)?) (?P<{0}_unit>bytes|KiB|MiB|GiB)"


def _any(name: str) -> str:
    return _ANY.format(name)


FIGURES: Final = (
    Figure("tried", "bytes", keep="first"), Figure("gpu", "count", keep="first"), Figure("gpu_total", "GiB", "least"),
    Figure("gpu_free", "bytes", keep="first"), Figure("in_use", "bytes", keep="first"),
    Figure("others_in_use", "bytes", keep="first"), Figure("allocated", "bytes", keep="first"),
    Figure("in_graphs", "bytes", keep="first"), Figure("reserved_unused", "bytes", keep="first"),
    Figure("reserved", "bytes", keep="first"),
)  # fmt: skip

FAILURES: Final = (
    LogFailure(rf"Tried to allocate {_any('tried')}\. GPU (?P<gpu>\d+) has a total "
               r"capac(?:i)?ty of "
               rf"(?P<gpu_total>[\d.]+) GiB of which {_any('gpu_free')} is free\."
               rf"(?:.*?Process \d+ has {_any('others_in_use')} memory in use)?"
               rf"(?:.*?this process has {_any('in_use')} memory in use)?"
               rf"(?:.*?Of the allocated memory {_any('allocated')} is allocated by PyTorch)?"
               rf"(?:, with {_any('in_graphs')} allocated in private pools)?"
               rf"(?:.*?{_any('reserved_unused')} is reserved by PyTorch but unallocated)?",
               "out_of_memory", "", FIGURES),
    LogFailure(rf"Tried to allocate {_any('tried')} \((?:GPU|NPU) (?P<gpu>\d+); "
               rf"(?P<gpu_total>[\d.]+) GiB total capacity; {_any('allocated')} already allocated; "
               rf"{_any('gpu_free')} free(?:; {_any('reserved')} reserved in total by PyTorch)?", "out_of_memory", "",
               FIGURES),
    LogFailure(rf"(?:CUDA|HIP|XPU|NPU) out of memory(?:\. Tried to allocate {_any('tried')})?|"
               r"(?:CUDA|HIP) [Ee]rror: out of memory|cudaErrorMemoryAllocation|"
               r"torch(?:\.cuda)?\.OutOfMemoryError|(?:Cuda|HIP) failure \d+ 'out of memory'|"
               r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED", "out_of_memory", "",
               (Figure("tried", "bytes", keep="first"),)),
    LogFailure(r"\bOOMKilled\b|(?i:out of memory): Killed process \d+|exited with code 137|"
               r"(?:signal|SIGKILL\b|exitcode[:=]?) ?\(?-?9\)?\b.*(?i:killed)|^Killed$", "killed", ""),
)  # fmt: skip
# What stands before a log that people paste: torch's description of the machine, nvidia-smi -L, and its table.
LINES: Final = (
    LogLine(r"^\W*GPU (?P<device>\d{1,2}): (?P<gpu_name>NVIDIA [^(|]{1,60}?)\s*(?:\(UUID|$)",
            (Figure("gpu_name", "text", keep="first"),)),
    LogLine(r"\|\s{1,4}(?P<device>\d{1,2})  (?P<gpu_name>NVIDIA [^|]{1,40}?)\s+(?:On|Off) *\|",
            (Figure("gpu_name", "text", keep="first"),)),
)  # fmt: skip
ANCHORS: Final = (
    "NVIDIA ", "out of memory", "rror: out of", "Tried to allocate", "iB", "OutOfMemory", "Out of memory: K",
    "cudaErrorMemory", "_ALLOC_FAILED", "OOMKilled", "Killed", "code 137",
)  # fmt: skip
