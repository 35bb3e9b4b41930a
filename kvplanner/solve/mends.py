"""Ways back to a plan from a request that an engine refuses: the nearest changes that it takes, each of them planned.

Nothing here knows why a request is refused. The setting that the error names is tried with other values, then the
machine, the parallel sizes, the other settings, the weights, the release and the engine; what gives a plan is offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from kvplanner.catalog import gpus, models, naming
from kvplanner.engine.command import declared, role_option
from kvplanner.engine.option import Option, OptionValue, Role
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine, names
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import NotModelled, PlannerError, UnknownName
from kvplanner.model.spec import Moe
from kvplanner.record import NamedTuple
from kvplanner.solve.change import ENGINE, GPUS, MODEL, RELEASE, WEIGHT_FORMAT, Change, stepped
from kvplanner.solve.others import more_gpus
from kvplanner.solve.splits import splits

_PARALLEL: Final[tuple[Role, ...]] = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
_MOST_GPUS: Final = 16
_MOST_VALUES: Final = 2
_FARTHEST: Final = 1 << 24
# Formats that keep most of the weights, of those that engines run everywhere.
_FORMATS: Final = ("FP8", "INT8", "AWQ 4-bit", "GGUF Q8_0", "GGUF Q4_K_M")
# What an error names where it is about the weights or the release rather than about an option.
_OF_WEIGHTS: Final = ("model", "--weight-format")
_OF_RELEASE: Final = "--engine-version"
_OF_MACHINE: Final = "--gpu"


class Mend(NamedTuple):
    """A change after which there is a plan."""

    changes: tuple[Change, ...]
    request: PlanRequest
    plan: Plan


def option_at(options: tuple[Option, ...], where: str) -> Option | None:
    """The option that an error names: its name, a flag, a variable or its place in JSON; None for none."""
    words = where.split("=")[0].split()[:1]
    for option in options:
        if words and words[0] in (option.name, option.spelled, *option.flags, option.env):
            return option
    return None


def mends(request: PlanRequest, error: PlannerError) -> Iterator[Mend]:
    """Changes of a refused request that give a plan, the nearest first, as they are found; plans alike once."""
    search = _Search(request)
    seen: list[object] = []
    for mend in search.ordered(error):
        figures = mend.plan.devices, mend.plan.kv_cache
        if figures not in seen:
            seen.append(figures)
            yield mend


class _Search:
    """Tries changes of one request."""

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self.engine = engine(request.engine)
        self.options = declared(self.engine, request.version)

    def ordered(self, error: PlannerError) -> Iterator[Mend]:
        """All ways, by what the error names."""
        option = option_at(self.options, error.where)
        ways: list[Iterator[Mend]] = []
        if option is not None:
            ways += [self.values(option, error)]
        if error.where.startswith(_OF_RELEASE):
            ways += [self.releases()]
        if error.where.startswith(_OF_WEIGHTS):
            ways += [self.formats(), self.sisters()]
        if error.where.startswith(_OF_MACHINE) or (option is not None and option.role in _PARALLEL):
            ways += [self.experts(), self.machines(), self.split()]
        ways += [self.without(option)]
        if not isinstance(error, NotModelled):
            ways += [self.releases()]
        ways += [self.section(error), self.formats(), self.sisters(), self.engines(), self.bare()]
        return chain.from_iterable(ways)

    def tried(self, request: PlanRequest, *changes: Change) -> Mend | None:
        """A change, where it gives a plan."""
        if request == self.request:
            return None
        try:
            if not self._drafts(request):
                return None
            plan = engine(request.engine).plan(request)
        except PlannerError:
            return None
        return None if plan.fits is None else Mend(changes, request, plan)

    def _drafts(self, request: PlanRequest) -> bool:
        """Whether the draft model that a request names is there: the one that was asked for. Raises PlannerError."""
        wish = engine(request.engine).draft_wanted(request.options)
        if wish is None or wish.optional:
            return True
        return request.draft is not None and wish == self.engine.draft_wanted(self.request.options)

    def with_value(self, option: Option, value: OptionValue | None) -> Mend | None:
        """Another value of an option, None for its default."""
        request, changes = stepped(self.request, {option.name: value})
        return self.tried(request, *changes) if changes else None

    # the setting at fault ----------------------------------------------------------------------------------------

    def values(self, option: Option, error: PlannerError) -> Iterator[Mend]:
        """Other values of an option, the nearest ones, then its default."""
        if option.type == "bool":
            current = bool(self.request.options.get(option.name))
            found: Iterator[Mend | None] = iter([self.with_value(option, not current)])
        elif option.type in ("int", "tokens"):
            found = self.numbers(option)
        else:
            near = error.near if isinstance(error, UnknownName) else ()
            found = (self.with_value(option, value) for value in (*near, None, *option.choices))
        most = 1 if option.role in _PARALLEL else _MOST_VALUES  # more or fewer GPUs are another way
        yield from islice((mend for mend in found if mend is not None), most)
        default = self.with_value(option, None)
        if default is not None:
            yield default

    def numbers(self, option: Option) -> Iterator[Mend | None]:
        """The nearest numbers that are taken: of those that the model allows, else above and below."""
        value = self.request.options.get(option.name)
        allowed = self.engine.allowed(option.name, self.request.model)
        if allowed:
            start = int(value) if isinstance(value, int) else 1
            yield from (self.with_value(option, size) for size in sorted(allowed, key=lambda size: abs(size - start)))
            return
        if not isinstance(value, int):
            return
        length = self.request.model.spec.context_length
        if option.role == "context" and length and length < value:
            yield self.with_value(option, length)
        yield self.nearest(option, value, up=False)
        yield self.nearest(option, value, up=True)

    def nearest(self, option: Option, value: int, *, up: bool) -> Mend | None:
        """The nearest number on one side: steps that double until one is taken, then halves back towards the value."""
        low = int(option.low if option.low is not None else 1) + option.above_low
        low = max(low, 0) if value >= 0 else low  # below that stand words of the engine's, such as -1 for auto
        end, step = (self.far(option, value), 1) if up else (low, -1)
        taken: tuple[int, Mend] | None = None
        refused, distance = value, 1
        while taken is None and refused != end:
            at = value + step * distance
            at = min(at, end) if up else max(at, end)
            mend = self.with_value(option, at)
            taken = None if mend is None else (at, mend)
            refused, distance = (refused if mend is not None else at), distance * 2
        while taken is not None and abs(taken[0] - refused) > 1:
            middle = (taken[0] + refused) // 2
            mend = self.with_value(option, middle)
            taken, refused = (taken, middle) if mend is None else ((middle, mend), refused)
        return None if taken is None else taken[1]

    def far(self, option: Option, value: int) -> int:
        """How far up a number is looked for: to what the model and the other settings have, and a little further."""
        others = (int(v) for v in self.request.options.values() if isinstance(v, int))
        most = max(2 * value, self.request.model.spec.context_length or 0, *others)
        return min(most, _FARTHEST, int(option.high) if option.high is not None else _FARTHEST)

    # around it ---------------------------------------------------------------------------------------------------

    def machines(self) -> Iterator[Mend]:
        """The fewest further GPUs of the machine's own kind that the parallel sizes are content with."""
        devices = self.request.machine.devices
        if not devices or any(device.gpu.id != devices[0].gpu.id for device in devices):
            return
        for count in (*range(len(devices) + 1, _MOST_GPUS + 1), 2 * _MOST_GPUS, 4 * _MOST_GPUS):
            machine = more_gpus(self.request.machine, count)
            mend = self.tried(self.request._replace(machine=machine), Change(GPUS, gpus.machine_words(machine)))
            if mend is not None:
                yield mend
                return

    def split(self) -> Iterator[Mend]:
        """Parallel sizes that share the model out over the GPUs that there are."""
        count = len(self.request.machine.gpus)
        for sizes in splits(self.request, count, whole=True):
            request, changes = stepped(self.request, sizes)
            mend = self.tried(request, *changes) if changes else None
            if mend is not None:
                yield mend
                return

    def experts(self) -> Iterator[Mend]:
        """Whole experts on each GPU, where their parts do not divide."""
        option = role_option(self.engine, self.request.version, "expert_parallel")
        moe = any(isinstance(mlp, Moe) for layer in self.request.model.spec.layers for mlp in layer.mlps)
        if option is None or not moe or option.name in self.request.options:
            return
        tensor = role_option(self.engine, self.request.version, "tensor_parallel")
        ranks = self.request.options.get(tensor.name, 1) if tensor is not None else 1
        mend = self.with_value(option, option.over(int(ranks)))
        if mend is not None:
            yield mend

    def section(self, error: PlannerError) -> Iterator[Mend]:
        """None of the settings that belong together, where an error names what they are part of."""
        parent = f"{error.where.partition('.')[0]}."
        parts = [o.name for o in self.options if o.name in self.request.options and o.spelled.startswith(parent)]
        if len(parts) > 1:
            request, changes = stepped(self.request, dict.fromkeys(parts))
            mend = self.tried(request, *changes)
            if mend is not None:
                yield mend

    def without(self, fault: Option | None) -> Iterator[Mend]:
        """Each other setting given back to its default, where that alone is enough."""
        for option in self.options:
            if option.name in self.request.options and option is not fault:
                mend = self.with_value(option, None)
                if mend is not None:
                    yield mend

    def bare(self) -> Iterator[Mend]:
        """No setting at all."""
        if self.request.options:
            changes = tuple(Change(name, None) for name in self.request.options)
            mend = self.tried(self.request._replace(options={}), *changes)
            if mend is not None:
                yield mend

    def formats(self) -> Iterator[Mend]:
        """The weights as they are stored, or as if in a format that runs."""
        from kvplanner.engine.whatif import refused

        request = self.request
        if request.weight_format is not None:
            stored = self.tried(request._replace(weight_format=None), Change(WEIGHT_FORMAT, None))
            if stored is not None:
                yield stored
        why_not = refused(request.model, self.engine, request.version, request.machine)
        wanted = (name for name in _FORMATS if name not in why_not and name != request.model.weight_format)
        tried = (self.tried(request._replace(weight_format=name), Change(WEIGHT_FORMAT, name)) for name in wanted)
        yield from islice((mend for mend in tried if mend is not None), _MOST_VALUES)

    def sisters(self) -> Iterator[Mend]:
        """Other repositories of the same model, those of nearly its size first."""
        model = self.request.model
        own = naming.parse(model.id)
        if own is None:
            return
        size = model.stored.value if model.stored is not None else 0
        alike = []
        for entry in models.index():
            if entry.architecture == model.spec.architecture and entry.id != model.id and not entry.like:
                said = naming.parse(entry.id)
                if said is not None and said.base.id == own.base.id:
                    alike.append(entry)
        alike.sort(key=lambda entry: abs((entry.stored_bytes or 0) - size))
        found = (self.sister(entry.id) for entry in alike)
        yield from islice((mend for mend in found if mend is not None), _MOST_VALUES)

    def sister(self, model_id: str) -> Mend | None:
        """Another repository, as it is stored."""
        try:
            model = models.load(model_id)
        except PlannerError:
            return None
        return self.tried(self.request._replace(model=model, weight_format=None), Change(MODEL, model_id))

    def releases(self) -> Iterator[Mend]:
        """The nearest other releases: the first newer one that takes it, then the first older one."""
        known = self.engine.versions
        now = self.request.version
        if now is not None and now not in known:
            newest = self.tried(self.request._replace(version=None), Change(RELEASE, None))
            if newest is not None:
                yield newest
                return
        at = known.index(now) if now in known else 0
        newer, older = (*reversed(known[:at]),), known[at + 1 :]
        for side in (newer, older):
            found = (self.tried(self.request._replace(version=name), Change(RELEASE, name)) for name in side)
            mend = next((mend for mend in found if mend is not None), None)
            if mend is not None:
                yield mend

    def engines(self) -> Iterator[Mend]:
        """Another engine, at its defaults but for the context length."""
        kept = role_option(self.engine, None, "context")
        length = self.request.options.get(kept.name) if kept is not None else None
        for name in names():
            if name == self.request.engine:
                continue
            role = role_option(engine(name), None, "context")
            options = {role.name: length} if role is not None and length is not None else {}
            plain = self.request._replace(engine=name, version=None, options=options, measured={}, calibration=())
            mend = self.tried(plain, Change(ENGINE, name))
            if mend is not None:
                yield mend
