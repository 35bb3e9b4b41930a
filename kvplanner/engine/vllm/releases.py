"""vLLM's releases: how a version is read and written, and values that changed from one release to another."""

from __future__ import annotations

import re
from typing import Final, Generic, NamedTuple, TypeVar

from kvplanner.engine.vllm.settings import Version as Version
from kvplanner.errors import BadInput

NEWEST: Final = (33, 0)
OLDEST: Final = (0, 0)
_LAST_PATCH: Final = 99
# A version is (minor, patch) of 0.x; each major release counts as so many minor ones.
_MAJOR: Final = 10_000
_VERSION: Final = r"(?i)v?(\d{1,3})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.?(?:post|rc|dev|a|b)\d*\S*)?(?:\+\S*)?"
T_co = TypeVar("T_co", covariant=True)


def spelled(version: Version) -> str:
    """A version as the engine writes it: "0.33.0"."""
    major, minor = divmod(version[0], _MAJOR)
    return f"{major}.{minor}.{version[1]}"


class Release(NamedTuple):
    """A version as it was asked for. warnings: why its rules may not be quite the right ones."""

    version: Version
    warnings: tuple[str, ...] = ()


def release_of(text: str | None) -> Release:
    """The release of a version such as "0.27.1", "v0.30", "0.24.0rc1" or "1.0"; None is the newest modelled one.

    Raises BadInput for other text.
    """
    if text is None:
        return Release(NEWEST)
    match = re.fullmatch(_VERSION, text.strip())
    if match is None:
        raise BadInput(f"{text[:40]!r} is not a vLLM version", "--engine-version", "Write for example 0.33.0")
    version = (int(match[1]) * _MAJOR + int(match[2]), int(match[3] or 0))
    name = spelled(version)
    if version > (NEWEST[0], _LAST_PATCH):
        return Release(version, (f"vLLM {name} is newer than 0.33, the newest modelled: planned by its rules",))
    if version < (6, 0):
        return Release(version, (f"vLLM {name} is older than 0.6: planned by the rules of 0.6",))
    return Release(version)


class Row(NamedTuple, Generic[T_co]):
    """A value from a release on, until the next row. source: the file and line that say so, or a public report.

    sure: whether the border was read in the releases on both sides; else it lies at or before `since`.
    """

    since: Version
    value: T_co
    source: str
    sure: bool = True


class ByRelease(Generic[T_co]):
    """A value that changed from one release to another: its rows, the oldest first."""

    __slots__ = ("_found", "rows")

    def __init__(self, first: T_co, *rows: Row[T_co]) -> None:
        """first: the value before the first row."""
        self.rows: tuple[Row[T_co], ...] = (Row(OLDEST, first, ""), *rows)
        self._found: dict[Version, T_co] = {}

    def at(self, version: Version) -> T_co:
        """The value in a release."""
        found = self._found
        if version not in found:
            found[version] = next(row.value for row in reversed(self.rows) if row.since <= version)
        return found[version]

    @property
    def borders(self) -> tuple[Version, ...]:
        """The releases with which the value changed."""
        return tuple(row.since for row in self.rows[1:])


def run_of(version: Version, rules: tuple[ByRelease[object], ...]) -> str:
    """The run of releases around a version in which none of the rules changes: "0.29–0.33"."""
    borders = sorted({border for rule in rules for border in rule.borders})
    first = max((border for border in borders if border <= version), default=OLDEST)
    after = min((border for border in borders if border > version), default=(NEWEST[0] + 1, 0))
    last = (after[0], after[1] - 1) if after[1] else (after[0] - 1, _LAST_PATCH)
    if first == last:
        return spelled(first)
    return f"{_short(first)}–{_short(last)}" if first[0] != last[0] or last[1] != _LAST_PATCH else _short(first)


def _short(version: Version) -> str:
    """A version without a patch that says nothing."""
    return f"0.{version[0]}" if version[1] in (0, _LAST_PATCH) else f"0.{version[0]}.{version[1]}"
