"""Every public report of a failed start, written as a log of its release, is read to its stage and its cause."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from kvplanner.diagnose.diagnosis import Diagnosis, diagnose
from kvplanner.report import diagnosis as report
from kvplanner.units import GIB
from tests.diagnose import writer
from tests.diagnose.writer import Facts
from tests.truth.measure import STAGES
from tests.truth.rows import Row

TRUTH = Path(__file__).parents[1] / "truth"
# The newest release at the first day of a month, for reports that name none.
RELEASED = {"2025-01": "0.6.6", "2025-03": "0.7.3", "2025-05": "0.8.5", "2025-07": "0.9.2", "2025-09": "0.10.1",
            "2025-11": "0.11.0", "2026-01": "0.13.0", "2026-03": "0.17.0", "2026-05": "0.20.0", "2026-07": "0.24.0",
            "2026-08": "0.27.1"}  # fmt: skip


def rows(*names: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for name in names for line in (TRUTH / name).read_text("utf-8").splitlines()]
    return [row for row in found if row["outcome"] != "ok"]


VLLM = [row for row in rows("vllm.jsonl", "vllm-uncited.jsonl") if STAGES.get(row["outcome"])]


def version_of(row: dict[str, Any]) -> str:
    stated = Row(row).version
    if stated is not None:
        return stated
    then = [v for month, v in RELEASED.items() if month <= str(row.get("date", "2026-06"))[:7]]
    return then[-1] if then else "0.6.6"


def facts_of(row: dict[str, Any]) -> Facts:
    reported, flags = row["reported"], row["flags"]
    facts = Facts(version=version_of(row), model=str(row["model"]), tp=int(row.get("tp") or 1))
    names = {"free": "free_gib", "total": "total_gpu_gib", "needed": "kv_needed_gib", "suggested": "est_max_len",
             "blocks": "mamba_cache_blocks", "tried": "oom_tried_gib", "oom_free": "oom_free_gib",
             "tokens": "kv_tokens", "concurrency": "max_concurrency", "length": "max_concurrency_len",
             "activations": "activation_peak_gib", "runtime": "non_torch_gib"}  # fmt: skip
    given = {field: reported[name] for field, name in names.items() if name in reported}
    for field, name in (("weights", "model_loading_gib"), ("kv", "available_kv_gib"), ("graphs", "graph_capture_gib")):
        if name in reported:
            given[field] = (float(reported[name]),)
    if isinstance(flags.get("max_model_len"), int):
        given["length"] = flags["max_model_len"]
    if isinstance(flags.get("gpu_memory_utilization"), float):
        given["share"] = flags["gpu_memory_utilization"]
    if row.get("gpu_memory_gib") and "total" not in given:
        given["total"] = float(row["gpu_memory_gib"])
    return facts._replace(**given, options={k: v for k, v in flags.items() if k in ("max_model_len", "max_num_seqs")
                                            and isinstance(v, int)})  # fmt: skip


def read(lines: list[str]) -> Diagnosis:
    return diagnose(BytesIO(("\n".join(lines) + "\n").encode()).read)


def stage_of(row: dict[str, Any]) -> str:
    """What the log shows: a cache of nothing is found before one that is too small, tensors before serving."""
    if row["outcome"] == "kv_too_small" and row["reported"].get("available_kv_gib", 1) <= 0:
        return "kv_cache_sizing"
    if "allocating the KV tensors" in str(row.get("notes")):
        return "kv_cache_allocation"
    return str(STAGES[row["outcome"]])


@pytest.mark.parametrize("row", VLLM, ids=lambda row: row["id"])
def test_a_report_written_as_a_log_fails_where_it_did(row: dict[str, Any]) -> None:
    facts, stage = facts_of(row), stage_of(row)
    if stage == "free_memory_check" and writer.number(facts.version) < (0, 9, 1):
        facts = facts._replace(version="0.9.1")
    blocks = "mamba_cache_blocks" in row["reported"] and stage == "kv_cache_too_small"
    facts = facts._replace(fails="graph_capture" if blocks else stage)
    made = writer.vllm_lines(facts)
    if blocks:
        place = next(i for i, (_, text) in enumerate(made) if "Capturing" in text)
        made = [*made[:place], ("E", "ERROR " + writer.mamba(facts))]
    found = read(writer.tagged(made, facts))
    ended = found.reading.ended
    assert ended is not None
    causes = {"free_memory_check": "free_memory", "kv_cache_sizing": "no_cache", "kv_cache_too_small": "one_request"}
    assert found.stage == stage
    assert ended.cause == ("state_blocks" if blocks else causes.get(stage, "out_of_memory"))
    assert "unknown amount" not in report.headline(found)
    loaded = found.size("weights")
    if stage not in ("weights", "free_memory_check"):
        assert loaded is not None
        assert loaded / GIB == pytest.approx(facts.weights[0], abs=0.006)
    if stage == "free_memory_check":
        assert ended.figures["free_at_start"] == round(round(facts.free, 2) * GIB)


SGLANG = {"pool sizing": "kv_cache_sizing", "weights or earlier": "weights", "graph capture": "graph_capture",
          "runtime OOM": "runtime", "OOM after graph capture": "runtime"}  # fmt: skip


@pytest.mark.parametrize("row", rows("sglang.jsonl", "sglang-uncited.jsonl"), ids=lambda row: row["id"])
def test_a_report_of_sglang_likewise(row: dict[str, Any]) -> None:
    outcome = str(row["outcome"])
    stage = next((s for words, s in SGLANG.items() if words in outcome), None)
    if stage is None or "not memory" in outcome:
        return
    version = str(row.get("sglang_version") or "0.5.9").removeprefix("v")
    facts = Facts(
        version=version if writer.number(version) else "0.5.9", model=str(row.get("model", "org/m")), fails=stage
    )
    assert read(writer.sglang(facts)).stage == stage


@pytest.mark.parametrize("row", [r for n in ("llamacpp.jsonl", "llamacpp-uncited.jsonl") for r in map(
    json.loads, (TRUTH / n).read_text("utf-8").splitlines()) if "failed_alloc_mib" in r["reported"]],
    ids=lambda row: row["id"])  # fmt: skip
def test_a_report_of_llamacpp_likewise(row: dict[str, Any]) -> None:
    outcome = str(row["reported"].get("outcome", ""))
    size = float(row["reported"]["failed_alloc_mib"]) / 1024
    stage = "weights" if "weight" in outcome or "load" in outcome else "compute" if "comput" in outcome else (
        "kv_cache_allocation" if "kv" in outcome.lower() or "cache" in outcome else "compute")  # fmt: skip
    facts = Facts(model="/m/a.gguf", weights=(size,), kv=(size,), activations=size, fails=stage)
    found = read(writer.llamacpp(facts))
    assert found.stage == stage
    assert found.reading.ended is not None
    assert found.reading.ended.figures["tried"] == pytest.approx(size * GIB, abs=6000)
