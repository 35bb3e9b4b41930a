"""What fits: all models on a machine, or one model on all machines; every row is what its plan says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kvplanner.catalog import gpus, models
from kvplanner.catalog.models import ModelEntry
from kvplanner.engine.option import Role
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Ask, PlanRequest
from kvplanner.engine.verdict import Certainty
from kvplanner.errors import PlannerError
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model
from kvplanner.record import NamedTuple

COUNTS: Final = (1, 2, 4, 8)
# Of the memory, what a model's files may take and still be likely to leave room for its cache: of the catalogue the
# largest that surely fit on machines of 16 to 640 GB take 0.69 to 0.80 of it.
_ROOMY: Final = 0.75
# GPUs that people buy or rent for this: of one name several boards exist that differ in nothing that counts here.
_VENDOR: Final = "nvidia"
_OF_ONE_MACHINE: Final[tuple[Role, ...]] = (
    "tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "kv_bytes",
)  # fmt: skip


class Fit(NamedTuple):
    """One model in one format on one machine.

    weight_format: what its weights are stored in; what_if: it is not stored so, but asked for. gpus: words for --gpu;
    machine: what they name.
    The limits and headroom (bytes on the device with the least) are None where it does not fit. in_ram: it runs, but
    the engine or its driver keeps in RAM what the GPUs have no room for. refused: why there is no plan, "" where there
    is one.
    """

    model: str
    weight_format: str
    gpus: str
    stored_bytes: int | None = None
    parameters: int | None = None
    max_context_length: int | None = None
    sure_max_context_length: int | None = None
    serves_users: int | None = None
    sure_serves_users: int | None = None
    max_concurrent_requests: int | None = None
    headroom_bytes: int | None = None
    fits: bool | None = None
    sure: bool = False
    certainty: Certainty | None = None
    in_ram: bool = False
    stage: str | None = None
    refused: str = ""
    what_if: bool = False
    total_bytes: int = 0
    machine: str = ""

    @property
    def order(self) -> tuple[bool, bool, bool, bool]:
        """Best first: what surely fits, what may, what needs RAM, what cannot be told, what does not."""
        return self.in_ram or not self.fits, not self.fits, self.fits is False, not self.sure


def row(request: PlanRequest, words: str, plan: Plan | None, refused: str = "") -> Fit:
    """The row of a request; words: for its machine; plan None where there is none."""
    model = request.model
    what_if = request.weight_format is not None and request.weight_format != model.weight_format
    stored = plan.request.model.stored if plan is not None else model.stored
    found = Fit(
        model=model.id,
        weight_format=request.weight_format or model.weight_format,
        gpus=words,
        stored_bytes=stored.value if stored else None,
        parameters=model.parameters,
        what_if=what_if,
        refused=refused,
        total_bytes=request.machine.total_bytes,
        machine=request.machine.describe(),
    )
    if plan is None:
        return found
    limits, load = plan.limits, request.load
    shown = plan.devices if plan.fits else ()
    left = [s.bytes for device in shown if (s := device.segment("headroom")) is not None]
    return found._replace(
        max_context_length=limits.max_context_length,
        sure_max_context_length=limits.sure_max_context_length,
        serves_users=limits.serves_users if load else None,
        sure_serves_users=limits.sure_serves_users if load else None,
        max_concurrent_requests=limits.max_concurrent_requests,
        headroom_bytes=min(left, default=None),
        fits=plan.fits,
        sure=plan.sure,
        certainty=plan.verdict.certainty,
        in_ram=bool(plan.fits and (plan.moved_bytes or plan.verdict.spilled)),
        stage=plan.stage,
    )


def planned(request: PlanRequest, words: str) -> Fit:
    """The row of a request by its plan."""
    try:
        plan = engine(request.engine).plan(request)
    except PlannerError as error:
        return row(request, words, None, error.what)
    return row(request, words, plan)


def models_on(
    machine: Machine,
    ask: Ask,
    *,
    formats: Sequence[str | None] = (None,),
    entries: Iterable[ModelEntry] | None = None,
    also: Iterable[Model] = (),
) -> Iterator[Fit]:
    """Models on a machine, one after the other: those of `also` first, then the catalogue's.

    formats: each model in each of these, None as it is stored; a what-if format is tried where the model is stored in
    16 bits. entries: of the catalogue, all when None.
    """
    words = gpus.machine_words(machine)
    made: dict[object, Fit] = {}
    for model in also:
        yield from _in_formats(model, machine, ask, words, formats)
    for entry in models.index() if entries is None else entries:
        try:
            model = models.load(entry.id)
        except PlannerError as error:
            yield Fit(
                entry.id,
                entry.quantization or "",
                words,
                entry.stored_bytes,
                entry.parameters,
                refused=error.what,
                machine=machine.describe(),
            )
            continue
        shape = _shape(model)
        for name in _applying(model, formats):
            alike = made.get((shape, name))
            if alike is None:
                alike = made[shape, name] = planned(_asked(ask, name, model, machine), words)
            yield alike._replace(model=model.id)


def likely_first(entries: Iterable[ModelEntry], machine: Machine) -> tuple[ModelEntry, ...]:
    """Models whose files leave room in the GPUs' memory, those that it would just hold, then the others; each large
    models first.
    """
    memory = machine.total_bytes
    roomy = memory * _ROOMY

    def order(entry: ModelEntry) -> tuple[int, int]:
        size = entry.stored_bytes or 0
        return (size > roomy) + (size > memory), -(entry.parameters or 0)

    return tuple(sorted(entries, key=order))


def best_first(rows: Iterable[Fit]) -> Iterator[Fit]:
    """Rows in the order in which they come, those that surely fit before all others: each as soon as it is made."""
    later: list[Fit] = []
    for found in rows:
        if found.sure:
            yield found
        else:
            later.append(found)
    yield from sorted(later, key=lambda fit: fit.order)


def _applying(model: Model, formats: Sequence[str | None]) -> tuple[str | None, ...]:
    """The formats to plan a model in: as it is stored, and what-ifs of one that is stored in 16 bits."""
    plain = model.spec.quantization is None and model.inventory is not None
    return tuple(name for name in formats if name is None or (plain and name != model.weight_format))


def _asked(ask: Ask, name: str | None, model: Model, machine: Machine) -> PlanRequest:
    return ask._replace(weight_format=name).request(model, machine)


def _shape(model: Model) -> object:
    """Everything of a model that a plan's figures depend on: of many repositories only the name differs."""
    stored = model.stored
    size = (stored.value, stored.low, stored.high, stored.basis) if stored else None
    return model.spec._replace(assumed_fields=()), model.inventory, size, model.weight_format, model.parameters


