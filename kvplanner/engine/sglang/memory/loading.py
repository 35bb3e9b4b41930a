"""What loading takes beside the tensors: segments of the allocator and modules that load meanwhile.

SGLang measures by the driver's free memory, so they are charged like weights. Public logs against the tensors of the
same models: up to 0.05 GiB on one rank, 0.15 to 0.3 GiB on four.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.settings import Settings
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.units import MIB

_ONE: Final = (20 * MIB, 0, 60 * MIB)
_TWO: Final = (110 * MIB, 20 * MIB, 220 * MIB)
_MORE: Final = (220 * MIB, 120 * MIB, 340 * MIB)


def beside(settings: Settings) -> Estimate:
    """Bytes that loading takes beside the tensors."""
    world = settings.parallel.world
    value, low, high = _ONE if world == 1 else _TWO if world == 2 else _MORE
    return banded(value, low, high, "calibrated", "{allocator and late modules}",
                  Input("allocator and late modules", value, "B", f"{world} ranks: public start-up logs"))  # fmt: skip
