"""What a log says and a plan counts otherwise, to be handed on: without paths, names of machines, and keys."""

from __future__ import annotations

from kvplanner.diagnose.diagnosis import Diagnosis
from kvplanner.diagnose.implied import Implied
from kvplanner.diagnose.privacy import public
from kvplanner.report import diagnosis as report
from kvplanner.units import format_bytes


def markdown(found: Diagnosis, beside: Implied | None) -> str:
    """Both numbers of each finding, what was started on what, and every size that the log states."""
    import kvplanner

    found = public(found)
    lines = [f"# kvplanner {kvplanner.__version__}: {report.headline(found)}", "", report.about(found), ""]
    if beside is not None:
        plan = beside.plan
        gpus = ", ".join(dict.fromkeys(d.device.gpu.name for d in plan.gpus))
        lines += [f"Rules: {plan.rules}. GPUs: {len(plan.devices)} × {gpus}. Architecture: "
                  f"{plan.request.model.spec.architecture}, {plan.request.model.weight_format}", ""]  # fmt: skip
        lines += ["| exact figure | log | plan |", "|---|---|---|"] if beside.findings else [
            "No exact figure of the plan is contradicted."]  # fmt: skip
        for one in beside.findings:
            both = (f"{n:,}" if one.tokens else format_bytes(n) for n in (one.measured, one.planned))
            lines.append(f"| {one.name} | {' | '.join(both)} |")
        lines.append("")
    if found.options:
        lines += ["## Options", "", *(f"- {name}: {value}" for name, value in sorted(found.options.items())), ""]
    lines += ["## Measured", "", "| figure | process | bytes |", "|---|---|---|"]
    lines += [f"| {s.name} | {s.process} | {s.value:,} |" for s in found.reading.stated if s.size]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"
