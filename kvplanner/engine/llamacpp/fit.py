"""--fit: how llama.cpp shortens the context and moves layers until the devices keep their margin.

After common_params_fit_impl of common/fit.cpp, llama.cpp 0.5.0-dev (October 2026): every trial is sized anew, and the
number of layers on a device is found by false position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kvplanner.engine.llamacpp.settings import Settings
from kvplanner.engine.llamacpp.sizes import Sizes
from kvplanner.record import NamedTuple

Measure = Callable[[Settings], Sizes]
_ALIGN: Final = 256
_ATTENTION: Final = r"ffn_(gate|up|gate_up|down).*"
_UP: Final = r"ffn_(gate|gate_up|down).*"
_GATE: Final = r"ffn_down.*"
_EXPERTS: Final = r"ffn_(up|down|gate_up|gate)_(ch|)exps"


class Fitted(NamedTuple):
    """What fitting left of the settings.

    context: tokens that it came to, None where it left them. layers: by GPU, with how many of them have their experts
    elsewhere; () where it moved none. refused: why it gave up, "" where it did not.
    """

    settings: Settings
    context: int | None = None
    layers: tuple[tuple[int, int], ...] = ()
    refused: str = ""


class _Share(NamedTuple):
    """Layers of one device: all of them, those without their experts, and what the first of these leaves elsewhere."""

    layers: int = 0
    partial: int = 0
    overflow: str = _EXPERTS
    to: str = "CPU"

    @property
    def full(self) -> int:
        return self.layers - self.partial


def fit(
    settings: Settings, measure: Measure, free: Sequence[int], *, trained: int, layers: int, experts: bool
) -> Fitted:
    """The settings as fitted. free: by GPU; trained: the model's own context; layers: without the output layer."""
    if settings.place.split_mode == "tensor":
        return Fitted(settings, refused="llama_params_fit is not implemented for SPLIT_MODE_TENSOR, abort")
    margins = settings.fit.target_bytes
    context = settings.context
    streams = 1 if context.unified else max(context.slots, 1)
    longest, shortest = trained * streams, settings.fit.shortest * streams
    if context.reducible:
        settings = settings._replace(context=context._replace(tokens=longest))
    full = measure(settings)
    if _has_room(_kept(full), free, margins) and _has_room(_used(full), free, margins):
        return Fitted(settings)
    shortened: int | None = None
    if context.reducible and longest > shortest and _lack_together(full, free, margins):
        settings, done = _shorten(settings, measure, free, full, (shortest, longest), layers=layers, experts=experts)
        shortened = settings.context.tokens
        if done:
            return Fitted(settings, shortened)
    refused = _refusal(settings, len(free))
    if refused:
        return Fitted(settings, shortened, refused=refused)
    filled = _Filling(settings, measure, free, layers, experts=experts).fill()
    return Fitted(_placed(settings, filled, layers), shortened, tuple((s.layers, s.partial) for s in filled))


def _kept(sizes: Sizes) -> list[int]:
    """What each device holds at least: without the compute buffer, whose size takes long to find."""
    return [sizes.kept(gpu) for gpu in range(sizes.how.gpus)]


def _has_room(used: Sequence[int], free: Sequence[int], margins: Sequence[int]) -> bool:
    return all(room - need >= margin for room, need, margin in zip(free, used, margins, strict=False))


def _lack_together(sizes: Sizes, free: Sequence[int], margins: Sequence[int]) -> bool:
    room = sum(free) - sum(margins)
    return room < sum(_kept(sizes)) or room < sum(_used(sizes))


def _used(sizes: Sizes) -> list[int]:
    """What llama.cpp believes each device to use: without allocating, it counts a copy too many in a pipeline."""
    extra = 16 * sizes.shape.tokens * sizes.shape.hidden if sizes.compute.pipelined else 0
    return [sizes.on_gpu(gpu) + (extra if gpu else 0) for gpu in range(sizes.how.gpus)]


