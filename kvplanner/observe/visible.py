"""CUDA_VISIBLE_DEVICES: which of the seen devices a CUDA program would use, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.observe.snapshot import GpuSample
from kvplanner.record import NamedTuple

_MOST_DIGITS: Final = 6


class Visible(NamedTuple):
    """The devices in the program's order; note: what could not be told for sure, "" when all is sure."""

    gpus: tuple[GpuSample, ...]
    note: str = ""


def visible(gpus: Sequence[GpuSample], value: str | None, order: str = "") -> Visible:
    """The devices that CUDA shows under CUDA_VISIBLE_DEVICES=value and CUDA_DEVICE_ORDER=order.

    CUDA's rules: entries are indices, UUIDs or unique prefixes of UUIDs; the list ends at the first entry that names
    nothing or names a device twice; "" and "-1" hide all. Without CUDA_DEVICE_ORDER=PCI_BUS_ID an index counts the
    fastest first, which is the PCI order only where all devices are alike.
    """
    whole = [g for g in gpus if g.kind == "gpu"]
    slices = [g for g in gpus if g.kind == "mig"]
    by_index = sorted(whole, key=lambda g: g.pci) + slices
    if value is None:
        return Visible(tuple(by_index))
    chosen: list[GpuSample] = []
    used_index = False
    for entry in (part.strip() for part in value.split(",")):
        found = _named(entry, by_index)
        if found is None or found in chosen:
            break
        used_index |= entry.isdecimal()
        chosen.append(found)
    unsure = used_index and order.upper() != "PCI_BUS_ID" and len({g.name for g in whole}) > 1
    note = "the GPUs differ, so CUDA may number them in another order: set CUDA_DEVICE_ORDER=PCI_BUS_ID"
    return Visible(tuple(chosen), note if unsure else "")


def _named(entry: str, gpus: Sequence[GpuSample]) -> GpuSample | None:
    if entry.isdecimal():
        return gpus[int(entry)] if len(entry) <= _MOST_DIGITS and int(entry) < len(gpus) else None
    if entry.upper().startswith("MIG-GPU-"):
        # The form before R470: MIG-GPU-<uuid of the parent>/<gpu instance>/<compute instance>.
        parent, _, rest = entry[4:].partition("/")
        wanted = rest.split("/")
        found = [
            g for g in gpus
            if g.kind == "mig" and g.parent_uuid.lower() == parent.lower()
            and [str(g.gpu_instance), str(g.compute_instance)] == wanted
        ]  # fmt: skip
        return found[0] if len(found) == 1 else None
    lowered = entry.lower()
    if not lowered.startswith(("gpu-", "mig-")) or len(lowered) <= 4:
        return None
    matching = [g for g in gpus if g.uuid.lower().startswith(lowered)]
    return matching[0] if len(matching) == 1 else None
