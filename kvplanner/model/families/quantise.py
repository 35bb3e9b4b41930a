"""A scheme applied to a draft: which format each tensor group has, layer by layer, with as few blocks as possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvplanner.errors import NotModelled
from kvplanner.model.families.names import covers
from kvplanner.model.families.reading import Body, Mtp
from kvplanner.model.families.schemes import Rule, Scheme
from kvplanner.model.formats import WeightFormat
from kvplanner.model.tensors import TensorGroup

Blocks = tuple[tuple[tuple[TensorGroup, ...], ...], tuple[int, ...]]


def quantised_blocks(scheme: Scheme, bodies: Sequence[Body], body_of: Sequence[int]) -> Blocks:
    """The distinct blocks under a scheme: layers of one body differ only where a rule names single layers."""
    general = tuple(rule for rule in scheme.rules if rule.matcher.layer is None)
    by_layer: dict[int, list[Rule]] = {}
    for rule in scheme.rules:
        if rule.matcher.layer is not None:
            by_layer.setdefault(rule.matcher.layer, []).append(rule)
    numbered = any("layers" in rule.matcher.text for rule in general) or any(
        rule.matcher.text.startswith("re:") and "layers" in rule.matcher.text for rule in general
    )
    blocks: list[tuple[TensorGroup, ...]] = []
    seen: dict[object, int] = {}
    by_content: dict[tuple[TensorGroup, ...], int] = {}
    block_of: list[int] = []
    for layer, body in enumerate(body_of):
        own = tuple(by_layer.get(layer, ()))
        key = (body, own, layer if numbered else -1)
        at = seen.get(key)
        if at is None:
            groups = tuple(quantised(scheme, own + general, g, f"layers.{layer}.") for g in bodies[body].tensors)
            at = by_content.setdefault(groups, len(blocks))
            if at == len(blocks):
                blocks.append(groups)
            seen[key] = at
        block_of.append(at)
    return tuple(blocks), tuple(block_of)


def quantised_outside(scheme: Scheme, groups: Iterable[TensorGroup]) -> list[TensorGroup]:
    """Embeddings, head and towers under a scheme: only what a rule names changes."""
    general = tuple(rule for rule in scheme.rules if rule.matcher.layer is None)
    return [quantised(scheme, general, group, "") for group in groups]


def quantised_mtp(scheme: Scheme, mtp: Mtp, layers: int) -> list[TensorGroup]:
    """The tensors of one MTP block under a scheme: its names count on after the decoder's, or start anew."""
    names = tuple(name.format(index=layers, i=0) + "." for name in mtp.names)
    rules = tuple(r for r in scheme.rules if r.matcher.layer in (None, layers))
    start_anew = next((name for name in names if name.startswith("mtp")), "")
    groups: list[TensorGroup] = []
    for group in mtp.body:
        stays = bool(start_anew) and any(
            r.format is None and covers(r.matcher, start_anew, spellings(group))
            for r in rules
            if r.matcher.layer is None
        )
        groups.append(group if stays else quantised(scheme, rules, group, names[0]))
    return groups


def quantised(scheme: Scheme, rules: Sequence[Rule], group: TensorGroup, layer: str) -> TensorGroup:
    """One group in the format that the scheme gives it."""
    if len(group.shape) != 2 or group.kind in ("norm", "other"):
        return group
    names = spellings(group)
    for rule in rules:
        if covers(rule.matcher, layer, names):
            if rule.experts not in (0, group.count) and group.kind == "experts":
                raise NotModelled(
                    f"names {rule.experts} of {group.count} experts ({layer}{group.path})",
                    "quantization_config",
                    "Experts of one layer in several formats are not modelled",
                )
            return group if rule.format is None else replace(group, format=rule.format)
    chosen: WeightFormat | None = scheme.default if group.kind in scheme.kinds else None
    if group.kind == "experts" and scheme.expert_format is not None:
        chosen = scheme.expert_format
    return group if chosen is None else replace(group, format=chosen)


def spellings(group: TensorGroup) -> tuple[str, ...]:
    """How a skip list may call a group: by its path, by what it is fused to, and expert by expert."""
    parent, _, last = group.path.rpartition(".")
    names = [group.path]
    if group.fused and parent:
        names.append(f"{parent}.{group.fused}")
    if group.kind == "experts":
        names.append(f"{parent}.0.{last}")
    return tuple(names)