def _shorten(
    settings: Settings, measure: Measure, free: Sequence[int], full: Sizes, ends: tuple[int, int], *, layers: int,
    experts: bool,
) -> tuple[Settings, bool]:  # fmt: skip
    """The context between its ends by what it costs, and whether that is all that is needed."""
    shortest, longest = ends
    devices = len(free)
    target = sum(free) - sum(settings.fit.target_bytes[:devices])
    if devices > 1:
        wanted = settings.place.gpu_layers
        count = min(layers if wanted is None else wanted, layers) or 1
        per_layer = sum(full.placed.device_bytes) // count
        target -= (devices + 1) * per_layer // (6 if experts else 2)
    least = settings._replace(context=settings.context._replace(tokens=shortest))
    bottom = measure(least)
    if target <= sum(_kept(bottom)):
        return least, False
    low, high = sum(_used(bottom)), sum(_used(full))
    if target <= low or high <= low:
        return least, False
    streams = 1 if settings.context.unified else max(settings.context.slots, 1)
    tokens = shortest + (longest - shortest) * (target - low) // (high - low)
    tokens = max(tokens - tokens % (_ALIGN * streams), shortest)
    return settings._replace(context=settings.context._replace(tokens=tokens)), devices == 1


def _refusal(settings: Settings, devices: int) -> str:
    """Why fitting stops before it moves layers, in the engine's words; "" where it goes on."""
    place = settings.place
    if place.gpu_layers is not None:
        return f"n_gpu_layers already set by user to {place.asked_layers}, abort"
    if devices > 1 and any(place.shares):
        return "model_params::tensor_split already set by user, abort"
    if devices > 1 and place.split_mode == "row":
        return "changing weight allocation for LLAMA_SPLIT_MODE_ROW not implemented, abort"
    if place.overrides or place.cpu_experts is not None:
        return "model_params::tensor_buft_overrides already set by user, abort"
    return ""


def _placed(settings: Settings, shares: Sequence[_Share], layers: int) -> Settings:
    """The settings with layers shared out so."""
    count = sum(share.layers for share in shares)
    rules: list[str] = []
    layer = layers + 1 - count
    for share in shares:
        layer += share.full
        for index in range(layer, layer + share.partial):
            first = index == layer
            rules.append(f"blk\\.{index}\\.{share.overflow if first else _EXPERTS}={share.to if first else 'CPU'}")
        layer += share.partial
    split = tuple(float(share.layers) for share in shares) if len(shares) > 1 else ()
    place = settings.place._replace(gpu_layers=count, shares=split, overrides=",".join(rules))
    return settings._replace(place=place)


def _first_of_last(shares: Sequence[_Share]) -> int:
    """The first of the devices with layers that stand without a gap at the end, their count where the last has none:
    then nothing is made full (common/fit.cpp, id_dense_start).
    """
    start = len(shares)
    while start and shares[start - 1].layers > 0:
        start -= 1
    return start


