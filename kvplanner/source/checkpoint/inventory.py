"""The exact inventory: what the file headers hold, arranged by the groups that the config implies.

The config's groups know how engines split and join a matrix; the headers know what is stored. Both are matched by
module path; where they disagree the header wins and the disagreement is told.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final, Literal

from kvplanner.model.formats import WeightFormat
from kvplanner.model.tensors import Inventory, Place, TensorGroup
from kvplanner.record import NamedTuple
from kvplanner.source.checkpoint import names as tensor_names
from kvplanner.source.checkpoint.kinds import kind_of, split_of
from kvplanner.source.checkpoint.modules import Module, Stored, content_of
from kvplanner.source.checkpoint.pairing import Pair, elements_of, groups_by_path, pair
from kvplanner.units import format_count

_MAX_NAMES: Final = 3


class Built(NamedTuple):
    """An inventory and what is odd about it.

    left_out_bytes: on disk, but never in an engine's memory, and so not in the inventory. contradictions: those of
    the problems that leave open what an engine would do with the model.
    """

    inventory: Inventory
    problems: tuple[str, ...]
    left_out_bytes: int = 0
    contradictions: tuple[str, ...] = ()


def build(stored: Stored, expected: Inventory | None, *, complete: bool) -> Built:
    """The inventory of a checkpoint.

    expected: what the config implies, None when the architecture is unknown. complete: no file is missing; only
    then is the inventory exact and a group without tensors an oddity.
    """
    if expected is None:
        return _without_config(stored, complete)
    notes = _Notes()
    blocks: dict[tuple[int, int], int] = {}
    bodies: list[_Matched] = []
    block_of: list[int] = []
    for layer, block in enumerate(expected.block_of):
        body = stored.body_of.get(layer, -1)
        key = (body, block)
        if key not in blocks:
            held = stored.bodies[body] if body >= 0 else ()
            bodies.append(_matched(held, expected.blocks[block], f"layer {layer}: ", notes, complete))
            blocks[key] = len(bodies) - 1
        block_of.append(blocks[key])
    layers = _layer_count(stored, expected, complete)
    if layers != len(expected.block_of):
        notes.contradict(f"The files hold {layers} layers, the config tells {len(expected.block_of)}")
    outside = _outside(stored, expected.outside, notes, complete)
    left_out = outside.left_out_bytes + sum(bodies[block].left_out_bytes for block in block_of)
    inventory = Inventory(tuple(body.groups for body in bodies), tuple(block_of), outside.groups, exact=complete)
    return Built(inventory, notes.texts(), left_out, tuple(notes.contradictions))


def _layer_count(stored: Stored, expected: Inventory, complete: bool) -> int:
    """The layers that the files hold: more than the config tells, or fewer when no file is missing."""
    told = len(expected.block_of)
    beyond = sum(layer >= told for layer in stored.body_of)
    absent = [n for n, block in enumerate(expected.block_of) if expected.blocks[block] and n not in stored.body_of]
    return told + beyond - (len(absent) if complete else 0)


class _Matched(NamedTuple):
    """Groups as the files store them, and the bytes of what no engine loads."""

    groups: tuple[TensorGroup, ...]
    left_out_bytes: int


class _Notes:
    """Oddities, each kind told once with its first names and how many more there are."""

    def __init__(self) -> None:
        self._plain: list[str] = []
        self._listed: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.contradictions: list[str] = []

    def contradict(self, text: str) -> None:
        self.contradictions.append(text)
        self._plain.append(text)

    def add(self, text: str) -> None:
        self._plain.append(text)

    def name(self, kind: str, name: str) -> None:
        self._listed[kind][name] = None

    def texts(self) -> tuple[str, ...]:
        texts = list(self._plain)
        for kind, names in self._listed.items():
            first = ", ".join(list(names)[:_MAX_NAMES])
            more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            texts.append(f"{kind}: {first}{more}")
        return tuple(texts)


_NOT_IMPLIED: Final = "Tensors in the files that the config does not imply"
_NOT_STORED: Final = "Tensors that the config implies and no file holds"
_OTHER_SHAPE: Final = "Shapes that differ from the config's (the files' are used)"
_OTHER_FORMAT: Final = "Stored otherwise than the config says (the files' format is used)"


# Position tables that old checkpoints store and every engine computes anew.
_COMPUTED: Final = re.compile(r"(?:^|\.)(?:rotary_emb\.\w+|rotary_pos_emb\.\w+|masked_bias|position_ids|attn\.bias)$")


def _matched(
    held: tuple[Module, ...], groups: tuple[TensorGroup, ...], where: str, notes: _Notes, complete: bool
) -> _Matched:
    """The groups of one layer body, or of what lies outside the layers, as the files store them."""
    wanted = groups_by_path(groups)
    loaded = [module for module in held if not _is_not_loaded(module.path, wanted)]
    found = pair(loaded, wanted)
    result: list[TensorGroup] = []
    for one in found.pairs:
        result += _as_stored(one, where, notes, complete)
    for path, own in found.unheld.items():
        if complete:
            notes.name(_NOT_STORED, where + path)
        else:
            result += own
    place: Place = "layer" if where else "last"
    for path, left in found.unknown.items():
        notes.name(_NOT_IMPLIED, where + path)
        result += [_placed(_by_name_rules(module, place)) for module in left]
    left_out = sum(module.bytes for module in held) - sum(module.bytes for module in loaded)
    return _Matched(tuple(result), left_out)


def _is_not_loaded(path: str, wanted: dict[str, tuple[TensorGroup, ...]]) -> bool:
    """Position tables, and the biases of zeros that GPTQ's writers add to every matrix."""
    if path in wanted:
        return False
    matrix = wanted.get(path.removesuffix(".bias")) if path.endswith(".bias") else None
    return bool(_COMPUTED.search(path)) or (matrix is not None and matrix[0].format.name == "gptq")


