"""The rows of what fits as a table: they arrive one batch after the other, and sort by what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QSortFilterProxyModel, Qt

from kvplanner.gpu.names import short_name
from kvplanner.report.fits import HEADS, VERDICTS, cells, verdict_of
from kvplanner.ui.theme.figures import shown

if TYPE_CHECKING:
    from PySide6.QtCore import QObject

    from kvplanner.report.words import Unit
    from kvplanner.solve.fits import Fit

SORT_ROLE: Final = Qt.ItemDataRole.UserRole + 1
TITLES: Final = tuple(head.removeprefix("longest ").capitalize() if head.islower() else head for head in HEADS)
_MOST_PARAMETERS: Final = 10**16  # of one verdict, the largest model first
_LONGEST: Final = 3  # lengths whose texts are measured: the widest one has seldom fewer letters
_NUMBERS: Final = frozenset({3, 4, 5, 6})
Index = QModelIndex | QPersistentModelIndex


class FitsModel(QAbstractTableModel):
    """One row for each model and format on a machine, or for each machine of a model."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: list[Fit] = []
        self._keys: list[tuple[str | int, ...]] = []
        self._lengths: dict[bool, list[dict[int, int]]] = {}  # of rows that fit or not, by column: a row of each length
        self._unit: Unit = "GiB"

    def clear(self) -> None:
        """No rows."""
        self.beginResetModel()
        self.rows, self._keys, self._lengths = [], [], {}
        self.endResetModel()

    def add(self, rows: Sequence[Fit]) -> None:
        """More rows at the end."""
        if rows:
            self.beginInsertRows(QModelIndex(), len(self.rows), len(self.rows) + len(rows) - 1)
            self.rows += rows
            self._keys += map(_keys, rows)
            self._measure(len(self.rows) - len(rows))
            self.endInsertRows()

    def _measure(self, first: int) -> None:
        """Notes how long the texts from a row on are, apart for those that fit."""
        for at in range(first, len(self.rows)):
            fit = self.rows[at]
            lengths = self._lengths.setdefault(bool(fit.fits), [{} for _ in HEADS])
            for of, text in zip(lengths, _texts(fit, self._unit), strict=True):
                of.setdefault(len(text), at)

    def longest(self, column: int, *, everything: bool) -> list[QModelIndex]:
        """Cells with the longest texts of a column, among the rows that fit and, where everything shows, the others."""
        found = [of[column] for fits, of in self._lengths.items() if fits or everything]
        return [self.index(of[length], column) for of in found for length in sorted(of)[-_LONGEST:]]

    def set_unit(self, unit: Unit) -> None:
        """GiB or GB."""
        self._unit = unit
        if self.rows:
            self._lengths = {}
            self._measure(0)
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.rows) - 1, len(HEADS) - 1))

    def rowCount(self, parent: Index | None = None) -> int:
        """Rows that have arrived."""
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index | None = None) -> int:
        """Columns."""
        return len(HEADS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Titles."""
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return TITLES[section]
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.ToolTipRole:
            return HEADS[section][:1].upper() + HEADS[section][1:]
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignRight if section in _NUMBERS else Qt.AlignmentFlag.AlignLeft
            return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def key(self, index: Index) -> str | int:
        """What a cell sorts by."""
        return self._keys[index.row()][index.column()]

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Text, what to sort by, and why there is no plan."""
        fit, column = self.rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return shown(_texts(fit, self._unit)[column])
        if role == SORT_ROLE:
            return self.key(index)
        if role == Qt.ItemDataRole.ToolTipRole:
            told = fit.model if column == 0 else cells(fit, self._unit)[column]
            return shown("\n".join(filter(None, (told, fit.refused))))
        if role == Qt.ItemDataRole.TextAlignmentRole and column in _NUMBERS:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None


def _texts(fit: Fit, unit: Unit) -> tuple[str, ...]:
    """What the cells of a row say."""
    _, weight_format, _, *answers = cells(fit, unit)
    return fit.model.rpartition("/")[2], weight_format, short_name(fit.machine or fit.gpus), *answers


def _keys(fit: Fit) -> tuple[str | int, ...]:
    """What each column of a row sorts by; what is not known comes first."""
    numbers = (
        fit.stored_bytes, fit.sure_max_context_length or fit.max_context_length, fit.sure_serves_users,
        fit.headroom_bytes,
    )  # fmt: skip
    verdict = VERDICTS.index(verdict_of(fit)) * _MOST_PARAMETERS - (fit.parameters or 0)
    return (
        fit.model.lower(), fit.weight_format.lower(), fit.total_bytes,
        *(-1 if number is None else number for number in numbers), verdict,
    )  # fmt: skip


class FitsFilter(QSortFilterProxyModel):
    """Sorts by meaning, and hides what the words or the verdict leave out."""

    def __init__(self, model: FitsModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._words: tuple[str, ...] = ()
        self._all = False
        self._only: frozenset[str] | None = None
        self.setSortRole(SORT_ROLE)
        self.setSourceModel(model)

    def show(self, text: str, *, everything: bool, only: frozenset[str] | None = None) -> None:
        """Only rows that hold all words; everything: also those that do not fit; only: models, all where None."""
        self._only = only
        self._words, self._all = tuple(text.lower().split()), everything
        self.invalidate()

    def filterAcceptsRow(self, row: int, parent: Index) -> bool:
        """Whether a row is shown."""
        fit = self._model.rows[row]
        if not (self._all or fit.fits) or (self._only is not None and fit.model not in self._only):
            return False
        if not self._words:
            return True
        text = f"{fit.model} {fit.weight_format} {fit.gpus} {fit.machine}".lower()
        return all(word in text for word in self._words)

    def lessThan(self, left: Index, right: Index) -> bool:
        """By what a column means."""
        less: bool = self._model.key(left) < self._model.key(right)  # type: ignore[operator]  # of one column
        return less
