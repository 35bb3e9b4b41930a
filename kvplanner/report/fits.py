"""Rows of what fits: as a table and as JSON, schema kvplanner.fits/1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kvplanner.solve.fits import Fit
from kvplanner.units import ByteUnit, format_bytes, format_parameters

SCHEMA: Final = "kvplanner.fits/1"
VERDICTS: Final = ("fits", "may fit", "needs RAM", "cannot tell", "does not fit", "refused")
HEADS: Final = ("model", "weights", "GPUs", "stored", "longest context", "users", "left", "verdict")
ALIGN: Final = "<<<>>>><"


def verdict_of(fit: Fit) -> str:
    """One of VERDICTS."""
    if fit.refused:
        return "refused"
    if fit.fits is None:
        return "cannot tell"
    if not fit.fits:
        return "does not fit"
    if fit.in_ram:
        return "needs RAM"
    return "fits" if fit.sure else "may fit"


def head(*, machine: str | None = None, model: str | None = None) -> dict[str, object]:
    """The document without its rows; of a machine's models, or of a model's machines."""
    return {"schema": SCHEMA, "machine": machine, "model": model}


def row_to_json(fit: Fit) -> dict[str, object]:
    """One row."""
    return {
        "model": fit.model,
        "weight_format": fit.weight_format,
        "what_if": fit.what_if,
        "gpus": fit.gpus,
        "total_bytes": fit.total_bytes or None,
        "stored_bytes": fit.stored_bytes,
        "parameters": fit.parameters,
        "max_context_length": fit.max_context_length,
        "sure_max_context_length": fit.sure_max_context_length,
        "max_concurrent_requests": fit.max_concurrent_requests,
        "serves_users": fit.serves_users,
        "sure_serves_users": fit.sure_serves_users,
        "headroom_bytes": fit.headroom_bytes,
        "fits": fit.fits,
        "sure": fit.sure,
        "in_ram": fit.in_ram,
        "certainty": fit.certainty,
        "stage": fit.stage,
        "refused": fit.refused or None,
    }


def cells(fit: Fit, unit: ByteUnit = "GiB") -> tuple[str, ...]:
    """A row of the table, under HEADS."""
    size = format_parameters(fit.parameters) if fit.parameters else ""
    return (
        f"{fit.model} {size}".strip(),
        f"as {fit.weight_format}" if fit.what_if else fit.weight_format,
        fit.gpus,
        format_bytes(fit.stored_bytes, unit) if fit.stored_bytes else "?",
        marks(fit.sure_max_context_length, fit.max_context_length),
        marks(fit.sure_serves_users, fit.serves_users),
        format_bytes(fit.headroom_bytes, unit) if fit.headroom_bytes is not None else "",
        verdict_of(fit),
    )


def widths(models: Iterable[str], gpus: Iterable[str], formats: Iterable[str]) -> tuple[int, ...]:
    """How wide the columns under HEADS get: by the names that may come, with a model's parameters beside it; by what
    sizes and limits usually take.
    """
    names = (max(map(len, texts), default=0) for texts in (models, formats, gpus))
    model, weights, words = names
    return model + len(" 1.23 B"), weights, words, len("1,234.56 GiB"), len("131,072 – 262,144"), 5, 10, 12


def marks(sure: int | None, maybe: int | None) -> str:
    """What surely holds, and what may beyond it: "21,584 – 43,168"."""
    if maybe is None:
        return ""
    if sure is None:
        return f"maybe {maybe:,}"
    return f"{sure:,}" if sure >= maybe else f"{sure:,} – {maybe:,}"
