"""What an index or pointers state of files that are not there: which tensors there are, and how many bytes in all.

A config may count what the files lack, and files hold what a config does not imply; where the stated total differs from
the config's by more than half a percent, it is right, and the plan says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kvplanner.catalog.stored import with_unexplained
from kvplanner.estimate import Estimate, Input, exact
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory
from kvplanner.record import NamedTuple
from kvplanner.source.checkpoint.names import take_apart, without_prefix

_DIFFERENT: Final = 0.005


class Stated(NamedTuple):
    """What is stated, and where.

    tensors: names of all tensors, empty where none are. total: bytes of all, None where not stated.
    around: bytes that the total may count beside tensors (headers).
    """

    source: str
    tensors: frozenset[str] = frozenset()
    total: int | None = None
    around: int = 0


class Corrected(NamedTuple):
    """Spec and tensors with what the files lack left out, the stored size, and what to say of them."""

    spec: ModelSpec
    inventory: Inventory
    stored: Estimate
    problems: tuple[str, ...]


def as_stated(spec: ModelSpec, implied: Inventory, stated: Stated) -> Corrected:
    """A config's tensors, corrected by what is stated of the files."""
    problems: list[str] = []
    places = {take_apart(name, spec.num_layers, spec.mtp_layers).place for name in stated.tensors}
    if stated.tensors and spec.mtp_layers and "mtp" not in places:
        without = tuple(group for group in implied.outside if group.place != "mtp")
        spec, implied = spec._replace(mtp_layers=0), implied._replace(outside=without)
        problems.append(f"{stated.source} names no multi-token-prediction block, which the config counts: left out")
    inputs = [Input("counted", implied.stored_bytes(), "B", "config.json, by rule")]
    if spec.tied_embeddings and _names_a_head(stated.tensors):
        copy = spec.vocab_size * spec.hidden_size * DTYPE_BYTES.get(spec.dtype, 2)
        inputs.append(Input("head stored again", copy, "B", stated.source))
    if stated.tensors and spec.towers and "tower" not in places:
        problems.append(f"{stated.source} names no encoder, which the config has: engines build it all the same")
        inputs.append(Input("encoders", -_towers(implied), "B", stated.source))
    counted = sum(int(part.value) for part in inputs)
    if stated.total is None:
        formula = " + ".join(f"{{{part.name}}}" for part in inputs)
        return Corrected(spec, implied, exact(counted, formula, *inputs), tuple(problems))
    return _weighed(spec, implied, stated, counted, problems)


def _weighed(spec: ModelSpec, implied: Inventory, stated: Stated, counted: int, problems: list[str]) -> Corrected:
    """The stated total against what is counted."""
    total = stated.total or 0
    more = total - counted
    if abs(more) > counted * _DIFFERENT + stated.around and _counts_elements(implied, total, stated):
        problems.append(f"{stated.source} says {total:,} bytes, which are 2 for each element: not used")
        size = exact(counted, "{counted}", Input("counted", counted, "B", "config.json, by rule"))
        return Corrected(spec, implied, size, tuple(problems))
    if abs(more) > total * _DIFFERENT + stated.around:
        than = "more" if more > 0 else "less"
        said = f"{stated.source} says {total:,} bytes in all, {abs(more) / counted:.1%} {than} than the config implies"
        problems.append(
            f"{said}: so much is planned on top, split evenly" if more > 0 else f"{said}: it is the size shown"
        )
        if more > 0:
            implied = with_unexplained(spec, implied, more)
    return Corrected(
        spec, implied, exact(total, "{stated}", Input("stated", total, "B", stated.source)), tuple(problems)
    )


def _counts_elements(implied: Inventory, total: int, stated: Stated) -> bool:
    """Whether an index counts two bytes for each element of a quantised model (DeepSeek-V3's does)."""
    every = 2 * implied.parameters(mtp=True)
    return bool(stated.tensors) and abs(total - every) <= every * _DIFFERENT


def _names_a_head(tensors: Iterable[str]) -> bool:
    return any(without_prefix(name) == "lm_head.weight" for name in tensors)


def _towers(implied: Inventory) -> int:
    return sum(group.stored_bytes for group in implied.outside if group.place == "tower")
