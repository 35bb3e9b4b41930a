"""kvplanner gpus: the catalogue of GPUs, or those of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.cli.arguments import Parser
from kvplanner.cli.output import BAD_INPUT, FITS, columns, emit_json, note, say
from kvplanner.errors import BadInput
from kvplanner.estimate import Estimate, least_sure
from kvplanner.report.table import fitted

if TYPE_CHECKING:
    from kvplanner.gpu.spec import GpuEntry, GpuSpec

SCHEMA: Final = "kvplanner.gpu_models/1"
_BY_MEMORY: Final = "Give its memory instead, for example --gpu 2x24GiB"


def parser() -> Parser:
    """The arguments of `gpus`."""
    made = Parser("gpus", "Lists the GPUs that can be planned for, or with --local those of this machine.")
    made.add_argument("query", nargs="*", metavar="QUERY", help="words of the name")
    made.add_argument("--local", action="store_true", help="this machine's GPUs: memory, processes, engines (NVML)")
    made.add_argument("--watch", action="store_true", help="with --local: again every second until interrupted")
    made.add_argument("--json", action="store_true", help="as JSON; with --watch one document a line")
    return made


def run(argv: Sequence[str]) -> int:
    """Prints the GPUs; status 2 when there is none to show."""
    given = parser().parse_args(list(argv))
    query = " ".join(given.query)
    if given.local:
        if query:
            raise BadInput("takes no query", "--local", "Leave the words out")
        from kvplanner.cli import local

        return local.watch(as_json=given.json) if given.watch else local.show(as_json=given.json)
    if given.watch:
        raise BadInput("needs --local", "--watch", "Write kvplanner gpus --local --watch")
    return _catalogue(query, as_json=given.json)


def _catalogue(query: str, *, as_json: bool) -> int:
    from kvplanner.catalog import gpus

    entries = [e for e in gpus.index() if _fits(e, query.lower().split())]
    if as_json:
        found = [_to_json(e, gpus.gpu(e.id)) for e in entries]
        emit_json({"schema": SCHEMA, "query": query, "gpus": found})
    elif entries:
        rows = [_row(e, gpus.gpu(e.id)) for e in entries]
        heads = ("GPU", "nominal", "NVML total", "CUDA total GiB", "basis", "compute", "also called")
        say("\n".join(fitted([heads, *rows], "<>>><<<", (6, 5, 1, 4), columns())))
    if not entries:
        hint = "kvplanner gpus --local lists this machine's" if query.lower() == "local" else _BY_MEMORY
        note(f"no GPU in the catalogue fits {query!r}. {hint}")
        return BAD_INPUT
    return FITS


def _fits(entry: GpuEntry, words: Sequence[str]) -> bool:
    text = " ".join((entry.id, entry.name, *entry.aliases, entry.vendor, entry.gpu_class)).lower()
    return all(word in text for word in words)


def _row(entry: GpuEntry, spec: GpuSpec) -> tuple[str, ...]:
    capability = spec.compute_capability
    return (
        entry.name,
        f"{entry.memory_gb:g} GB" if entry.memory_gb else "?",
        _gib(spec.total),
        _gib(spec.cuda_total),
        least_sure((spec.total, spec.cuda_total)) if spec.total and spec.cuda_total else "unknown",
        f"{capability[0]}.{capability[1]}" if capability else "",
        ", ".join(entry.aliases[:2]),
    )


def _gib(size: Estimate | None) -> str:
    return f"{size.value / (1 << 30):.2f}" if size else "?"


def _to_json(entry: GpuEntry, spec: GpuSpec) -> dict[str, object]:
    capability = spec.compute_capability
    return {
        "id": entry.id,
        "name": entry.name,
        "aliases": list(entry.aliases),
        "vendor": entry.vendor,
        "class": entry.gpu_class,
        "modified": entry.modified,
        "memory_gb": entry.memory_gb,
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "total_bytes": spec.total.value if spec.total else None,
        "total_basis": spec.total.basis if spec.total else None,
        "cuda_total_bytes": spec.cuda_total.value if spec.cuda_total else None,
        "cuda_total_basis": spec.cuda_total.basis if spec.cuda_total else None,
        "unified_memory": spec.unified_memory,
        "nvlink": spec.nvlink,
        "bandwidth_gbs": spec.bandwidth_gbs,
    }
