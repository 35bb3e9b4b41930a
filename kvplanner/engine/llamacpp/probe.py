"""llama.cpp asked itself: llama-fit-params, or llama-server up to where it has measured and before it loads.

Both open the header alone and allocate nothing. llama-fit-params (tools/fit-params of llama.cpp, since December 2025)
prints the arguments that it fits, and with --fit-print on a line for each device: name, model, context, compute, in
whole MiB. llama-server prints the same as a table (common_memory_breakdown_print) while it fits, at verbosity 4.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from kvplanner.engine.command import command_words, parse_flags
from kvplanner.engine.llamacpp.builds import Build, build_of
from kvplanner.engine.plan import Plan
from kvplanner.engine.probe import Answer, Answered, Output, Probe, Run
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.segment import SegmentKind
from kvplanner.errors import BadInput
from kvplanner.estimate import Estimate
from kvplanner.units import MIB

FIT_PARAMS: Final = "llama-fit-params"
SERVER: Final = "llama-server"
_KINDS: Final[tuple[SegmentKind, ...]] = ("weights", "kv_cache", "compute")
_LINE: Final = re.compile(r"^(\w+(?:\(\))?) (\d+) (\d+) (\d+) *$", re.MULTILINE)
_ROW: Final = re.compile(r"\|\s+- (\w+)\b[^|]*\|.*?(\d+) = +(\d+) \+ +(\d+) \+ +(\d+)\)?[ |+]")
_MEASURED: Final = r"fitting params to free memory took|successfully fit params|failed to fit params|no changes needed"
_PRINT: Final = "--fit-print"  # since pull request 22171, April 2026
# common_params_parse of common/arg.cpp
_UNKNOWN: Final = re.compile(r"error: (?:invalid|unknown) argument: (\S+)")
_REARRANGED: Final = "Weights are left out: without a GPU most are rearranged, and not counted in its figure"
Make = Callable[[PlanRequest, Build, str], Plan]
_DEVICE: Final = re.compile(r"[A-Za-z]+(\d+)")


def probe(make: Make) -> Probe:
    """How llama.cpp is asked. make: makes a plan by a build's rules, for what the program counts otherwise."""
    return Probe((FIT_PARAMS, SERVER), "a GGUF file", partial(_ask, make))


def _ask(make: Make, program: str, run: Run, plan: Plan, path: str) -> Answer:
    """What llama.cpp says of a plan's file. Raises BadInput with its own words where it gives no answer."""
    words = ["-m", path, *_flags(plan)]
    if program.startswith(SERVER):
        return _of_server(program, run, plan, words)
    if not plan.gpus:
        return _of_fit_params(make, run, plan, words, [_REARRANGED])
    return _of_fit_params(make, run, plan, words, [])


def _known(run: Run, words: list[str], notes: list[str]) -> Output:
    """Runs it without the flags that this build of it does not know, and says which those are."""
    while True:
        output = run(words)
        unknown = _UNKNOWN.search(output.err + output.out)
        if unknown is None or unknown[1] not in words or unknown[1] == _PRINT:
            return output
        at = words.index(unknown[1])
        last = at + 1 < len(words) and not words[at + 1].startswith("-")
        del words[at : at + 1 + last]
        notes.append(f"It does not know {unknown[1]}, and is asked without")


def _of_fit_params(make: Make, run: Run, plan: Plan, words: list[str], notes: list[str]) -> Answer:
    notes += ["It reserves logits for every token of a micro-batch, and is compared with the plan of that"]
    words, as_it_counts, slots = _without_server(plan, words)
    notes += slots
    if str(plan.options["fit"].value) == "on" and _may_fit(plan):
        fitted = _known(run, words, notes)
        found = fitted.out.strip().splitlines()
        if fitted.status == 0 and found and found[-1].startswith("-c "):
            chosen = shlex.split(found[-1])
            words = [*_without(words, chosen), *chosen]
            as_it_counts = _chosen(as_it_counts, chosen)
            notes.append(f"It chooses {found[-1]} for what is free here")
        else:
            notes.append("It finds nothing that fits this machine, and is asked for these settings as they are")
    asked = [*words, _PRINT, "on"]
    output = _known(run, asked, notes)
    build = build_of(plan.request.version)._replace(limited_outputs=False)
    counted = make(as_it_counts, build, plan.engine_version)
    rows = [row for line in _LINE.finditer(output.out) for row in _rows(counted, line[1], line.groups()[1:])]
    return _answer(FIT_PARAMS, plan, asked, rows, output, notes)


