"""The gate to NVML: the only module that imports pynvml, and the only one that knows its traps.

Every call goes through `Nvml.ask` and comes back as a value or a fault; nothing else leaves this module.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any, Final

from kvplanner.observe.snapshot import DriverState
from kvplanner.record import NamedTuple

Fault = str  # a key of WORDS; "" when the call answered

WORDS: Final[dict[Fault, str]] = {
    "not_supported": "not supported by this GPU or driver",
    "no_permission": "no permission",
    "lost": "the GPU stopped answering",
    "not_found": "not found",
    "function_missing": "this driver is too old to tell",
    "uninitialized": "the driver was shut down",
    "timeout": "the driver took too long",
    "reset_required": "the GPU needs a reset",
    "bad_text": "the driver answered with unreadable text",
    "argument": "the driver no longer knows this device",
    "unknown": "the driver says: unknown error",
}
# After these a device is treated as gone until it answers again.
GONE: Final = frozenset({"lost", "uninitialized", "reset_required", "argument", "unknown", "not_found"})

_CODES: Final[dict[str, Fault]] = {
    "NVML_ERROR_NOT_SUPPORTED": "not_supported", "NVML_ERROR_NO_PERMISSION": "no_permission",
    "NVML_ERROR_GPU_IS_LOST": "lost", "NVML_ERROR_NOT_FOUND": "not_found", "NVML_ERROR_GPU_NOT_FOUND": "not_found",
    "NVML_ERROR_FUNCTION_NOT_FOUND": "function_missing", "NVML_ERROR_UNINITIALIZED": "uninitialized",
    "NVML_ERROR_TIMEOUT": "timeout", "NVML_ERROR_RESET_REQUIRED": "reset_required",
    "NVML_ERROR_INVALID_ARGUMENT": "argument", "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": "function_missing",
    "NVML_ERROR_DEPRECATED": "function_missing",
}  # fmt: skip
NO_LIBRARY: Final[tuple[DriverState, str, str]] = (
    "no_driver",
    "No NVIDIA driver found. Planning works without it.",
    "Install the NVIDIA driver to watch a GPU here; in a container, start it with the utility capability.",
)
_INIT: Final[dict[str, tuple[DriverState, str, str]]] = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": NO_LIBRARY,
    "NVML_ERROR_DRIVER_NOT_LOADED": (
        "not_loaded", "The NVIDIA driver is installed but not running.",
        "Secure boot or a new kernel can be the reason: load the nvidia kernel module, or restart the computer.",
    ),
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": (
        "version_mismatch", "The NVIDIA driver was updated while the computer was running.",
        "Restart the computer.",
    ),
    "NVML_ERROR_NO_PERMISSION": (
        "no_permission", "No permission for /dev/nvidia*.",
        "Ask the administrator for access to the GPU devices (often the group video or render).",
    ),
    "NVML_ERROR_GPU_IS_LOST": (
        "lost", "A GPU stopped answering.", "Restart the computer; in a container, recreate it.",
    ),
    "NVML_ERROR_UNKNOWN": (
        "lost", "The NVIDIA driver answers with an unknown error: a GPU fell off, or the container lost its devices.",
        "Restart the computer; in a container, recreate it.",
    ),
}  # fmt: skip
_IMPOSSIBLE_PIDS: Final = frozenset({0, 0xFFFFFFFF})
_NO_INSTANCE: Final = 0xFFFFFFFF
_PROCESS_CALLS: Final[dict[str, str]] = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}


class Unavailable(Exception):
    """NVML cannot be used at all: why, and what to do."""

    def __init__(self, state: DriverState, message: str, remedy: str) -> None:
        super().__init__(state, message, remedy)
        self.state: DriverState = state
        self.message = message
        self.remedy = remedy


class Answer(NamedTuple):
    """What a call said: a value, or None and the fault."""

    value: Any
    fault: Fault = ""


class Memory(NamedTuple):
    """Bytes. reserved None: this driver does not tell it apart, and allocated includes it."""

    total: int
    reserved: int | None
    allocated: int
    free: int


class RawProcess(NamedTuple):
    """A row of a process list; memory None: not told."""

    pid: int
    memory: int | None
    gpu_instance: int | None


def library_missing() -> bool:
    """Whether this Linux machine has no NVML library at all. Loading it calls nothing in the driver."""
    if sys.platform != "linux":
        return False
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return True
    return False


def words(fault: Fault) -> str:
    """A fault in words."""
    return WORDS.get(fault, fault)


def normal_pci(text: str) -> str:
    """A PCI bus id in the short lower-case form that Linux uses: "0000:01:00.0"."""
    domain, _, rest = text.strip().lower().partition(":")
    if rest.count(":") != 1:
        return text.strip().lower()
    return f"{int(domain, 16):04x}:{rest}" if all(c in "0123456789abcdef" for c in domain) and domain else text.lower()


class Nvml:
    """An open NVML. One thread owns it; close() it from there."""

    def __init__(self) -> None:
        """Loads and initialises the library. Raises Unavailable."""
        try:
            import pynvml
        except ImportError:
            raise Unavailable(
                "wrong_library", "The Python package nvidia-ml-py is missing.", "Install it: pip install nvidia-ml-py."
            ) from None
        self._lib: Any = pynvml
        if not hasattr(pynvml, "nvmlMemory_v2"):
            raise Unavailable(
                "wrong_library", "Another package named pynvml hides nvidia-ml-py.",
                "Remove the package pynvml and install nvidia-ml-py again.",
            )  # fmt: skip
        lib = self._lib
        # A version mismatch is no NVMLError; names may not be UTF-8 (ValueError); None in a struct gives TypeError.
        self._catch = (lib.NVMLError, lib.NVMLLibraryMismatchError, ValueError, TypeError, OSError)
        self._faults = {getattr(lib, name): fault for name, fault in _CODES.items() if hasattr(lib, name)}
        self._missing: set[str] = set()
        self._second_version = True
        try:
            lib.nvmlInit()
        except self._catch as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> Unavailable:
        code = getattr(error, "value", None)
        for name, (state, message, remedy) in _INIT.items():
            if code is not None and code == getattr(self._lib, name, None):
                return Unavailable(state, message, remedy)
        return Unavailable("failed", f"The NVIDIA driver did not start: {error}.", "Restart the computer.")

    def close(self) -> None:
        """Ends this use of the library."""
        self.ask("nvmlShutdown")

    def ask(self, name: str, *args: object, **kwargs: object) -> Answer:
        """Calls a pynvml function. Functions that this driver lacks are remembered and not asked again."""
        if name in self._missing:
            return Answer(None, "function_missing")
        function = getattr(self._lib, name, None)
        if function is None:
            return Answer(None, "function_missing")
        try:
            return Answer(function(*args, **kwargs))
        except self._catch as error:
            fault = self._fault(error)
            if fault == "function_missing":
                self._missing.add(name)
            return Answer(None, fault)

    def _fault(self, error: Exception) -> Fault:
        if isinstance(error, self._lib.NVMLLibraryMismatchError):
            return "function_missing"
        if isinstance(error, self._lib.NVMLError):
            return self._faults.get(getattr(error, "value", None), "unknown")
        return "bad_text" if isinstance(error, UnicodeDecodeError) else "not_supported"

    def text(self, name: str, *args: object) -> Answer:
        """A string call whose bytes may not be UTF-8: such bytes become replacement characters."""
        raw = getattr(getattr(self._lib, name, None), "__wrapped__", None)
        if raw is None:
            return self.ask(name, *args)
        try:
            value = raw(*args)
        except self._catch as error:
            return Answer(None, self._fault(error))
        return Answer(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)

    def number(self, name: str, *args: object) -> Answer:
        """A call that answers with a whole number, or with a ctypes integer."""
        answer = self.ask(name, *args)
        value = getattr(answer.value, "value", answer.value)
        return Answer(value, answer.fault) if isinstance(value, int) or answer.fault else Answer(None, "not_supported")

    def driver_version(self) -> str:
        """Such as "580.95.05"; "" when not told."""
        return self.text("nvmlSystemGetDriverVersion").value or ""

    def cuda_version(self) -> str:
        """The newest CUDA that this driver serves, such as "13.0"; "" when not told."""
        number = self.number("nvmlSystemGetCudaDriverVersion").value
        return f"{number // 1000}.{number % 1000 // 10}" if number else ""

    def pci(self, handle: object) -> str:
        """The PCI bus id in its short form, "" when not told."""
        info = self.ask("nvmlDeviceGetPciInfo", handle).value
        bus = getattr(info, "busId", b"") if info is not None else b""
        return normal_pci(bus.decode("ascii", "replace") if isinstance(bus, bytes) else str(bus)) if bus else ""

    def memory(self, handle: object) -> Memory | Fault:
        """Memory by the second version of the call, by the first where the driver has no second.

        A total of 0 is what some unified-memory drivers say for "not supported".
        """
        if self._second_version:
            two = self.ask("nvmlDeviceGetMemoryInfo", handle, version=self._lib.nvmlMemory_v2)
            if not two.fault:
                total, reserved, free = int(two.value.total), int(two.value.reserved), int(two.value.free)
                # `used` is not read: whether it includes the reserved part has differed between documents.
                return Memory(total, reserved, max(0, total - free - reserved), free) if total else "not_supported"
            if two.fault != "function_missing":
                return two.fault
            self._second_version = False
            self._missing.discard("nvmlDeviceGetMemoryInfo")
        one = self.ask("nvmlDeviceGetMemoryInfo", handle)
        if one.fault:
            return one.fault
        total, free = int(one.value.total), int(one.value.free)
        return Memory(total, None, max(0, total - free), free) if total else "not_supported"

    def processes(self, handle: object, kind: str) -> tuple[tuple[RawProcess, ...], bool] | Fault:
        """(rows, whether rows were dropped as impossible), or the fault. kind: "compute", "graphics", "mps".

        The second version comes first: its record is right on every driver since R450, whereas early R535
        drivers wrote a longer record behind the third version's name.
        """
        fault: Fault = "function_missing"
        for suffix in ("_v2", "_v3", ""):
            answer = self.ask(f"{_PROCESS_CALLS[kind]}{suffix}", handle)
            if not answer.fault:
                return self._rows(answer.value)
            fault = answer.fault
            if fault != "function_missing":
                break
        return fault

    def _rows(self, records: list[Any]) -> tuple[tuple[RawProcess, ...], bool]:
        rows = []
        for record in records:
            instance = getattr(record, "gpuInstanceId", None)
            rows.append(
                RawProcess(int(record.pid), record.usedGpuMemory, None if instance == _NO_INSTANCE else instance)
            )
        kept = tuple(row for row in rows if row.pid not in _IMPOSSIBLE_PIDS)
        return kept, len(kept) < len(rows)

    def instances(self, handle: object) -> Iterator[object]:
        """Handles of the MIG instances of a GPU; empty slots are normal and are skipped."""
        slots = self.number("nvmlDeviceGetMaxMigDeviceCount", handle).value or 0
        for slot in range(slots):
            answer = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
            if not answer.fault:
                yield answer.value
