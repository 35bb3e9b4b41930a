"""Boards of a known GPU with another memory, "2080 Ti 22GB", slices of one, "H100 3g.40gb", a virtual one, "A40-48Q",
and a card that Windows drives, "RTX 5090 WSL2".

A slice's memory: a GPU splits into eighths (nvidia-smi mig -lgip of A100, H100 and H200 lists 7 compute and 8 memory
slices), less what the driver keeps of each: 19.62 of 19.79 GiB for 3g.20gb of an A100 40GB, 9.75 of 9.96 for 1g.10gb
and 39.50 of 39.82 for 3g.40gb of an H100 80GB, as the MIG user guide prints them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from kvplanner.estimate import Estimate, Input, banded, exact
from kvplanner.gpu.spec import GpuSpec
from kvplanner.units import GIB, MIB, parse_size

SLICES: Final = 8
_KEPT: Final = 256 * MIB
_KEPT_MOST: Final = 512 * MIB
_PROFILE: Final = re.compile(r"(?i)(?:(.*?)[\s-]*)?(?:mig[\s-]*)?\b([1-7])g\.(\d{1,3})gb(?:\+\S+)?")
_WITH_SIZE: Final = re.compile(r"(?is)(.*\S)\s+(\d+(?:\.\d+)?)\s*(g|gb|gib|mib)")
_WINDOWS: Final = re.compile(r"(?is)(.*?\S)\s+(?:on\s+|under\s+)?\(?(?:windows(?:\s+1[01])?|wsl ?2?|wddm)\)?")
_VIRTUAL: Final = re.compile(r"(?:GRID )?(.*\w)[- ](\d{1,3}[QCAB])")
# Of its frame buffer CUDA saw 47.74 of 48 GiB in a guest (vllm-project/vllm#11230).
_SEEN_IN_GUEST: Final = 47.74 / 48
_SEEN_LEAST: Final = 0.94
# Memory slices that come with compute slices; an A30 gives 2, 4 and 8 with 1, 2 and 4.
_OF: Final = {1: (1, 2), 2: (2, 4), 3: (4,), 4: (4, 8), 7: (8,)}
_ROUNDED: Final = 0.06  # profiles are called by whole gigabytes
_SPLIT: Final = ("A30", "A100", "A800", "H100", "H800", "H20", "H200", "GH200", "B200", "GB200", "B300", "GB300")


def with_size(text: str) -> tuple[str, int] | None:
    """A name and the memory behind it, in bytes (boards are called by gibibytes, as "22GB"); None without."""
    match = _WITH_SIZE.fullmatch(text.strip())
    if match is None:
        return None
    unit = match[3].lower()
    try:
        size = parse_size(f"{match[2]}MiB" if unit == "mib" else f"{match[2]}GiB")
    except ValueError:  # more than any memory has
        return None
    return match[1], size


def profile_of(text: str) -> tuple[str, int, int] | None:
    """The GPU's name ("" when none stands there), compute slices and nominal GB of a MIG profile; None for none."""
    match = _PROFILE.fullmatch(text.strip())
    return (re.sub(r"(?i)[\s-]*\bmig$", "", match[1] or "").strip(), int(match[2]), int(match[3])) if match else None


def memory_slices(compute: int, nominal_gb: int, whole_gb: float | None) -> int | None:
    """How many eighths of a GPU a profile's memory is, None where the GPU has no such profile."""
    share = nominal_gb * SLICES / whole_gb if whole_gb else 0.0
    slices = round(share)
    return slices if slices in _OF.get(compute, ()) and abs(share - slices) <= _ROUNDED * slices else None


def splits(name: str) -> bool:
    """Whether a GPU of this name can be split into slices."""
    words = re.split(r"[\s-]", name.upper())
    return any(word in _SPLIT for word in words)


def resized(base: GpuSpec, size_bytes: int) -> GpuSpec:
    """The board of a GPU with another memory: the driver keeps as much of it as of the usual one."""
    total = exact(size_bytes, "{given}", Input("given", size_bytes, "B", "named with the GPU"))
    kept = base.total.value - base.cuda_total.value if base.total and base.cuda_total else 0
    cuda = exact(size_bytes - kept, "given − kept", Input("given", size_bytes, "B", "named with the GPU"),
                 Input("kept", kept, "B", f"as of a {base.name}"))  # fmt: skip
    gib = f"{size_bytes / GIB:g}"
    return base._replace(
        id=f"{base.id} {_exact(size_bytes)}", name=f"{base.name} {gib} GiB", total=total, cuda_total=cuda, aliases=()
    )


