"""Levers: what may be changed about a plan so that it works or serves more, as data that an engine offers.

A lever only proposes. Whoever pulls it plans the changed request, and keeps what that plan says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from kvplanner.engine.option import OptionValue
from kvplanner.record import NamedTuple, late

# What a change costs, cheapest first; the last two cost more than any three others together. nothing: nobody notices.
# speed: tokens come later. length: requests may be no longer. features: something is no longer offered. quality:
# answers change. slow: many times slower. hardware: GPUs that the machine does not have.
Loss = Literal["nothing", "speed", "length", "features", "quality", "slow", "hardware"]
WEIGHT: Final[Mapping[Loss, int]] = {
    "nothing": 0, "speed": 2, "length": 3, "quality": 3, "features": 4, "slow": 12, "hardware": 13,
}  # fmt: skip

# What a lever is for. fit: a plan that fails or may fail. more: a plan that works, to serve more. less: a plan that
# works, to leave more memory to others. faster: a plan that works with weights in RAM, to have them on the GPUs.
Aim = Literal["fit", "more", "less", "faster"]

# Options by name; None gives one back to its default.
Step = Mapping[str, OptionValue | None]


@late("steps")
class Lever(NamedTuple):
    """One thing that may be changed.

    name: stable, for scripts. steps: what to set, mildest first (for `more`: best first). cost: in plain words, with
    {value} for the first value of the step. aims: what it is for. source: who says that it helps, and what it costs.
    monotone: a step that does not do rules out all milder ones. ordered: each goes further one way, so that no step
    does between two that fall short at the same stage.
    """

    name: str
    steps: tuple[Step, ...]
    cost: str
    loss: Loss
    aims: tuple[Aim, ...] = ("fit",)
    source: str = ""
    monotone: bool = False
    ordered: bool = False
