"""kvplanner together: several servers on the same GPUs, in their order of start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.compare import one_words, shared_words
from kvplanner.cli.output import DOES_NOT_FIT, FITS, emit_json, say
from kvplanner.errors import BadInput
from kvplanner.request.flags import add_plan_flags

if TYPE_CHECKING:
    from kvplanner.gpu.spec import Machine

_EXAMPLES: Final = """examples:
  kvplanner together --gpu H100 "Qwen3-32B -- --gpu-memory-utilization 0.6" "Qwen3-Embedding-0.6B -- --gpu-memory-utilization 0.2"
  kvplanner together --gpu "RTX 4090" "--  vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8" "Qwen3-0.6B"

  kvplanner together --gpu 2xL40S "-- CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-32B -tp 2" "-- CUDA_VISIBLE_DEVICES=1 vllm serve Qwen/Qwen3-Reranker-0.6B --gpu-memory-utilization 0.1"

Each PLAN is what plan takes, in quotes; they start in this order, and each finds what those before it leave. Other
orders are told below.

exit status: 0 all start in this order, 1 one does not, 2 bad input
"""  # noqa: E501 - commands stay whole
_USAGE: Final = "kvplanner together PLAN PLAN .. --gpu SPEC [options]"


def parser() -> Parser:
    """The arguments of `together`."""
    made = Parser("together", "Several servers on the same GPUs, in their order of start.", _EXAMPLES, _USAGE)
    add = made.add_argument
    add("plans", nargs="*", metavar="PLAN", help="what plan takes, in quotes; 2 to 4 of them")
    add_plan_flags(made)
    add("--asleep", action="store_true", help="put each server with a sleep mode to sleep before the next one starts")
    add("--unit", choices=("GiB", "GB"), default="GiB", help="of every size (GiB)")
    add("--json", action="store_true", help="every order as JSON, schema kvplanner.together/1")
    return made


def run(argv: Sequence[str]) -> int:
    """Prints each server in its turn."""
    from kvplanner.cli.plan import sources
    from kvplanner.report import together as report
    from kvplanner.request.named import LOCAL, machine_of
    from kvplanner.request.words import build, with_free
    from kvplanner.solve.together import MOST, orders

    given = parser().parse_intermixed_args(list(argv))
    if not 2 <= len(given.plans) <= MOST:
        raise BadInput(f"{len(given.plans)} plans are named", "together", f"Name 2 to {MOST}, each in quotes")
    shared = shared_words(given)
    found = sources()
    machine = with_free(_numbered(machine_of(shared.gpu, found.local)[0]), shared.free)
    here = found._replace(local=lambda: machine)
    each = shared._replace(gpu=LOCAL, free=())  # so that CUDA_VISIBLE_DEVICES chooses among the same GPUs
    servers = [(text, build(one_words(text, each, ()), here).request) for text in given.plans]
    every = list(orders(servers, machine, asleep=given.asleep))
    if given.json:
        emit_json(report.to_json(every))
    else:
        say("\n".join(report.lines(every, given.unit)))
    return FITS if all(one.fits for one in every[0]) else DOES_NOT_FIT


def _numbered(machine: Machine) -> Machine:
    """The machine with a UUID for each GPU, which stays with it wherever a server counts from."""
    return machine._replace(
        devices=tuple(
            device._replace(uuid=device.uuid or f"GPU-{place}") for place, device in enumerate(machine.devices)
        )
    )
