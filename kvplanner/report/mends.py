"""Ways back from a refusal in words: what a button says, and what comes of it."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.option import Option
from kvplanner.engine.registry import engine
from kvplanner.report.options import in_sentence, option_label
from kvplanner.report.verdict import verdict
from kvplanner.report.words import Unit
from kvplanner.solve.change import ENGINE, GPUS, MODEL, RELEASE, WEIGHT_FORMAT, Change
from kvplanner.solve.mends import Mend
from kvplanner.units import counted, format_count

# A number as large says by itself what it is of.
_TELLING: Final = 1000
_FEW: Final = 2


def button(mend: Mend) -> str:
    """The text of its button: "Use 40,960", "Use 4 GPUs", "Plan it as FP8"."""
    if len(mend.changes) == 1:
        return _short(mend, mend.changes[0])
    if all(change.value is None for change in mend.changes):
        labels = [_label(mend, change) for change in mend.changes]
        return f"Reset {', '.join(labels)}" if mend.request.options or len(labels) <= _FEW else "Reset all settings"
    return "Use " + in_sentence(_changes(mend))


def sentence(mend: Mend, unit: Unit = "GiB") -> str:
    """What it changes and what the plan then is: "Context length 40,960: fits …"."""
    first = mend.changes[0]
    words = f"Reset {_label(mend, first)}" if first.value is None and _option(mend, first) else _changes(mend)
    return f"{words or button(mend)}: {in_sentence(verdict(mend.plan, unit).headline)}"


def _changes(mend: Mend) -> str:
    return ", ".join(
        f"{_label(mend, change)} {_value(change)}" if place else f"{_title(mend, change)} {_value(change)}".strip()
        for place, change in enumerate(mend.changes)
        if _option(mend, change) is not None
    )


def _short(mend: Mend, change: Change) -> str:
    value = change.value
    if change.option == GPUS:
        return f"Use {counted(len(mend.request.machine.devices), 'GPU', 'GPUs')}"
    if change.option == WEIGHT_FORMAT:
        return "Weights as stored" if value is None else f"Plan it as {value}"
    if change.option == MODEL:
        return f"Use {str(value).rpartition('/')[2]}"
    if change.option == ENGINE:
        return f"Plan it with {engine(str(value)).title}"
    if change.option == RELEASE:
        return "Use the newest release" if value is None else f"Use {engine(mend.request.engine).title} {value}"
    if value is None:
        return f"Reset {_label(mend, change)}"
    if isinstance(value, bool):
        return f"Use {_label(mend, change)}" if value else f"Without {_label(mend, change)}"
    if isinstance(value, int) and value >= _TELLING:
        return f"Use {_value(change)}"
    return f"Use {_label(mend, change)} {_value(change)}"


def _option(mend: Mend, change: Change) -> Option | None:
    options = engine(mend.request.engine).options(mend.request.version)
    return next((option for option in options if option.name == change.option), None)


def _title(mend: Mend, change: Change) -> str:
    option = _option(mend, change)
    return option_label(option) if option is not None else ""


def _label(mend: Mend, change: Change) -> str:
    return in_sentence(_title(mend, change))


def _value(change: Change) -> str:
    value = change.value
    if isinstance(value, bool):
        return "on" if value else "off"
    return format_count(value) if isinstance(value, int) else str(value)
