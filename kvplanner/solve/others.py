"""Other models and machines for a request: quantised sisters, what-if formats, and more GPUs of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kvplanner.catalog import gpus, models, naming
from kvplanner.engine.command import role_option
from kvplanner.engine.lever import Loss
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import PlannerError
from kvplanner.gpu.names import short_name
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model
from kvplanner.model.quantisation import elsewhere
from kvplanner.solve.candidate import Candidate
from kvplanner.solve.change import GPUS, MODEL, WEIGHT_FORMAT, Change
from kvplanner.solve.remedies import More
from kvplanner.units import format_bytes

# A sister stores the same weights: its elements differ by scales and the like at most.
_ALIKE: Final = 0.02
_SMALLER: Final = 0.92
_MOST_SISTERS: Final = 3
_FORMATS: Final = ("FP8", "GGUF Q8_0", "AWQ 4-bit", "GGUF Q4_K_M")
_MOST_GPUS: Final = 64
# GPUs that together are smaller than this part of what is stored hold no such model, whatever else is changed.
_HELD: Final = 0.8


# Models of this machine that are made from the one of an id, each with what opens it.
Local = Callable[[str], Iterator[tuple[str, Model]]]


def others(request: PlanRequest, plan: Plan) -> Iterator[tuple[Candidate, ...]]:
    """Groups of candidates, the mildest of each first: of a group the first that does is meant."""
    return _others(request, plan, lambda _: iter(()))


def others_with(local: Local) -> More:
    """The same, and before what the catalogue knows what lies on this machine."""
    return lambda request, plan: _others(request, plan, local)


def _others(request: PlanRequest, plan: Plan, local: Local) -> Iterator[tuple[Candidate, ...]]:
    if plan.verdict.failing is not None and _checked_early(request, plan):
        return  # neither another model nor more GPUs free the memory that others hold
    here = tuple(_local_sisters(request, local))
    if here:
        yield here
    sisters = tuple(_sisters(request))
    if sisters:
        yield sisters
    else:
        yield tuple(_formats(request))
    needs_more = plan.limits.limited_by == "kv_cache" or not plan.sure
    given = len(request.machine.devices)
    if needs_more and (given < 2 or len(plan.devices) >= given):  # idle ones come first
        yield tuple(_machines(request, plan))


def _checked_early(request: PlanRequest, plan: Plan) -> bool:
    rules = engine(request.engine).stages
    return any(rule.against == "free" and rule.stage == plan.stage for rule in rules)


def _local_sisters(request: PlanRequest, local: Local) -> Iterator[Candidate]:
    """Smaller files of the same model on this machine, the largest first, by what they store."""
    model, chosen = request.model, engine(request.engine)
    if not model.stored or request.weight_format:
        return
    found = [(text, sister) for text, sister in local(model.id) if sister.stored and sister != model
             and sister.stored.value <= model.stored.value * _SMALLER]  # fmt: skip
    for text, sister in sorted(found, key=lambda pair: -(pair[1].stored.value if pair[1].stored else 0)):
        method = sister.spec.quantization or ""
        size = sister.stored.value if sister.stored else 0
        if not elsewhere.why_not(method) and not chosen.cannot_load(method, request.version, request.machine):
            cost = f"weights in {sister.weight_format}, {format_bytes(size)} on this machine: answers change a little"
            yield Candidate("sister", request._replace(model=sister), (Change(MODEL, text),), cost, "quality")


def _sisters(request: PlanRequest) -> Iterator[Candidate]:
    """Quantised repositories of the same model, the largest first: by what they store, one of each size."""
    model, chosen = request.model, engine(request.engine)
    if model.source_kind != "catalogue" or not model.stored or not model.parameters or request.weight_format:
        return
    own = naming.parse(model.id)
    if own is None:
        return
    found: list[models.ModelEntry] = []
    for entry in models.index():
        if entry.architecture != model.spec.architecture or not entry.quantization or entry.like:
            continue
        if not entry.parameters or abs(entry.parameters / model.parameters - 1) > _ALIKE:
            continue
        if not entry.stored_bytes or entry.stored_bytes > model.stored.value * _SMALLER:
            continue
        said = naming.parse(entry.id)
        if said is None or said.base.id != own.base.id or entry.id == model.id:
            continue
        if not elsewhere.why_not(entry.quantization) and not chosen.cannot_load(
            entry.quantization, request.version, request.machine
        ):
            found.append(entry)
    taken: list[int] = []
    ordered = sorted(found, key=lambda e: -(e.stored_bytes or 0))
    for entry in (*ordered, *ordered[-1:]):
        size = entry.stored_bytes or 0
        last = entry is ordered[-1]  # what is left where nothing else does
        if size in taken or (not last and (len(taken) >= _MOST_SISTERS or any(size > o * _SMALLER for o in taken))):
            continue
        try:
            sister = models.load(entry.id)
        except PlannerError:
            continue
        taken.append(size)
        cost = f"weights in {entry.quantization}, {format_bytes(size)} stored: answers change a little"
        yield Candidate("sister", request._replace(model=sister), (Change(MODEL, entry.id),), cost, "quality")


def _formats(request: PlanRequest) -> Iterator[Candidate]:
    """The model as if its weights were stored in a smaller format, where no repository of it is known."""
    model, chosen = request.model, engine(request.engine)
    if model.inventory is None or request.weight_format or model.spec.quantization is not None:
        return
    from kvplanner.engine.whatif import refused

    why_not = refused(model, chosen, request.version, request.machine)
    for name in _FORMATS:
        if name not in why_not and name != model.weight_format:
            cost = f"weights in {name}, from a repository that somebody has to make: answers change a little"
            changed = request._replace(weight_format=name)
            yield Candidate("weight_format", changed, (Change(WEIGHT_FORMAT, name),), cost, "quality")


def _machines(request: PlanRequest, plan: Plan) -> Iterator[Candidate]:
    """More GPUs of the machine's own kind, a power of two of them."""
    devices = request.machine.devices
    if not devices or any(device.gpu.id != devices[0].gpu.id for device in devices):
        return
    count = 1 << (len(devices)).bit_length()
    stored, each = plan.request.model.stored, devices[0].gpu.total
    while stored is not None and each is not None and count * each.value < stored.value * _HELD:
        count *= 2  # no change beside it makes room for the weights
    while count <= _MOST_GPUS:
        machine = more_gpus(request.machine, count)
        options = dict(request.options)
        tensor = role_option(engine(request.engine), request.version, "tensor_parallel")
        changes = [Change(GPUS, gpus.machine_words(machine))]
        if tensor is not None and tensor.name in options:
            factor = count // len(devices)
            options[tensor.name] = int(options[tensor.name]) * factor
            changes.append(Change(tensor.name, options[tensor.name]))
        cost = f"{count - len(devices)} further {short_name(devices[0].gpu.name)}"
        loss: Loss = "hardware"
        yield Candidate("gpus", request._replace(machine=machine, options=options), tuple(changes), cost, loss)
        count *= 2


def more_gpus(machine: Machine, count: int) -> Machine:
    """A machine of `count` devices like its first; those that it has keep what is free on them."""
    first = machine.devices[0]
    fresh = first._replace(free_bytes=None, free_source="", uuid="", pci="", marks=())
    added = tuple(fresh._replace(index=place) for place in range(len(machine.devices), count))
    return machine._replace(devices=(*machine.devices[:count], *added))
