"""Errors that a person can act on: what went wrong, where, and what to do."""

from __future__ import annotations


class PlannerError(Exception):
    """Base of every error that kvplanner raises on purpose.

    what: one sentence; where: a file, field, flag or name ("" when it is the request as a whole);
    remedy: what to do about it ("" when nothing is known); brief: the same as `what` for a headline, where that is an
    engine's own sentence.
    """

    def __init__(self, what: str, where: str = "", remedy: str = "", *, brief: str = "") -> None:
        super().__init__(what, where, remedy)
        self.brief = brief or what
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}. {self.remedy}" if self.remedy else head


class BadInput(PlannerError):
    """A value, file or flag that cannot be right."""


class UnknownName(BadInput):
    """A name that matches nothing, or too much; `near` lists what is close to it, `remedy` says what else to do."""

    def __init__(self, what: str, where: str = "", near: tuple[str, ...] = (), remedy: str = "") -> None:
        words = [f"Near: {', '.join(near)}"] if near else []
        super().__init__(what, where, ". ".join([*words, remedy] if remedy else words))
        self.near = near


class NotModelled(PlannerError):
    """Valid input whose memory use kvplanner does not know: never approximated."""
