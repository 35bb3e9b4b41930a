"""Build resources/gpus from a facts file: a small index, and one record a line with the provenance of each fact.

Run through build_catalogue.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kvplanner.catalog.gpus import entry_of

_KEPT = (
    "id", "vendor", "class", "nvml_name", "aliases", "arch", "year", "memory_type", "compute_capability",
    "memory_gb", "nvml_total_mib", "nvml_total_mib_other", "driver_total_bytes", "torch_total_mib",
    "torch_total_mib_other", "nvml_reserved_mib_seen",
    "memory_variants_gb", "bandwidth_gbs", "nvlink", "unified_memory", "ecc_default", "modified", "mig", "notes",
    "usable_note",
    "facts",
)  # fmt: skip

# What most start-up reports print where the facts file has another reading: all but one of eighteen of a GB10 show
# 121.6 to 121.7 GiB, which is its MemTotal of 127,600,748 kB.
_PRINTED: dict[str, dict[str, Any]] = {
    "gb10": {
        "torch_total_mib": 124610,
        "torch_total_mib_other": [
            {"mib": mib, "when": "another report", "sources": ["public print, repository not recorded"]}
            for mib in (122502, 122572)
        ],
    },
}
_TPU = "https://www.techpowerup.com/gpu-specs/"
_UNLOCKED = "https://github.com/sudoingX/qwen38-mtp/pull/49"


def _mining_card(size_gb: int, bandwidth_gbs: int, page: str, how: str, modified: str = "") -> dict[str, Any]:
    """A CMP 170HX: GA100 with its compute capability. how: the arithmetic of its bandwidth."""
    spec = {"kind": "spec", "sources": [_TPU + page]}
    memory = {"kind": "measured", "sources": [modified]} if modified else spec
    return {
        "id": f"cmp-170hx-{size_gb}gb{'-mod' if modified else ''}", "vendor": "nvidia",
        "class": "mod" if modified else "workstation", "nvml_name": "NVIDIA CMP 170HX",
        "aliases": [f"CMP 170HX {size_gb}GB"], "arch": "Ampere", "year": 2021, "memory_type": "HBM2e",
        "compute_capability": "8.0", "memory_gb": size_gb, "bandwidth_gbs": bandwidth_gbs, "nvlink": False,
        "unified_memory": False, "modified": bool(modified),
        "notes": [
            "A mining card: PCIe 1.0 x4, so that layers on the host or tensor parallelism are slow.",
            *(["Its memory was unlocked; cards with one rank have 32 GB that way."] if modified else []),
        ],
        "facts": {
            "compute_capability": spec, "memory_gb": memory,
            "bandwidth_gbs": {"kind": "derived", "sources": [_TPU + page], "note": how},
        },
    }  # fmt: skip


# Devices that the facts file does not have.
_MORE = (
    _mining_card(8, 1493, "cmp-170hx-8-gb.c3830", "4096 bit at 1458 MHz, double rate"),
    _mining_card(10, 1555, "cmp-170hx-10-gb.c3957", "5120 bit at 1215 MHz, double rate"),
    _mining_card(64, 1493, "cmp-170hx-8-gb.c3830", "as the card of 8 GB", _UNLOCKED),
)
_SMI_TOTAL = re.compile(r"rocm-smi total, ([0-9]+) bytes")


def build(source: Path, target: Path) -> int:
    """Write index.json and records.jsonl below `target` from the facts in `source`; returns the number of GPUs."""
    facts = json.loads(source.read_text(encoding="utf-8"))
    target.mkdir(parents=True, exist_ok=True)
    records = [_record(device) for device in (*facts["devices"], *_MORE)]
    index = {
        "schema": "kvplanner.gpus/1",
        "made": facts["made"],
        "rules": facts["rules"],
        "sources": facts["sources"],
        "gpus": [entry_of(record) for record in records],
    }
    _write(target / "index.json", json.dumps(index, ensure_ascii=False, separators=(",", ":")) + "\n")
    lines = (json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records)
    _write(target / "records.jsonl", "".join(line + "\n" for line in lines))
    return len(records)


def _record(device: dict[str, Any]) -> dict[str, Any]:
    found = {**device, **_driver_total(device), **_PRINTED.get(device["id"], {})}
    if device["id"] in _PRINTED:
        sources = ["https://github.com/XuehaiPan/nvitop/pull/208", "https://github.com/vllm-project/vllm/issues/44740"]
        fact = {"kind": "measured", "sources": sources, "note": "other reports 122502 and 122572"}
        found["facts"] = {**found["facts"], "torch_total_mib": fact}
    return {key: found[key] for key in _KEPT if found.get(key) not in (None, [], {}, "")}


def _driver_total(device: dict[str, Any]) -> dict[str, Any]:
    """The total that rocm-smi prints, in bytes, with its source; the facts tell it among other readings."""
    for other in device.get("torch_total_mib_other") or ():
        printed = _SMI_TOTAL.fullmatch(other.get("when", ""))
        if printed:
            fact = {"kind": "measured", "sources": other["sources"]}
            return {
                "driver_total_bytes": int(printed[1]),
                "facts": {**device.get("facts", {}), "driver_total_bytes": fact},
            }
    return {}


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