def _as_stored(found: Pair, where: str, notes: _Notes, complete: bool) -> tuple[TensorGroup, ...]:
    """The config's groups of a pair with the bytes of the files; groups of the files' own where shapes differ."""
    groups, modules = found.groups, found.modules
    stored_bytes = sum(module.bytes for module in modules)
    if stored_bytes == sum(group.stored_bytes for group in groups):
        # Also a packing that the header alone does not explain, and that the config's format accounts for exactly.
        return groups
    elements = elements_of(modules)
    implied = sum(group.elements for group in groups)
    if not complete and elements < implied:
        return groups  # some of its experts or parts lie in a missing file
    first = groups[0]
    if elements != implied:
        notes.name(_OTHER_SHAPE, f"{where}{found.path} {_shapes(modules)}")
        if first.kind == "attention" and len(first.shape) == 2 and _is_plain(modules) and not notes.contradictions:
            notes.contradictions.append(
                f"{where}{found.path} is {_shapes(modules)} in the files, and the config implies another size: "
                "what an engine would cache for each token is not known"
            )
        return tuple(_like(first, module) for module in modules)
    formats = {content_of(module.parts)[1] for module in modules}
    if len({format_.name for format_ in formats} - {group.format.name for group in groups}):
        notes.name(_OTHER_FORMAT, f"{found.path} ({', '.join(sorted(f.name for f in formats))})")
    if len(formats) == 1:
        again = tuple(group._replace(format=next(iter(formats))) for group in groups)
        if sum(group.stored_bytes for group in again) == stored_bytes:
            return again
    if len(groups) == 1 or len(modules) > 1:
        return tuple(_like(first, module) for module in modules)
    return _spread(groups, modules[0], stored_bytes)


def _is_plain(modules: tuple[Module, ...]) -> bool:
    """Whether a header alone tells the shape: nothing is packed."""
    return all(content_of(module.parts)[1].bits >= 8 for module in modules)


