"""Which NVIDIA GPUs sleep, from sysfs: reading it never wakes one (Linux runtime power management)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

SYSFS: Final = Path("/sys/bus/pci/devices")
_NVIDIA: Final = "0x10de"
_DISPLAY_CLASS: Final = "0x03"


class PowerState(NamedTuple):
    """One NVIDIA display device. may_sleep: its runtime power management is on."""

    pci: str
    asleep: bool
    may_sleep: bool


def power_states(root: Path = SYSFS) -> tuple[PowerState, ...]:
    """All NVIDIA GPUs that sysfs knows, by PCI id; () where there is no sysfs (Windows, WSL)."""
    if not root.is_dir():
        return ()
    found = []
    for device in sorted(root.iterdir()):
        if _read(device / "vendor") != _NVIDIA or not _read(device / "class").startswith(_DISPLAY_CLASS):
            continue
        status, control = _read(device / "power" / "runtime_status"), _read(device / "power" / "control")
        found.append(PowerState(device.name.lower(), status == "suspended", control == "auto"))
    return tuple(found)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
