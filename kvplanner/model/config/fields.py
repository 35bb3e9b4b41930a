"""Typed reading of a config's fields: every field is checked, none is guessed, and what nobody read is known.

`null` means absent. An absent field takes a default only where its family has one, and then the name is kept
in `Fields.defaulted`, so that a plan can say what it assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.config import classes
from kvplanner.model.config.metadata import is_metadata, misspelt, same_meaning

MAX_LAYERS: Final = 4096
# Objects of settings that their makers write anything into.
FREE: Final = frozenset({"meta", "export", "exllama_config", "algo_config", "calibration", "calib_config"})
MAX_SIZE: Final = 1 << 40
# Ratios and factors: what lies outside is a slip, and sizes times or by it would be no sizes.
_SMALL: Final = (1e-6, 1e6)


class Fields:
    """One dictionary of a config, and where it stands in the file.

    kind: its class, by `model_type`; a nested dictionary takes that class's defaults for what it leaves out.
    """

    __slots__ = ("_absent", "_closed", "_inside", "_read", "defaulted", "kind", "path", "values", "where")

    def __init__(
        self,
        values: Mapping[str, object],
        where: str,
        path: str = "",
        defaulted: list[str] | None = None,
        kind: str | None = None,
    ) -> None:
        self.values = values
        self.where = where
        self.path = path
        self.defaulted: list[str] = [] if defaulted is None else defaulted
        self.kind = str(values.get("model_type") or "") if kind is None else kind
        self._read: set[str] = set()
        self._absent: set[str] = set()
        self._inside: dict[str, Fields] = {}
        self._closed = False

    def named(self, name: str) -> str:
        """The field's full name for messages: "config.json: text_config.num_hidden_layers"."""
        return f"{self.where}: {self.path}{name}"

    def raw(self, *names: str) -> tuple[str, object]:
        """The first of `names` that is present and not null, with its value; ("", None) when none is."""
        found: tuple[str, object] = ("", None)
        for name in names:
            value = self.values.get(name)
            self._read.add(name)
            if value is not None and not found[0]:
                found = (name, value)
            elif value is not None and value != found[1] and name in same_meaning(found[0]):
                raise self._contradiction(name, found[0])
        if not found[0]:
            self._absent.update(name for name in names if name not in self.values)
        return found if found[0] or not self.path else self._class_default(names)

    def _class_default(self, names: tuple[str, ...]) -> tuple[str, object]:
        """The default of a nested dictionary's class, which is then recorded; a null has none."""
        standard = classes.defaults_of(self.kind) if self.kind else {}
        for name in names:
            if name in standard and name not in self.values:
                for told in dict.fromkeys((names[0], name)):
                    self.took_default(told)
                return name, standard[name]
        return "", None

    def has(self, name: str) -> bool:
        """Whether the field is present and not null; does not count as reading it."""
        return self.values.get(name) is not None

    def noted(self, name: str) -> None:
        """Record that a field is absent (not null) and that its absence was given a meaning."""
        if name not in self.values:
            self.took_default(name)

    def bad(self, name: str, expected: str, held: str = "") -> BadInput:
        """The error for a field whose value cannot be right; held: what is wrong in it, where not all of it is."""
        return BadInput(
            f"{held or f'is {shown(self.values.get(name))}'}, expected {expected}",
            self.named(name),
            "Check that the file is the model's own config.json",
        )

    def missing(self, *names: str) -> BadInput:
        """The error for a field that must be there."""
        also = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
        return BadInput(
            f"is missing{also}, and this architecture has no default for it",
            self.named(names[0]),
            "Use the complete config.json of the model's repository",
        )

    def maybe(self, *names: str, low: int = 1, high: int = MAX_SIZE) -> int | None:
        """An integer in [low, high], None when absent. Raises BadInput for anything else."""
        name, value = self.raw(*names)
        if not name:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.bad(name, f"a whole number from {low} to {high}")
        return value

    def need(self, *names: str, low: int = 1, high: int = MAX_SIZE) -> int:
        """An integer that must be present."""
        value = self.maybe(*names, low=low, high=high)
        if value is None:
            raise self.missing(*names)
        return value

    def get(self, *names: str, default: int, low: int = 1, high: int = MAX_SIZE) -> int:
        """An integer, or its family's default, which is then recorded."""
        value = self.maybe(*names, low=low, high=high)
        if value is None:
            self.took_default(names[0])
            return default
        return value

    def flag(self, *names: str, default: bool) -> bool:
        """A boolean, or its family's default, which is then recorded."""
        name, value = self.raw(*names)
        if not name:
            self.took_default(names[0])
            return default
        if not isinstance(value, bool):
            raise self.bad(name, "true or false")
        return value

    def number(self, *names: str) -> float | None:
        """A ratio or another small number, None when absent; 0 or from a millionth to a million."""
        name, value = self.raw(*names)
        if not name:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(name, "a number")
        if value and not _SMALL[0] <= value <= _SMALL[1]:
            raise self.bad(name, "a number from 0 to 1,000,000")
        return float(value)

    def text(self, *names: str, allowed: Iterable[str] = ()) -> str | None:
        """A string, None when absent; one of `allowed` when given."""
        name, value = self.raw(*names)
        if not name:
            return None
        choices = tuple(allowed)
        if not isinstance(value, str) or (choices and value not in choices):
            raise self.bad(name, f"one of {', '.join(choices)}" if choices else "text")
        return value

    def texts(self, name: str, allowed: Iterable[str] = ()) -> tuple[str, ...] | None:
        """A list of strings, None when absent; each one of `allowed` when given."""
        _, value = self.raw(name)
        if value is None:
            return None
        choices = frozenset(allowed)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self.bad(name, "a list of words")
        for item in value:
            if choices and item not in choices:
                raise NotModelled(
                    f"holds {shown(item)}, known are {', '.join(sorted(choices))}",
                    self.named(name),
                    "This kind of layer is not modelled: a plan from file headers shows the weights",
                )
        return tuple(value)

    def ints(self, name: str, low: int = 0, high: int = MAX_SIZE) -> tuple[int, ...] | None:
        """A list of integers, None when absent."""
        _, value = self.raw(name)
        if value is None:
            return None
        items = value if isinstance(value, list | tuple) else [value]
        wrong = [v for v in items if isinstance(v, bool) or not isinstance(v, int) or not low <= v <= high]
        if wrong or not isinstance(value, list | tuple):
            held = f"holds {', '.join(map(shown, wrong[:3]))}" if isinstance(value, list | tuple) else ""
            raise self.bad(name, f"a list of whole numbers from {low} to {high}", held)
        return tuple(value)

    def sub(self, *names: str) -> Fields | None:
        """A nested dictionary, None when absent. Its defaults are recorded with this one's.

        Asked for again, it is the same one: what was read of it stays known.
        """
        name, value = self.raw(*names)
        if not name:
            return None
        if not isinstance(value, Mapping):
            raise self.bad(name, "an object")
        if name not in self._inside or self._inside[name].values is not value:
            kind = classes.class_of(str(value.get("model_type") or ""), self.kind, name)
            self._inside[name] = Fields(value, self.where, f"{self.path}{name}.", self.defaulted, kind)
        return self._inside[name]

    def took_default(self, name: str) -> None:
        """Record that an absent field took its family's default."""
        self._absent.add(name)
        self.defaulted.append(f"{self.path}{name}")

    def skip(self, *names: str) -> None:
        """Fields that are known and change nothing for this family."""
        self._read.update(names)

    def expect(self, name: str, *allowed: object) -> None:
        """A field that, when present, must hold one of the values that this reader understands."""
        _, value = self.raw(name)
        if value is not None and not any(value is a or (value == a and type(value) is type(a)) for a in allowed):
            raise NotModelled(
                f"is {shown(value)}, this architecture is modelled for {' or '.join(map(shown, allowed))} only",
                self.named(name),
                "Plan from file headers, or choose another model",
            )

    def close(self) -> None:
        """Raise for a field that may matter and that nothing read: NotModelled, or BadInput for a contradiction.

        One that is switched off (false, null, zero, empty) changes nothing, and neither does one that repeats under
        another name what was read. Objects of which something was read are closed with it.
        """
        if self._closed:
            return
        self._closed = True
        for key, value in self.values.items():
            name = str(key)
            if name in self._read:
                continue
            meant = self._meant(name, value)
            if not meant and (not value or self._repeats(name, value) or is_metadata(name, value)):
                continue
            raise NotModelled(
                f"is not understood (value {shown(value)}), and {_why(meant, value)}",
                self.named(name),
                "This variant of the architecture is not modelled",
            )
        for inner in self._inside.values():
            inner.close()

    def close_settings(self, harmless: frozenset[str]) -> None:
        """Raise NotModelled for an object or list that nothing read, here or in what was read of it.

        For settings (of a quantisation, of rope), whose words and numbers change nothing unless they were read: those
        may be of any name that is no misspelling of an absent one. harmless: objects and lists that say nothing of
        sizes.
        """
        self._closed = True
        for key, value in self.values.items():
            name = str(key)
            if name in self._read:
                continue
            meant = self._meant(name, value)
            if meant or (isinstance(value, Mapping | list | tuple) and _says_more(name, value, harmless)):
                raise NotModelled(
                    f"is not understood (value {shown(value)}), and {_why(meant, value)}", self.named(name),
                    "These settings are not modelled: plan from the file headers",
                )  # fmt: skip
        for inner in self._inside.values():
            inner.close_settings(harmless)

    def _repeats(self, name: str, value: object) -> bool:
        """Whether a field says again what was read, or is a window that is switched off.

        Raises BadInput where a second name says something else.
        """
        twin = next((n for n in same_meaning(name) if n in self._read and self.has(n)), "")
        if twin and self.values[twin] != value and not isinstance(value, Mapping | list | tuple):
            raise self._contradiction(name, twin)
        return bool(twin) or ("window" in name and self.values.get("use_sliding_window") is False)

    def _contradiction(self, name: str, twin: str) -> BadInput:
        """The error for two names of one meaning with two values."""
        told = f"is {shown(self.values[name])}, but {twin}, which means the same, is {shown(self.values[twin])}"
        return BadInput(told, self.named(name), "Correct the one that is wrong")

    def _meant(self, name: str, value: object) -> str:
        """The absent field that an unread one may be a misspelling of, "" for none."""
        own = classes.defaults_of(self.kind) if self.path else {}
        if name in own if own else classes.is_known(name):
            return ""
        near = (absent for absent in sorted(self._absent) if absent not in self.values)
        return next((absent for absent in near if misspelt(name, absent, bool(value))), "")