def _in_formats(model: Model, machine: Machine, ask: Ask, words: str, formats: Sequence[str | None]) -> Iterator[Fit]:
    for name in _applying(model, formats):
        yield planned(_asked(ask, name, model, machine), words)


def machines_for(
    model: Model, ask: Ask, *, counts: Sequence[int] = COUNTS, query: str = "", formats: Sequence[str | None] = (None,)
) -> Iterator[Fit]:
    """A model on every GPU of the catalogue, 1, 2, 4 and 8 of each; query: words of the GPUs' names."""
    for machine in _machines(counts, query):
        yield from _in_formats(model, machine, ask, gpus.machine_words(machine), formats)


def _machines(counts: Sequence[int], query: str) -> Iterator[Machine]:
    wanted = query.lower().split()
    for entry in gpus.index():
        text = " ".join((entry.id, entry.name, *entry.aliases)).lower()
        if entry.vendor == _VENDOR and all(word in text for word in wanted):
            yield from (gpus.machine(f"{count}x{entry.id}") for count in counts)


def least(
    model: Model, ask: Ask, *, counts: Sequence[int] = COUNTS, query: str = "", formats: Sequence[str | None] = (None,)
) -> Iterator[Fit]:
    """Of each GPU the fewest that surely fit and serve the load's users; the machines with the least memory first."""
    users = ask.load.users if ask.load else 0
    sized = [(machine.total_bytes, gpus.machine_words(machine), machine) for machine in _machines(counts, query)]
    done: set[tuple[str, str | None]] = set()
    for _, words, machine in sorted(sized, key=lambda one: one[:2]):
        kind = machine.devices[0].gpu.id
        for name in _applying(model, formats):
            if (kind, name) not in done:
                found = planned(_asked(ask, name, model, machine), words)
                if found.sure and (found.sure_serves_users or 0) >= users:
                    done.add((kind, name))
                    yield found


def on_any_machine(ask: Ask) -> Ask:
    """What is asked, without how the GPUs of one machine share a model, and what was measured there; as it is of a
    release that the engine refuses, which each plan then says.
    """
    from kvplanner.engine.command import role_option

    chosen = engine(ask.engine)
    try:
        found = [role_option(chosen, ask.version, role) for role in _OF_ONE_MACHINE]
    except PlannerError:
        return ask
    gone = {option.name for option in found if option is not None}
    kept = {name: value for name, value in ask.options.items() if name not in gone}
    return ask._replace(options=kept, measured={})
