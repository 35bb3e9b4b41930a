"""Which vLLM releases run an architecture, a weight format or a GPU: told before any number is worked out.

The releases of an architecture are those whose registries list it. An earlier minor release is refused; an earlier
patch is a warning, and so is a release between the two that were read, since it may already have it.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.vllm.releases import spelled
from kvplanner.engine.vllm.settings import Version
from kvplanner.engine.vllm.settle import formats
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import GpuSpec
from kvplanner.model.quantisation import elsewhere
from kvplanner.model.served import served_by
from kvplanner.model.spec import ModelSpec

# The least compute capability that the released builds hold kernels for, by the first release of which it is true: with
# 0.20 they moved to torch 2.11 and CUDA 13, which have no Volta (its release notes; the wheel of 0.33 starts at 7.5).
_LEAST_CAPABILITY: Final[tuple[tuple[Version, Version], ...]] = (((20, 0), (7, 5)), ((0, 0), (7, 0)))
# CUDA 12.8, which compiles for Blackwell, came with 0.9 (its release notes).
_BLACKWELL: Final[tuple[Version, Version]] = ((10, 0), (9, 0))


def no_kernels(gpu: GpuSpec, version: Version) -> str:
    """Why a release's builds do not run on a GPU, "" when they do or its compute capability is not known."""
    capability = gpu.compute_capability
    if capability is None:
        return ""
    least = next(least for since, least in _LEAST_CAPABILITY if version >= since)
    blackwell, since = _BLACKWELL
    if capability < least:
        dropped = " since 0.20" if capability >= _LEAST_CAPABILITY[-1][1] else ""
        why = f"{least[0]}.{least[1]} is the least{dropped}"
    elif capability >= blackwell and version < since:
        why = f"those came with {spelled(since)}"
    else:
        return ""
    found = f"{gpu.name}, compute capability {capability[0]}.{capability[1]}"
    return f"vLLM {spelled(version)} has no kernels for {found}: {why}"


def check(
    spec: ModelSpec, quantization: str | None, version: Version, capability: Version | None, what_if: bool = False
) -> tuple[str, ...]:
    """Warnings for an architecture that this release may not know.

    what_if: the format is not the stored one but asked for. Raises BadInput for an architecture that the release does
    not know, and for a format that it cannot load, or not on this GPU.
    """
    _check_method(spec, quantization or "", version)
    _check_format(quantization or "", version, capability, "--weight-format" if what_if else "--gpu")
    warnings = _deprecated(quantization or "", version)
    known = served_by(spec.architecture)
    if known is None or known.absent is None or version >= known.first:
        return warnings
    came = f"{spec.architecture}, which came with {spelled(known.first)}"
    if version[0] == known.first[0] or version > known.absent:
        return (*warnings, f"vLLM {spelled(version)} may not know {came}")
    what = f"vLLM {spelled(version)} does not know {came}"
    raise BadInput(what, "--engine-version", f"Plan it with --engine-version {spelled(known.first)} or later")


def _deprecated(method: str, version: Version) -> tuple[str, ...]:
    """The warning for a method that a release runs only when asked to."""
    if not formats.deprecated(method, version):
        return ()
    return (f"vLLM {spelled(version)} runs {method} only with --allow-deprecated-quantization",)


def _check_method(spec: ModelSpec, method: str, version: Version) -> None:
    """Raises BadInput for a method that the release does not have, or a form of it that it no longer reads."""
    why = formats.cannot_load(method, version)
    if elsewhere.why_not(method):
        raise BadInput(why, "model", "Plan the model that it was made from, or another of its quantised repositories")
    if why:
        newer = "came with" in why
        raise BadInput(
            why if newer else f"{why}: its registry no longer lists the method",
            "--engine-version",
            "Plan a newer release, or another weight format"
            if newer
            else "Plan an older release, for example --engine-version 0.16, or another weight format",
        )
    trouble = formats.trouble_with(spec.quantization_traits, version)
    if trouble:
        other = "a newer" if "loads from" in trouble else "an older"
        raise BadInput(trouble, "--engine-version", f"Plan {other} release, or another repository")


def no_kernels_for(quantization: str, version: Version, gpu: GpuSpec) -> str:
    """Why a release runs no weights of a quantisation method on a GPU, "" when it does or that is not known."""
    least, capability = formats.least_capability(quantization, version), gpu.compute_capability
    if capability is None or capability >= least:
        return ""
    return f"needs compute capability {least[0]}.{least[1]}, {gpu.name} has {capability[0]}.{capability[1]}"


def _check_format(quantization: str, version: Version, capability: Version | None, where: str) -> None:
    """Raises BadInput in the engine's words for a format without kernels for the GPU."""
    least = formats.least_capability(quantization, version)
    if capability is not None and capability < least:
        needed, here = (f"{major * 10 + minor}" for major, minor in (least, capability))
        raise BadInput(
            f"The quantization method {quantization} is not supported for the current GPU. Minimum capability: "
            f"{needed}. Current capability: {here}",
            where,
            f"Name a GPU of compute capability {least[0]}.{least[1]} or later, or another weight format",
        )
