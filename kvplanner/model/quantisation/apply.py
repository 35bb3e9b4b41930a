"""A scheme applied to a draft: which format each tensor group has, layer by layer, with as few blocks as possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvplanner.errors import NotModelled
from kvplanner.model.config.reading import Body, Mtp
from kvplanner.model.formats import WeightFormat
from kvplanner.model.quantisation.names import ANY_LAYER, covers
from kvplanner.model.quantisation.scheme import Rule, Scheme
from kvplanner.model.tensors import TensorGroup

Placed = tuple[int, Rule]
Blocks = tuple[tuple[tuple[TensorGroup, ...], ...], tuple[int, ...]]


def quantised_blocks(scheme: Scheme, bodies: Sequence[Body], body_of: Sequence[int]) -> Blocks:
    """The distinct blocks under a scheme: layers of one body differ only where a rule names single layers."""
    rules_of = _rules_by_layer(scheme, len(body_of))
    blocks: dict[tuple[TensorGroup, ...], int] = {}
    seen: dict[tuple[int, tuple[int, ...]], int] = {}
    numbers: dict[tuple[str, WeightFormat | None], int] = {}
    block_of: list[int] = []
    for layer, body in enumerate(body_of):
        named, general = rules_of[layer]
        key = (body, tuple(numbers.setdefault((r.matcher.text, r.format), len(numbers)) for _, r in named))
        at = seen.get(key)
        if at is None:
            rules = [rule for _, rule in sorted((*named, *general), key=lambda placed: placed[0])]
            groups = tuple(quantised(scheme, rules, g, f"layers.{layer}.") for g in bodies[body].tensors)
            at = seen[key] = blocks.setdefault(groups, len(blocks))
        block_of.append(at)
    return tuple(blocks), tuple(block_of)


def _rules_by_layer(scheme: Scheme, layers: int) -> list[tuple[list[Placed], list[Placed]]]:
    """For each layer, the rules that may treat it apart from others, and those that treat all layers alike.

    Each with its place in the scheme, because the first rule that covers a module wins.
    """
    general: list[Placed] = []
    named: list[list[Placed]] = [[] for _ in range(layers)]
    for place, rule in enumerate(scheme.rules):
        layer, text = rule.matcher.layer, rule.matcher.text
        if layer is not None and layer != ANY_LAYER:
            if layer < layers:
                named[layer].append((place, rule))
        elif layer == ANY_LAYER or "layers" not in text:
            general.append((place, rule))
        else:
            head = "" if text.startswith("re:") else text.partition("*")[0]
            for at in range(layers):
                start = f"layers.{at}."
                if start.startswith(head) or head.startswith(start):
                    named[at].append((place, _of_layer(rule, at, head)))
    return [(own, general) for own in named]


def _of_layer(rule: Rule, layer: int, head: str) -> Rule:
    """A rule that reads layer numbers out of names, told apart by layer where its beginning does not say it all."""
    if head:
        return rule
    matcher = rule.matcher._replace(text=f"{rule.matcher.text}\0{layer}")
    return Rule(matcher, rule.format, rule.experts)


def quantised_outside(scheme: Scheme, groups: Iterable[TensorGroup]) -> list[TensorGroup]:
    """Embeddings, head and towers under a scheme: only what a rule names changes."""
    general = tuple(rule for rule in scheme.rules if rule.matcher.layer is None)
    return [quantised(scheme, general, group, "") for group in groups]


def quantised_mtp(scheme: Scheme, mtp: Mtp, layers: int) -> list[TensorGroup]:
    """The tensors of one MTP block under a scheme: its names count on after the decoder's, or start anew."""
    names = tuple(name.format(index=layers, i=0) + "." for name in mtp.names)
    start_anew = next((name for name in names if name.startswith("mtp")), "")
    wanted = (None,) if start_anew == names[0] else (None, ANY_LAYER, layers)
    rules = tuple(r for r in scheme.rules if r.matcher.layer in wanted)
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
        if rule.kinds is not None and group.kind not in rule.kinds:
            continue
        if covers(rule.matcher, layer, names):
            if rule.experts not in (0, group.count) and group.kind == "experts":
                raise NotModelled(
                    f"names {rule.experts} of {group.count} experts ({layer}{group.path})",
                    "quantization_config",
                    "Experts of one layer in several formats are not modelled",
                )
            return group if rule.format is None else group._replace(format=rule.format)
    chosen: WeightFormat | None = scheme.default if group.kind in scheme.kinds else None
    if group.kind == "experts" and scheme.expert_format is not None:
        chosen = scheme.expert_format
    return group if chosen is None else group._replace(format=chosen)


def spellings(group: TensorGroup) -> tuple[str, ...]:
    """How a skip list may call a group: by its path, by what it is fused to, and expert by expert."""
    parent, _, last = group.path.rpartition(".")
    names = [group.path]
    if group.fused and parent:
        names.append(f"{parent}.{group.fused}")
    if group.kind == "experts":
        names.append(f"{parent}.0.{last}")
    return tuple(names)
