"""Which NVIDIA GPUs sleep, from sysfs: reading it never wakes one (Linux runtime power management)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvplanner.record import NamedTuple

SYSFS: Final = Path("/sys/bus/pci/devices")
LIST_AGAIN_S: Final = 30.0
READ_AGAIN_S: Final = 1.0
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
        control = _read(device / "power" / "control")
        found.append(PowerState(device.name.lower(), _asleep(device), control == "auto"))
    return tuple(found)


class PowerWatch:
    """power_states() for a loop: the devices are looked for rarely, and only those that may sleep are read again."""

    def __init__(self, root: Path = SYSFS) -> None:
        self._root = root
        self._states: tuple[PowerState, ...] = ()
        self._listed_at = self._read_at = float("-inf")

    def states(self, now: float) -> tuple[PowerState, ...]:
        """The states at `now` (monotonic seconds), at most a second old."""
        if now - self._listed_at >= LIST_AGAIN_S:
            self._listed_at = self._read_at = now
            self._states = power_states(self._root)
        elif now - self._read_at >= READ_AGAIN_S and any(s.may_sleep or s.asleep for s in self._states):
            self._read_at = now
            self._states = tuple(
                s._replace(asleep=_asleep(self._root / s.pci)) if s.may_sleep or s.asleep else s for s in self._states
            )
        return self._states


def _asleep(device: Path) -> bool:
    return _read(device / "power" / "runtime_status") == "suspended"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