def _of_server(program: str, run: Run, plan: Plan, words: list[str]) -> Answer:
    asked = [*_without(words, ("--fit", "")), "--fit", "on", "-lv", "4", "--no-warmup", "--host", "127.0.0.1",
             "--port", "0"]  # fmt: skip
    output = run(asked, _MEASURED)
    # Of several tables, one for each trial, the last is of what it chose.
    last = {line[1]: line.groups()[2:] for line in _ROW.finditer(output.out + output.err)}
    rows = [row for device, sizes in last.items() for row in _rows(plan, device, sizes)]
    return _answer(program, plan, asked, rows, output, [])


def _answer(
    program: str, plan: Plan, words: Sequence[str], rows: list[Answered], output: Output, notes: list[str]
) -> Answer:
    if not rows:
        said = [line.strip() for line in (output.err or output.out).splitlines() if line.strip()]
        ended = "nothing" if output.status in (0, None) else f"nothing, and ends with status {output.status}"
        told = next((line for line in reversed(said) if "error" in line.lower()), said[-1] if said else ended)
        told = "it is older than April 2026" if _PRINT in told else told
        raise BadInput(f"{program} gives no sizes: {told[:200]}", "", f"Run it by hand: {program} {shlex.join(words)}")
    planned = len(plan.gpus)
    seen = len({row.device for row in rows if _DEVICE.fullmatch(row.device)})
    if planned and not seen:
        notes.append("It sees no GPU here, so that its answer is for the host alone")
    elif seen != planned:
        notes.append(f"It sees {seen} of the {planned} GPUs that are planned" if seen < planned else
                     f"It sees {seen} GPUs where {planned} {'is' if planned == 1 else 'are'} planned")  # fmt: skip
    return Answer(program, shlex.join((program, *words)), tuple(rows), tuple(notes))


def _chosen(request: PlanRequest, words: Sequence[str]) -> PlanRequest:
    """The request with what the program chose."""
    flags = parse_flags(engine("llamacpp").options(request.version), words)
    return request._replace(options={**request.options, **flags.values, "fit": "off"})


def _rows(plan: Plan, device: str, sizes: Sequence[str]) -> Iterator[Answered]:
    number = _DEVICE.fullmatch(device)
    if device.lower() == "host":
        position = next((at for at, one in enumerate(plan.devices) if one.device.kind == "host"), None)
    else:
        found = [at for at, one in enumerate(plan.devices) if one.device.kind == "gpu"]
        position = found[int(number[1])] if number is not None and int(number[1]) < len(found) else None
    alone = not plan.gpus
    for kind, size in zip(_KINDS, sizes, strict=True):
        if alone and kind == "weights":
            continue
        segment = plan.devices[position].segment(kind) if position is not None else None
        planned = segment.estimate if segment is not None else None
        if planned is not None and kind == "compute" and position and plan.devices[position].device.kind == "gpu":
            planned = _as_measured(planned, plan.request.model.spec.hidden_size)
        yield Answered(device, position, kind, int(size) * MIB, MIB, planned)


def _as_measured(compute: Estimate, hidden: int) -> Estimate:
    """A compute buffer behind the first of a pipeline: without allocating, llama.cpp counts one copy too many."""
    told = {one.name: int(one.value) for one in compute.inputs}
    if told.get("copies of inputs", 1) == 1:
        return compute
    extra = 16 * told.get("tokens", 0) * hidden
    return compute._replace(value=compute.value + extra, low=compute.low + extra, high=compute.high + extra)


def _flags(plan: Plan) -> tuple[str, ...]:
    """What the user set, as the program reads it."""
    return command_words(engine("llamacpp"), plan.request).flags


def _without_server(plan: Plan, words: list[str]) -> tuple[list[str], PlanRequest, list[str]]:
    """The words that llama-fit-params knows, the request as it counts slots, and what to say of that.

    It has no flag for slots that share one cache, and one slot where nobody gives a number.
    """
    options = dict(plan.request.options)
    kept = [word for word in words if word not in ("--kv-unified", "--no-kv-unified")]
    given = options.get("parallel") not in (None, -1)
    options.update(parallel=options["parallel"] if given else 1, kv_unified=False)
    request = plan.request._replace(options=options)
    slots = plan.options["parallel"].value
    note = "" if given else f"It counts one slot where a server has {slots}, and is compared with the plan of that"
    return kept, request, [note] if note else []


def _may_fit(plan: Plan) -> bool:
    """Whether --fit changes anything: not in a split that it does not know, nor where all is set."""
    given = plan.request.options
    return given.get("split_mode") != "tensor" and not ("ctx_size" in given and "n_gpu_layers" in given)


def _without(words: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """The words without flags that are given anew: each stands with one value."""
    same = {"-c": "--ctx-size", "-ngl": "--n-gpu-layers", "-ts": "--tensor-split", "-ot": "--override-tensor"}
    dropped = {same.get(word, word) for word in chosen[::2]}
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in dropped:
            skip = True
        else:
            kept.append(word)
    return kept
