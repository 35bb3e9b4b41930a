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
_SMI_TOTAL = re.compile(r"rocm-smi total, ([0-9]+) bytes")


def build(source: Path, target: Path) -> int:
    """Write index.json and records.jsonl below `target` from the facts in `source`; returns the number of GPUs."""
    facts = json.loads(source.read_text(encoding="utf-8"))
    target.mkdir(parents=True, exist_ok=True)
    records = [_record(device) for device in facts["devices"]]
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
