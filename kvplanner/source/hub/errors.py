"""What can go wrong with the Hub, told apart so that each has its own remedy."""

from __future__ import annotations

from typing import Literal

from kvplanner.errors import PlannerError

Trouble = Literal[
    "offline", "unreachable", "gated", "not_found", "unauthorised", "rate_limited", "slow", "bad_answer", "refused"
]  # fmt: skip


class HubError(PlannerError):
    """The Hub did not give what was asked for. trouble: which kind of reason."""

    def __init__(self, trouble: Trouble, what: str, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where, remedy)
        self.trouble = trouble

    def __reduce__(self) -> tuple[type[HubError], tuple[Trouble, str, str, str]]:
        return HubError, (self.trouble, self.what, self.where, self.remedy)


def offline(where: str, reason: str) -> HubError:
    """The error for something that needs the network; reason: a clause that says why there is none to be used."""
    return HubError(
        "offline", f"is not on this machine, and {reason}", where,
        "Go online, or open a model of this machine or of the catalogue",
    )  # fmt: skip