def on_windows(base: GpuSpec) -> GpuSpec:
    """A card that Windows drives, WSL2 included: CUDA sees all that NVML counts."""
    if base.total is None:
        return base
    whole = Input("NVML total", base.total.value, "B", "Windows keeps its part elsewhere")
    cuda = banded(*base.total[:3], base.total.basis, "{NVML total}", whole)
    return base._replace(id=f"{base.id} windows", name=f"{base.name} (Windows)", cuda_total=cuda, aliases=())


def virtual(base: GpuSpec, text: str, size_bytes: int) -> GpuSpec:
    """A virtual GPU with a frame buffer of its own, as a guest sees it."""
    given = Input("frame buffer", size_bytes, "B", "named with the GPU")
    seen = banded(round(_SEEN_IN_GUEST * size_bytes), round(_SEEN_LEAST * size_bytes), size_bytes, "assumed",
                  "{frame buffer} × share that CUDA sees", given)  # fmt: skip
    whole = exact(size_bytes, "{frame buffer}", given)
    return base._replace(
        id=f"{base.id} {text}", name=f"{base.name}-{text}", total=whole, cuda_total=seen, nvlink=False, aliases=()
    )


def slice_of(base: GpuSpec, compute: int, nominal_gb: int, slices: int) -> GpuSpec:
    """A MIG instance of a GPU: its share of the memory, less what is kept of it."""
    whole = base.total.value if base.total else nominal_gb * SLICES * GIB // slices
    total = _share(whole, slices)
    name = f"{compute}g.{nominal_gb}gb"
    return base._replace(
        id=f"{base.id} {name}", name=f"{base.name} MIG {name}", total=total, cuda_total=total, nvlink=False, aliases=()
    )


def _share(whole: int, slices: int) -> Estimate:
    most = whole * slices // SLICES
    return banded(
        most - _KEPT, most - _KEPT_MOST, most, "analytic", "whole × slices ÷ 8 − kept",
        Input("whole", whole, "B", "the GPU's memory"), Input("slices", slices, "", "the profile's memory slices"),
        Input("kept", _KEPT, "B", "MIG user guide: what lacks of each printed size"),
    )  # fmt: skip


def _exact(size_bytes: int) -> str:
    return f"{size_bytes // GIB}GiB" if size_bytes % GIB == 0 else f"{size_bytes // MIB}MiB"


def variant(
    text: str, find: Callable[[str], GpuSpec | None], known: Sequence[tuple[str, float | None]]
) -> GpuSpec | tuple[str, ...] | None:
    """The board or slice that a text names; names to choose from where it fits several; None where it is neither.

    find(name): the one GPU of that name, None for none or several. known: names and nominal GB of all.
    """
    profile = profile_of(text)
    if profile is not None:
        name, compute, nominal = profile
        base = find(name) if name else None
        if base is not None:
            gb = next((gb for known_name, gb in known if known_name == base.name), None)
            gb = gb or (base.total.value / GIB if base.total else None)
            slices = memory_slices(compute, nominal, gb) if splits(base.name) else None
            return slice_of(base, compute, nominal, slices) if slices else None
        words = name.lower().split()
        fitting = [
            f"{other} {compute}g.{nominal}gb"
            for other, gb in known
            if splits(other) and memory_slices(compute, nominal, gb) and all(word in other.lower() for word in words)
        ]
        return tuple(fitting) or None
    if (windows := _WINDOWS.fullmatch(text)) is not None:
        driven = find(windows[1])
        return on_windows(driven) if driven is not None and driven.vendor == "nvidia" else None
    if (guest := _VIRTUAL.fullmatch(text)) is not None:
        card = find(guest[1])
        return virtual(card, guest[2], int(guest[2][:-1]) * GIB) if card is not None else None
    sized = with_size(text)
    base = find(sized[0]) if sized else None
    return resized(base, sized[1]) if sized and base is not None else None
