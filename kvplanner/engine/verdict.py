"""Verdict: whether a plan works, how sure that is, where it fails or may fail, and by how much; all as data.

No sentence is made here: `kvplanner.report.sentences` makes every one of them from these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from kvplanner.record import NamedTuple, late

# The code of a reason that a build of one's own takes away.
NO_KERNELS: Final = "no_kernels"

State = Literal["fits", "does_not_fit", "cannot_tell"]
# certain: the whole band lies on one side. probable: the value and most of the band do. doubtful: about even.
Certainty = Literal["certain", "probable", "doubtful"]


class Bytes(int):
    """A size among the figures of a reason: shown in GiB or GB, as the reader wishes."""

    __slots__ = ()


Figures = Mapping[str, Bytes | int | float | str]


class Reason(NamedTuple):
    """Why, in the engine's own terms. code: a stable name for scripts. template: a clause with {names} of figures.

    figures: sizes are `Bytes`; other whole numbers are shown with separators, other values as they are.
    """

    code: str
    template: str
    figures: Figures = MappingProxyType({})


@late("least_bytes", "most_bytes", "reason")
class Shortfall(NamedTuple):
    """What a device lacks at a stage of start-up.

    device: position in plan.devices. missing_bytes: at the values, none where it is not above 0; least_bytes and
    most_bytes: at the ends of the bands of what is compared. message: what the engine would print there, "" where it
    prints nothing of its own.
    """

    stage: str
    device: int
    missing_bytes: int
    least_bytes: int
    most_bytes: int
    reason: Reason
    message: str = ""

    @property
    def certainty(self) -> Certainty:
        """How sure it is that this stage fails, or that it does not, by where the band lies."""
        return certainty_of(self.least_bytes, self.missing_bytes, self.most_bytes)


@late("certainty")
class Verdict(NamedTuple):
    """The answer in one value.

    failing: where start-up fails, None where it does not. doubt: a stage that the bands do not let every device pass:
    before the failing one where there is one. blocked: why nothing can be told, weightiest first; of `NO_KERNELS`, why
    the engine as it is released does not run, beside what a build of one's own would do. spilled: what lies outside
    the devices that it should be on, so that the engine runs where it should fail, and slowly; `doubt` says where.
    """

    state: State
    certainty: Certainty = "certain"
    failing: Shortfall | None = None
    doubt: Shortfall | None = None
    blocked: tuple[Reason, ...] = ()
    spilled: Reason | None = None


def certainty_of(least: int, missing: int, most: int) -> Certainty:
    """How sure a stage's outcome is when it lacks `missing` bytes, `least` to `most` over its band.

    The share of the half band on the other side decides between probable and doubtful.
    """
    if missing > 0:
        other, half = max(-least, 0), missing - least
    else:
        other, half = max(most, 0), most - missing
    if other <= 0:
        return "certain"
    return "doubtful" if other * 2 > half else "probable"
