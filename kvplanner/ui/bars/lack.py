"""What a device lacks, in words."""

from __future__ import annotations

from kvplanner.plan.held import Lacking
from kvplanner.ui.bars import words
from kvplanner.ui.bars.words import Unit


def lack_text(lack: Lacking, unit: Unit) -> str:
    """What is missing at the failing stage, and in all where later stages would lack more."""
    short = f"{words.size(lack.bytes, unit)} short"
    return short if lack.in_all is None else f"{short} at this stage, {words.number(lack.in_all, unit)} in all"