def _spread(groups: tuple[TensorGroup, ...], module: Module, stored_bytes: int) -> tuple[TensorGroup, ...]:
    """One stored matrix over several groups: payload by elements, the scales' remainder with the first group."""
    format_ = content_of(module.parts)[1]
    plain = WeightFormat(format_.name, format_.bits)
    again = [group._replace(format=plain) for group in groups]
    rest = stored_bytes - sum(group.stored_bytes for group in again)
    first = again[0]
    if rest < 0 or rest % first.count or len(first.shape) < 2:
        return (_like(groups[0], module),)
    packed = WeightFormat(format_.name, format_.bits, "tensor", extra_bytes=rest // first.count)
    return (first._replace(format=packed), *again[1:])


def _like(group: TensorGroup, module: Module) -> TensorGroup:
    """A group of the files' own shape that is split as `group` is."""
    shape, format_ = content_of(module.parts)
    return group._replace(shape=shape, count=module.number, format=format_)


def _shapes(found: tuple[Module, ...]) -> str:
    return " ".join(
        f"[{' × '.join(format_count(size) for size in content_of(m.parts)[0])}]" for m in found[:_MAX_NAMES]
    )


def _by_name_rules(module: Module, place: Place) -> TensorGroup:
    """A group for a module that no config group explains."""
    rule_place: tensor_names.Place = (
        "tower" if place == "tower" else "mtp" if place == "mtp" else "layer" if place == "layer" else "outside"
    )
    kind = kind_of(rule_place, module.path)
    shard, fused = split_of(kind, module.path)
    if len(content_of(module.parts)[0]) < 2 and shard == "row":
        shard = "replicated"
    shape, format_ = content_of(module.parts)
    return TensorGroup(module.path, kind, shape, module.number, shard, format_, 1, fused, place)


_LUMPS: Final[tuple[Literal["tower", "mtp"], ...]] = ("tower", "mtp")


def _outside(stored: Stored, groups: tuple[TensorGroup, ...], notes: _Notes, complete: bool) -> _Matched:
    """What lies outside the layers. A head that is stored although it is tied is on disk only."""
    main = tuple(group for group in groups if group.place not in _LUMPS)
    held = stored.outside.get("outside", ())
    copies = 0
    if not any(_is_head(group.path) for group in main):
        copies = sum(module.bytes for module in held if _is_head(module.path))
        held = tuple(module for module in held if not _is_head(module.path))
    if copies:
        notes.add(f"The head is tied to the embedding, and yet stored: {copies:,} bytes on disk that no engine loads")
    result = _matched(held, main, "", notes, complete)
    lumps: tuple[TensorGroup, ...] = ()
    for place in _LUMPS:
        wanted = tuple(group for group in groups if group.place == place)
        lumps += _lump(stored.outside.get(place, ()), wanted, place, notes, complete)
    return _Matched(result.groups + lumps, result.left_out_bytes + copies)


def _is_head(path: str) -> bool:
    return path in ("lm_head", "lm_head.bias")


def _placed(group: TensorGroup) -> TensorGroup:
    """Where a group outside the layers lives, for one that the config did not place."""
    return group._replace(place="first") if group.kind == "embedding" and group.place == "last" else group


def _lump(
    held: tuple[Module, ...],
    groups: tuple[TensorGroup, ...],
    place: Literal["tower", "mtp"],
    notes: _Notes,
    complete: bool,
) -> tuple[TensorGroup, ...]:
    """Towers and multi-token-prediction blocks: the config's groups where they hold the files' bytes."""
    stored_bytes = sum(module.bytes for module in held)
    implied_bytes = sum(group.stored_bytes for group in groups)
    if stored_bytes == implied_bytes or (not held and not complete):
        return groups
    what = "encoder towers" if place == "tower" else "multi-token-prediction blocks"
    if not complete and stored_bytes < implied_bytes:
        return groups
    notes.add(
        f"The files hold {stored_bytes:,} bytes of {what}, the config implies {implied_bytes:,} (the files' are used)"
    )
    known = {_ending(group.path): group for group in groups}
    return tuple(
        _like(known[_ending(module.path)], module) if _ending(module.path) in known else _by_name_rules(module, place)
        for module in held
    )


def _ending(path: str) -> tuple[str, ...]:
    """The last words of a path: what is before them is spelled in several ways."""
    return tuple(path.removesuffix(".bias").rsplit(".", 2)[-2:]) + (("bias",) if path.endswith(".bias") else ())


def _without_config(stored: Stored, complete: bool) -> Built:
    """An inventory by name rules alone."""
    notes = _Notes()
    layers = max(stored.body_of, default=-1) + 1
    absent = [layer for layer in range(layers) if layer not in stored.body_of]
    bodies = [tuple(_by_name_rules(module, "layer") for module in body) for body in stored.bodies]
    if absent:
        bodies.append(())
    block_of = tuple(stored.body_of.get(layer, len(bodies) - 1) for layer in range(layers))
    outside: list[TensorGroup] = []
    for place, held in stored.outside.items():
        wanted: Place = "tower" if place == "tower" else "mtp" if place == "mtp" else "last"
        outside += [_placed(_by_name_rules(module, wanted)) for module in held]
    unknown = sorted(
        {g.path for body in bodies for g in body if g.kind == "other"} | {g.path for g in outside if g.kind == "other"}
    )
    for path in unknown:
        notes.name("Tensors of unknown kind", path)
    return Built(Inventory(tuple(bodies), block_of, tuple(outside), exact=complete), notes.texts())
