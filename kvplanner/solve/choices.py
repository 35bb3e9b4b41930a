"""What may be swept of a request, each with the range that is worth a look: for those who choose from a list."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.command import role_option
from kvplanner.engine.option import Role
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.record import NamedTuple
from kvplanner.solve.axis import RELEASE, USERS
from kvplanner.solve.change import GPUS, WEIGHT_FORMAT

_CONTEXT: Final = 131_072
_LEAST_CONTEXT: Final = 2048
_CROWD: Final = 256
# By role: the word that names it and its usual range, "" for all that it may be.
_ROLES: Final[tuple[tuple[Role, str, str], ...]] = (
    ("budget_share", "utilisation", "0.5..0.98"), ("max_requests", "max-requests", "1..1024"),
    ("step_tokens", "batched-tokens", "512..32k"), ("kv_dtype", "kv-dtype", ""), ("tensor_parallel", "tp", ""),
    ("pipeline_parallel", "pp", ""), ("data_parallel", "dp", ""),
)  # fmt: skip


class Choice(NamedTuple):
    """name: as `axis` takes it. of: the axis' own name. span: its usual values, "" for all that it may have."""

    name: str
    of: str
    span: str


def choices(request: PlanRequest) -> tuple[Choice, ...]:
    """The settings of an engine and of the request, those that are asked for most first."""
    chosen = engine(request.engine)
    found: list[Choice] = []
    context = role_option(chosen, request.version, "context")
    if context is not None:
        most = max(request.model.spec.context_length or _CONTEXT, 2 * _LEAST_CONTEXT)
        found.append(Choice("context", context.name, f"{_LEAST_CONTEXT}..{most}"))
    if request.load is not None:
        found.append(Choice(USERS, USERS, f"1..{max(_CROWD, request.load.users)}"))
    for role, name, span in _ROLES:
        option = role_option(chosen, request.version, role)
        if option is None:
            continue
        allowed = chosen.allowed(option.name, request.model) or option.choices
        if not span and not allowed:
            span = "1,2,4,8"
        found.append(Choice(name, option.name, span))
    if len({device.gpu.id for device in request.machine.devices}) == 1:
        found.append(Choice(GPUS, GPUS, "1,2,4,8"))
    found.append(Choice(RELEASE, RELEASE, ""))
    found.append(Choice("format", WEIGHT_FORMAT, ""))
    return tuple(found)
