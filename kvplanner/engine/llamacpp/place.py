"""Which device holds which layer and which tensor.

Rules: load_tensors of llama-model.cpp, 0.5.0-dev (October 2026); the older counting of -ngl is that of b5466.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Protocol

from kvplanner.engine.llamacpp.tensors import Tensor, Tensors
from kvplanner.record import NamedTuple

HOST: Final = -1
# Architectures that create the output matrix before the embedding (load_tensors of Gemma 3n and 4): where both come to
# lie in one buffer, it holds the table twice.
OUTPUT_BEFORE_TABLE: Final = frozenset({"gemma3n", "gemma4"})
ALL_EXPERTS: Final = r"\.ffn_(up|down|gate_up|gate)_(ch|)exps"


class Override(NamedTuple):
    """A tensor override: device (HOST or an index) of every tensor whose name the pattern is found in."""

    pattern: str
    device: int


class Placement(NamedTuple):
    """layers[i]: the device of layer i, HOST for the host; output: of what follows the last layer."""

    layers: tuple[int, ...]
    output: int


def single(value: float) -> float:
    """The value as a 32-bit float, in which llama.cpp compares shares."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def split_points(shares: Sequence[float]) -> list[float]:
    """The running sums of the shares, normalised, in 32-bit floats."""
    sums: list[float] = []
    total = 0.0
    for share in shares:
        total = single(total + single(share))
        sums.append(total)
    return [single(value / total) if total else 1.0 for value in sums]


def place(layers: int, gpu_layers: int | None, shares: Sequence[float], *, output_first: bool = True) -> Placement:
    """Where each layer goes.

    gpu_layers: -ngl, None for all. shares: of the devices in use, in order; empty without a GPU.
    output_first: the output layer counts as the last layer, so that it is offloaded before any other.
    """
    count = layers + 1
    wanted = count if gpu_layers is None or gpu_layers < 0 else gpu_layers
    if not shares or wanted == 0:
        return Placement((HOST,) * layers, HOST)
    first = max(count - wanted, 0) if output_first else max(layers - wanted, 0)
    active = min(wanted, count)
    points = split_points(shares)

    def device(layer: int) -> int:
        if layer < first or layer - first >= active:
            return HOST
        return min(bisect_right(points, single((layer - first) / active)), len(shares) - 1)

    return Placement(tuple(device(layer) for layer in range(layers)), device(layers))


def overrides_of(text: str, devices: Sequence[str], hosts: Sequence[str]) -> tuple[Override, ...]:
    """`-ot` read: "PATTERN=BUFFER,...". Raises ValueError for a buffer that none of the devices has."""
    found: list[Override] = []
    for item in filter(None, text.split(",")):
        pattern, sign, buffer = item.rpartition("=")
        if not sign or not pattern:
            raise ValueError(f"{item!r} is not PATTERN=BUFFER")
        _check(pattern)
        if buffer in devices:
            found.append(Override(pattern, devices.index(buffer)))
        elif buffer in hosts:
            found.append(Override(pattern, HOST))
        else:
            raise ValueError(f"{buffer!r} is no buffer here; there are {', '.join((*hosts, *devices))}")
    return tuple(found)


def _check(pattern: str) -> None:
    """Raises ValueError for what is no regular expression. Of one that names layers by number the rest is compiled."""
    if _of_layers(pattern) is None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error


def expert_overrides(layers: int | None) -> tuple[Override, ...]:
    """`--cpu-moe` (None) and `--n-cpu-moe N`: the experts of all, or of the first N, layers stay on the host.

    llama.cpp has a pattern for each layer; one for all of them says the same and is tried once for a tensor.
    """
    if layers is None:
        return (Override(ALL_EXPERTS, HOST),)
    numbers = "|".join(map(str, range(layers)))
    return (Override(rf"blk\.({numbers})\.ffn_(up|down|gate_up|gate)_(ch|)exps", HOST),)


