"""What a repository stores: its tensors as the record says they are, and their size, published or counted.

A config may count what the files lack (a multi-token-prediction block, a tower), and files hold what no engine loads
(the head of a tied model once more). Where a published size differs from what the config implies, the published one is
right, and a plan says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvplanner.estimate import Estimate, Input, banded, exact
from kvplanner.model.formats import DTYPE_BYTES, dense
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory, TensorGroup

# Published sizes count headers and tokenizer files as well: so much more is no difference.
_FILES_SHARE: Final = 1000
_FILES_BYTES: Final = 20_000_000
# From this part on, tensors that the config does not explain are planned as well.
_UNEXPLAINED_SHARE: Final = 0.005
# Rows that any number of GPUs splits evenly.
_EVEN: Final = 1024 * 3 * 5 * 7
UNEXPLAINED: Final = "not explained by the config"


def as_stored(
    facts: Mapping[str, Any], spec: ModelSpec, inventory: Inventory
) -> tuple[ModelSpec, Inventory, tuple[str, ...]]:
    """Spec and tensors as the files hold them, and what is odd about that."""
    if "mtp" in facts.get("absent", ()):
        outside = tuple(group for group in inventory.outside if group.place != "mtp")
        spec, inventory = spec._replace(mtp_layers=0), inventory._replace(outside=outside)
    published, so_many = _published(facts), counted(facts, inventory)
    if published is None:
        return _by_count(facts, spec, inventory, so_many)
    more = published[0] - so_many
    if abs(more) <= _grain(published):
        return spec, inventory, ()
    share = f"{abs(more) / so_many:.1%}"
    than = "more" if more > 0 else "less"
    said = f"The published size is {published[0]:,} bytes, {share} {than} than the config implies"
    if more < _UNEXPLAINED_SHARE * published[0]:
        return spec, inventory, (f"{said}; it is the size shown",)
    return spec, with_unexplained(spec, inventory, more), (f"{said}: so much is planned on top, split evenly",)


def logical(inventory: Inventory) -> int:
    """Logical elements of the main model, tensors that nobody described not counted."""
    unexplained = sum(group.elements for group in inventory.outside if group.path == UNEXPLAINED)
    return inventory.parameters() - unexplained


def with_unexplained(spec: ModelSpec, inventory: Inventory, size_bytes: int) -> Inventory:
    """The inventory with a group for tensors that nobody described, in the model's dtype."""
    form = dense(spec.dtype if spec.dtype in DTYPE_BYTES else "bfloat16")
    rows = size_bytes * 8 // int(form.bits) // _EVEN * _EVEN
    group = TensorGroup(UNEXPLAINED, "other", (rows, 1), 1, "column", form, place="last")
    return inventory._replace(outside=(*inventory.outside, group))


def stored_size(
    facts: Mapping[str, Any], quantization: str | None, inventory: Inventory, *, own: bool = True
) -> Estimate:
    """Bytes of a repository's tensors: published where known, else counted by the formats' layout rules.

    own: the record is this repository's; one of the same element count stores the same tensors, and has a size of its
    own.
    """
    total = facts.get("bytes") if own else None
    if total is not None:
        return exact(int(total), "{published}", Input("published", int(total), "B", facts["bytes_source"]))
    so_many, inputs = _counted(facts, inventory)
    formula = " + ".join(f"{{{part.name}}}" for part in inputs if int(part.value) > 0)
    formula += "".join(f" − {{{part.name}}}" for part in inputs if int(part.value) < 0)
    published = _published(facts) if own else None
    if published is not None and abs(published[0] - so_many) > _grain(published):
        size, grain, source = published
        part = Input("published", size, "B", source)
        return banded(size, size - grain, size + grain, "analytic", "{published}", part)
    shown = [part._replace(value=abs(int(part.value))) for part in inputs]
    if quantization is None and str(facts.get("agreement", "")).startswith("exact"):
        return exact(so_many, formula, *shown)
    return banded(so_many, so_many - so_many // 1000, so_many + so_many // 1000, "analytic", formula, *shown)


def _by_count(
    facts: Mapping[str, Any], spec: ModelSpec, inventory: Inventory, so_many: int
) -> tuple[ModelSpec, Inventory, tuple[str, ...]]:
    """Elements that are published and that the config does not imply, at the average width of the others."""
    more = (facts.get("params") or 0) - inventory.parameters(mtp=True)
    doubted = str(facts.get("agreement", "")).startswith("differs") and facts.get("bytes") is None
    if not doubted or more < _UNEXPLAINED_SHARE * inventory.parameters(mtp=True):
        return spec, inventory, ()
    size = so_many * more // inventory.parameters(mtp=True)
    said = f"{more:,} of the {facts['params']:,} published elements are not implied by the config: "
    return spec, with_unexplained(spec, inventory, size), (f"{said}{size:,} bytes are planned for them, split evenly",)


def counted(facts: Mapping[str, Any], inventory: Inventory) -> int:
    """Bytes that a repository stores by the formats' layout rules, whatever is published."""
    return _counted(facts, inventory)[0]


def _counted(facts: Mapping[str, Any], inventory: Inventory) -> tuple[int, list[Input]]:
    """Bytes of the tensors, with copies that no engine loads and without what the files lack."""
    inputs = [Input("counted", inventory.stored_bytes(), "B", "config.json, every tensor in its stored format")]
    copies, what = facts.get("extra", (0, ""))
    if copies and not what.startswith("MTP"):
        dtype = facts["config"].get("torch_dtype") or facts["config"].get("dtype") or "bfloat16"
        size = copies * DTYPE_BYTES[dtype.removeprefix("torch.")]
        inputs.append(Input("extra", size, "B", f"element count: {what}"))
    if "tower" in facts.get("absent", ()):
        towers = sum(group.stored_bytes for group in inventory.outside if group.place == "tower")
        inputs.append(Input("towers", -towers, "B", "the files hold none, and engines build them all the same"))
    return sum(int(part.value) for part in inputs), inputs


def _published(facts: Mapping[str, Any]) -> tuple[int, int, str] | None:
    """A published size that is rounded: bytes, by how much, and who says so."""
    if facts.get("bytes") is not None or "size" not in facts:
        return None
    size, grain, source = facts["size"]
    return int(size), int(grain), source


def _grain(published: tuple[int, int, str]) -> int:
    """How far a published size may lie from the tensors' bytes; a rounded one counts headers and tokenizers too."""
    size, grain, _ = published
    return grain + size // _FILES_SHARE + (_FILES_BYTES if grain else 0)