def _says_more(name: str, value: object, harmless: frozenset[str]) -> bool:
    """Whether an object or list of settings, or one inside it, is of an unknown name."""
    if name in FREE or not isinstance(value, Mapping | list | tuple) or not value:
        return False
    if name not in harmless:
        return True
    return isinstance(value, Mapping) and any(_says_more(str(k), v, harmless) for k, v in value.items())


def _why(meant: str, value: object) -> str:
    if meant:
        return f"{meant}, which it resembles, is missing"
    if isinstance(value, Mapping | list | tuple):
        return "what it holds may change tensors or caches"
    return "by its name it may change tensors or caches"


def shown(value: object) -> str:
    """A value for a message, never long."""
    text = repr(value) if not isinstance(value, Mapping | list | tuple) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def need_divides(fields: Fields, part: str, part_value: int, whole: str, whole_value: int) -> None:
    """Raise BadInput unless part_value divides whole_value."""
    if whole_value % part_value:
        raise BadInput(
            f"is {part_value}, expected a divisor of {whole} = {whole_value}",
            fields.named(part),
            "Check that the file is the model's own config.json",
        )


def need_length(fields: Fields, name: str, values: tuple[object, ...], layers: int) -> None:
    """Raise BadInput unless a per-layer list has one entry per layer."""
    if len(values) != layers:
        raise BadInput(
            f"has {len(values)} entries, expected one for each of {layers} layers",
            fields.named(name),
            "Check that the file is the model's own config.json",
        )