class Placed(NamedTuple):
    """Bytes and tensors by device.

    device_bytes[d]: of the model buffer of GPU d; host_bytes: of what stays on the host. host_names: by layer
    (-1 outside the layers), the names of the tensors on the host; strays: of those that an override put on another GPU
    than their layer, and on which. embedding: where it is looked up; output: where the matrix of the logits is.
    """

    device_bytes: tuple[int, ...]
    host_bytes: int
    host_names: Mapping[int, frozenset[str]]
    placement: Placement
    embedding: int
    output: int
    strays: Mapping[int, Mapping[str, int]] = {}


class Spread(Protocol):
    """Tensors that are divided among GPUs."""

    def key(self, layer: int, home: int) -> Hashable:
        """Layers of one block with the same key are divided alike."""

    def bytes(self, tensor: Tensor, layer: int, home: int) -> tuple[int, ...]:
        """What each GPU holds of a tensor that lies on the GPU `home`; layer -1 outside the layers."""


class _Rule(NamedTuple):
    """An override made ready. layers: the only ones whose tensors it can name, None for any; then `pattern` begins
    where a tensor's own name does."""

    layers: frozenset[int] | None
    pattern: re.Pattern[str]
    device: int


_OF_LAYERS: Final = re.compile(r"blk\\\.(?:(\d+)|\((\d+(?:\|\d+)*)\))\\\.([^\[]*)")


def _ready(rule: Override) -> _Rule:
    """The rule; one that names layers by number is tried on theirs alone."""
    found = _of_layers(rule.pattern)
    if found is None:
        return _Rule(None, re.compile(rule.pattern), rule.device)
    return _Rule(*found, rule.device)


@lru_cache(maxsize=4096)
def _of_layers(pattern: str) -> tuple[frozenset[int], re.Pattern[str]] | None:
    """The layers that a pattern names by number, and the rest of it; None for any other, and for what is not valid."""
    found = _OF_LAYERS.fullmatch(pattern)
    rest = _compiled(found[3]) if found is not None else None
    if found is None or rest is None:
        return None
    return frozenset(map(int, (found[1] or found[2]).split("|"))), rest


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """One pattern object for one text, so that layers under the same rules are known as such.

    None for what is not valid, or chooses outside its groups.
    """
    try:
        return None if _has_choice(pattern) else re.compile(pattern)
    except re.error:
        return None


def _has_choice(pattern: str) -> bool:
    """Whether a pattern chooses outside its groups: then what stands before it belongs to the first choice only."""
    depth = 0
    for mark in re.sub(r"\\.", "", pattern):
        depth += (mark == "(") - (mark == ")")
        if mark == "|" and not depth:
            return True
    return False


# What a layer puts where: bytes by GPU, bytes on the host, the names of what is there, and of what is on another GPU.
_Resident = tuple[Mapping[int, int], int, frozenset[str], Mapping[str, int]]


