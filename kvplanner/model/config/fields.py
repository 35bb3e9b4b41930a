"""Typed reading of a config's fields: every field is checked, none is guessed, and what nobody read is known.

`null` means absent. An absent field takes a default only where its family has one, and then the name is kept
in `Fields.defaulted`, so that a plan can say what it assumed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kvplanner.errors import BadInput, NotModelled

MAX_LAYERS: Final = 4096
MAX_SIZE: Final = 1 << 40

# A key with one of these words may change tensors or caches: unread, it is an error and not a detail.
_STRUCTURAL: Final = (
    "layer", "head", "expert", "window", "state", "rank", "compress", "share", "mtp", "chunk", "latent", "block",
    "group", "hidden", "intermediate", "ffn", "conv", "bias", "gate", "qk_norm",
)  # fmt: skip
_NUMERIC: Final = (
    r"dropout|droput|_coef$|_eps$|epsilon|initializer|_loss|_std$|jitter_noise|rope_theta|_act$"
    r"|init_value$|init_scale$|xavier_init$|^layernorm_\w+_(alpha|beta)$"
)
# Keys with such a word that change neither, whatever their value.
_HARMLESS: Final = frozenset(
    {
        "hidden_act", "hidden_activation", "output_hidden_states", "chunk_size_feed_forward",
        "cross_attention_hidden_size", "pruned_heads", "layerdrop", "residual_in_fp32", "fp32_residual_connection",
        "num_beam_groups", "num_logits_to_keep",
    }
)  # fmt: skip


class Fields:
    """One dictionary of a config, and where it stands in the file."""

    __slots__ = ("_read", "defaulted", "path", "values", "where")

    def __init__(self, values: Mapping[str, object], where: str, path: str = "", defaulted: list[str] | None = None):
        self.values = values
        self.where = where
        self.path = path
        self.defaulted: list[str] = [] if defaulted is None else defaulted
        self._read: set[str] = set()

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
        return found

    def has(self, name: str) -> bool:
        """Whether the field is present and not null; does not count as reading it."""
        return self.values.get(name) is not None

    def noted(self, name: str) -> None:
        """Record that a field is absent (not null) and that its absence was given a meaning."""
        if name not in self.values:
            self.took_default(name)

    def bad(self, name: str, expected: str) -> BadInput:
        """The error for a field whose value cannot be right."""
        return BadInput(
            f"is {shown(self.values.get(name))}, expected {expected}",
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
        """A number, None when absent."""
        name, value = self.raw(*names)
        if not name:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(name, "a number")
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
        if not isinstance(value, list | tuple) or not all(
            isinstance(item, int) and not isinstance(item, bool) and low <= item <= high for item in value
        ):
            raise self.bad(name, f"a list of whole numbers from {low} to {high}")
        return tuple(value)

    def sub(self, *names: str) -> Fields | None:
        """A nested dictionary, None when absent. Its defaults are recorded with this one's."""
        name, value = self.raw(*names)
        if not name:
            return None
        if not isinstance(value, Mapping):
            raise self.bad(name, "an object")
        return Fields(value, self.where, f"{self.path}{name}.", self.defaulted)

    def took_default(self, name: str) -> None:
        """Record that an absent field took its family's default."""
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
        """Raise NotModelled for a field that may be structural and that nothing read.

        One that is switched off (false, null, zero, empty) changes nothing.
        """
        for name, value in self.values.items():
            if not value or name in self._read or name in _HARMLESS:
                continue
            if any(word in str(name) for word in _STRUCTURAL) and not re.search(_NUMERIC, str(name)):
                raise NotModelled(
                    f"is not understood (value {shown(value)}), and by its name it may change tensors or caches",
                    self.named(name),
                    "This variant of the architecture is not modelled",
                )


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