class _Filling:
    """Fills devices back to front with whole layers, then, where experts overflow, front to back with full ones."""

    def __init__(
        self, settings: Settings, measure: Measure, free: Sequence[int], layers: int, *, experts: bool
    ) -> None:
        self._settings = settings
        self._measure = measure
        self._layers = layers
        self._experts = experts
        self._count = len(free)
        margins = settings.fit.target_bytes
        self._targets = [room - margin for room, margin in zip(free, margins, strict=False)]

    def fill(self) -> list[_Share]:
        """The share of each device."""
        shares = [_Share() for _ in range(self._count)]
        for device in range(self._count - 1, -1, -1):
            shares = self._with_layers(shares, device)
        if not self._experts or self._surplus_without_experts() <= 0:
            return shares
        start = _first_of_last(shares)
        for device in range(self._count):
            if device > start or start == self._count:
                break
            shares, start = self._with_full(shares, device, start)
            shares, start = self._with_part(shares, device, start)
        return shares

    def _sizes(self, shares: Sequence[_Share]) -> Sizes:
        return self._measure(_placed(self._settings, shares, self._layers))

    def _surplus_without_experts(self) -> int:
        place = self._settings.place._replace(cpu_experts=0)
        sizes = self._measure(self._settings._replace(place=place))
        found = self._surplus(_kept(sizes))  # at the most
        return self._surplus(_used(sizes)) if found > 0 else found

    def _surplus(self, used: Sequence[int]) -> int:
        return sum(target - need for target, need in zip(self._targets, used, strict=True))

    def _with_layers(self, shares: list[_Share], device: int) -> list[_Share]:
        """As many whole layers (without experts) as a device holds, of those that none behind it has."""
        last = device == self._count - 1
        left = self._layers + 1 - sum(share.layers for share in shares[device + 1 :])

        def trial(count: int) -> list[_Share]:
            partial = (count - 1 if last and count else count) if self._experts else 0
            return [*shares[:device], shares[device]._replace(layers=count, partial=partial), *shares[device + 1 :]]

        if left <= 0:
            return shares
        return trial(self._most(lambda count: self._sizes(trial(count)), device, left))

    def _with_full(self, shares: list[_Share], device: int, start: int) -> tuple[list[_Share], int]:
        """As many full layers as a device holds, taken from those behind it that lack their experts."""
        spare = sum(share.partial for share in shares[start:])
        moved = self._most(lambda count: self._sizes(self._moved(shares, device, start, count)[0]), device, spare)
        return self._moved(shares, device, start, moved)

    def _most(self, measured: Callable[[int], Sizes], device: int, most: int) -> int:
        """The largest count, by false position, at which a device keeps its margin."""
        target = self._targets[device]
        full = measured(most)
        if most <= 1 and full.kept(device) > target:
            return 0
        high = _used(full)[device]
        if high <= target:
            return most
        low_count, high_count, low = 0, most, _used(measured(0))[device] if most > 1 else 0
        while high_count - low_count > 1:
            span = high_count - low_count
            step = span * (target - low) // (high - low) if high > low else 1
            step = min(max(step, 1), span - 1)
            sizes = measured(low_count + step)
            if step == 1 and sizes.kept(device) > target:
                break  # no count lies between: how much more it needs decides nothing
            need = _used(sizes)[device]
            if need <= target:
                low_count, low = low_count + step, need
            else:
                high_count, high = low_count + step, need
        return low_count

    def _moved(self, shares: list[_Share], device: int, start: int, count: int) -> tuple[list[_Share], int]:
        """Layers without experts from `start` on, as full ones on a device; and where those without now begin."""
        out = list(shares)
        left = count
        while start < self._count:
            taken = min(left, out[start].partial)
            out[start] = out[start]._replace(layers=out[start].layers - taken, partial=out[start].partial - taken)
            out[device] = out[device]._replace(layers=out[device].layers + taken)
            left -= taken
            if out[start].partial > 0 or start == self._count - 1:
                break
            start += 1
        return out, start

    def _with_part(self, shares: list[_Share], device: int, start: int) -> tuple[list[_Share], int]:
        """One layer more in part, where that fits: what it leaves goes to the next device or to the host."""
        last = device == self._count - 1
        if shares[start].layers <= (1 if last else 0) or not shares[start].partial:
            return shares, start
        out = list(shares)
        out[start] = out[start]._replace(layers=out[start].layers - 1, partial=out[start].partial - 1)
        after = start + 1 if out[start].partial == 0 and start < self._count - 1 else start
        to = "CPU" if last else f"CUDA{device + 1}"
        mine = out[device]
        best: list[_Share] | None = None
        for overflow in (_UP, _GATE) if self._holds(out, device, mine, _UP, to) else (_ATTENTION,):
            trial = self._part(out, device, mine, overflow, to)
            if not self._fits(trial, device):
                break
            best = trial
        return (best, after) if best is not None else (shares, start)

    def _part(self, out: list[_Share], device: int, mine: _Share, overflow: str, to: str) -> list[_Share]:
        more = mine._replace(layers=mine.layers + 1, partial=mine.partial + 1, overflow=overflow, to=to)
        return [*out[:device], more, *out[device + 1 :]]

    def _holds(self, out: list[_Share], device: int, mine: _Share, overflow: str, to: str) -> bool:
        return self._fits(self._part(out, device, mine, overflow, to), device)

    def _fits(self, shares: list[_Share], device: int) -> bool:
        sizes = self._sizes(shares)
        return self._keeps(_kept(sizes), device) and self._keeps(_used(sizes), device)

    def _keeps(self, used: Sequence[int], device: int) -> bool:
        after = device + 1
        return used[device] < self._targets[device] and (after == self._count or used[after] < self._targets[after])