class _Loading:
    """Sums up where tensors go."""

    def __init__(self, devices: int, overrides: Sequence[Override], spread: Spread | None) -> None:
        self.sums = [0] * devices
        self.spread = spread
        self._parts: dict[tuple[int, Hashable], tuple[int, ...]] = {}
        self.host_bytes = 0
        self.host_names: dict[int, frozenset[str]] = {}
        self.strays: dict[int, dict[str, int]] = {}
        self._rules = [_ready(rule) for rule in overrides]
        self._by_layer: dict[int, list[_Rule]] = {}
        for rule in self._rules:
            for layer in rule.layers or ():
                self._by_layer.setdefault(layer, []).append(rule)
        self._anywhere = any(rule.layers is None for rule in self._rules)

    def _of(self, layer: int) -> Sequence[_Rule]:
        """The rules that may name a layer's tensors (-1: those outside the layers), in order."""
        if not self._anywhere:
            return self._by_layer.get(layer, ())
        return [rule for rule in self._rules if rule.layers is None or layer in rule.layers]

    def device(self, tensor: Tensor, layer: int, default: int, rules: Sequence[_Rule] | None = None) -> int:
        """The first override whose pattern is found in the name wins."""
        name = tensor.name
        whole = name if layer < 0 else f"blk.{layer}.{name}"
        for rule in self._of(layer) if rules is None else rules:
            if rule.pattern.search(whole) if rule.layers is None else rule.pattern.match(name):
                return rule.device
        return default

    def put(self, tensor: Tensor, layer: int, default: int, rules: Sequence[_Rule] | None = None) -> int:
        """Loads a tensor that lies outside the layers (-1) or is subject to overrides."""
        at = self.device(tensor, layer, default, rules)
        if at == HOST:
            self.host_bytes += tensor.host_bytes
            self.host_names[layer] = self.host_names.get(layer, frozenset()) | {tensor.name}
        elif self.spread is None:
            self.sums[at] += tensor.device_bytes
            if at != default:
                self.strays.setdefault(layer, {})[tensor.name] = at
        else:
            self.add(self.spread.bytes(tensor, layer, at))
        return at

    def add(self, sizes: Sequence[int]) -> None:
        """Bytes for each GPU."""
        for gpu, size in enumerate(sizes):
            self.sums[gpu] += size

    def layers(self, tensors: Tensors, placement: Placement) -> None:
        """Loads the layers; equal ones under the same rules are summed once."""
        known: dict[tuple[object, ...], _Resident] = {}
        for layer, block in enumerate(tensors.layers):
            home, rules = placement.layers[layer], self._of(layer)
            if self._anywhere or (rules and self.spread is not None):
                for tensor in block:
                    self.put(tensor, layer, home, rules)
                continue
            if self.spread is not None and home != HOST:
                self.add(self._divided(block, layer, home, self.spread))
                continue
            key = (id(block), home, *((rule.pattern, rule.device) for rule in rules))
            found = known.get(key)
            if found is None:
                found = known[key] = self._resident(block, layer, home, rules)
            for gpu, size in found[0].items():
                self.sums[gpu] += size
            self.host_bytes += found[1]
            if found[2]:
                self.host_names[layer] = found[2]
            if found[3]:
                self.strays[layer] = dict(found[3])

    def _resident(self, block: Sequence[Tensor], layer: int, home: int, rules: Sequence[_Rule]) -> _Resident:
        on_gpus: dict[int, int] = {}
        on_host, names = 0, []
        strays: dict[str, int] = {}
        for tensor in block:
            at = self.device(tensor, layer, home, rules) if rules else home
            if at == HOST:
                on_host += tensor.host_bytes
                names.append(tensor.name)
            else:
                on_gpus[at] = on_gpus.get(at, 0) + tensor.device_bytes
                if at != home:
                    strays[tensor.name] = at
        return on_gpus, on_host, frozenset(names), strays

    def _divided(self, block: tuple[Tensor, ...], layer: int, home: int, spread: Spread) -> tuple[int, ...]:
        """A layer's bytes on each GPU, once for layers that are divided alike."""
        key = id(block), spread.key(layer, home)
        found = self._parts.get(key)
        if found is None:
            parts = (spread.bytes(tensor, layer, home) for tensor in block)
            found = self._parts[key] = tuple(map(sum, zip(*parts, strict=True)))
        return found


def load(
    tensors: Tensors, placement: Placement, devices: int, overrides: Sequence[Override] = (), *,
    architecture: str = "", spread: Spread | None = None,
) -> Placed:  # fmt: skip
    """Every tensor on its device. architecture: as GGUF names it, for what it does otherwise.

    spread: divides tensors among the GPUs, whichever of them the placement names.
    """
    loading = _Loading(devices, overrides, spread)
    embedding = HOST
    for tensor in tensors.inputs:
        at = loading.put(tensor, -1, HOST)
        if tensor.name == "token_embd.weight":
            embedding = at
    output = placement.output
    for tensor in tensors.outputs:
        at = loading.put(tensor, -1, placement.output)
        output = at if tensor.name == "output.weight" else output
    tied = tensors.tied
    output = output if tied is None else loading.device(tied, -1, placement.output)
    if tied is not None and (architecture in OUTPUT_BEFORE_TABLE or output != embedding):
        loading.put(tied, -1, placement.output)
    for tensor in tensors.first:
        loading.put(tensor, -1, placement.layers[0])
    for device in sorted(set(tensors.table_devices(placement.layers, architecture))):
        for tensor in tensors.tables:
            loading.put(tensor, -1, device)
    loading.layers(tensors, placement)
    held = tuple(loading.sums)
    return Placed(held, loading.host_bytes, loading.host_names, placement, embedding, output, loading.strays)
