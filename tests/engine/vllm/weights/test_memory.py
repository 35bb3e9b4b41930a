"""Runtime, workspace, activations and graphs: each era by its own rule, with terms that a person can read."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.catalog import models as catalogue
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.kv import layout as kv_layout
from kvplanner.engine.vllm.memory import activations, graphs, runtime, workspace
from kvplanner.engine.vllm.weights import rank as weights
from kvplanner.model.model import Model
from kvplanner.units import GIB, MIB
from tests.engine.vllm.weights.models import H100, LLAMA_3_8B, QWEN3_8B, llama, settings, terms


def test_vllms_own_cutlass_experts_copy_every_row() -> None:
    """Beside the scratch: two copies of each token's row for each expert, and their weighed product.

    Starts of 0.20.0 with --moe-backend cutlass have 1.79 GiB less KV memory with 16,384 tokens in a step than with
    4,096 (uncited reports).
    """
    model = catalogue.load("RedHatAI/Qwen3.6-35B-A3B-NVFP4")
    blackwell = Gpu("NVIDIA GeForce RTX 5090", (12, 0), 34_187_939_676)
    few, many = (
        settings("0.20.0", max_num_batched_tokens=tokens, max_num_seqs=1, cold=False) for tokens in (4096, 16384)
    )
    taken = []
    for here in (few, many):
        own = here._replace(expert_backend="cutlass")
        assert activations.peak(model, own, blackwell, 0).value >= activations.peak(model, here, blackwell, 0).value
        scratch = own.scheduler.max_num_batched_tokens * 8 * (512 + 2048) * 2
        assert workspace.expert_workspace(model, own, blackwell).bytes == scratch
        taken.append(
            activations.peak(model, own, blackwell, 0).value + workspace.persistent(model, own, blackwell, 0).value
        )
    assert (taken[1] - taken[0]) / GIB == pytest.approx(1.79, abs=0.3)


@pytest.mark.parametrize(
    ("version", "inside_gib", "tolerance"),
    [("0.19.0", 2.07, 0.05), ("0.16.0", 0.55, 0.02)],
)
def test_two_h100_ranks_hold_in_the_budget_what_their_era_prints(
    version: str, inside_gib: float, tolerance: float
) -> None:
    found = runtime.inside(settings(version, tp=2), H100, 0)
    assert found.value / GIB == pytest.approx(inside_gib, abs=tolerance)
    assert found.low <= inside_gib * GIB <= found.high


def test_two_h100_ranks_hold_most_of_it_outside_today() -> None:
    here = settings("0.33.0", tp=2)
    outside, inside = runtime.outside(here, H100), runtime.inside(here, H100, 0)
    context = runtime.outside(settings("0.33.0"), H100)
    assert outside.value - context.value > inside.value
    assert "NCCL" in outside.formula


def test_before_collectives_came_first_only_the_context_is_outside() -> None:
    old = runtime.outside(settings("0.16.0", tp=2), H100)
    assert old.value == runtime.outside(settings("0.16.0"), H100).value


@pytest.mark.parametrize(
    ("version", "printed_gib"),
    [("0.15.0", 5.64), ("0.16.0", 5.64), ("0.17.0", 2.23), ("0.18.0", 2.23)],
)
def test_the_sampler_sets_the_peak_by_era(version: str, printed_gib: float) -> None:
    """Qwen3-14B's printed peaks; only vocabulary and hidden size enter."""
    from tests.engine.vllm.weights.models import llama

    qwen3_14b = llama(40, 5120, 40, 8, 128, 17408, 151936, qk_norm=True)
    found = activations.peak(qwen3_14b, settings(version), H100, 0)
    assert found.value / GIB == pytest.approx(printed_gib, rel=0.02)
    assert found.low <= printed_gib * GIB <= found.high


def test_explain_names_tokens_rows_and_what_many_sequences_cost() -> None:
    notes = activations.peak(LLAMA_3_8B, settings(max_num_seqs=256), H100, 0).notes
    assert "8,192 tokens in one step: gate and up tensors 0.47 GB = 0.44 GiB" in notes
    assert "256 rows of fp32 logits over 128,256 words: 131 MB = 125 MiB" in notes
    many = activations.peak(QWEN3_8B, settings(max_num_seqs=1024), H100, 0).notes
    cost = next(note for note in many if note.startswith("max_num_seqs 1,024 costs"))
    assert "more than 256 would: the sampler sets the peak with " in cost
    assert "penalty counters over 151,936 words take 0.60 GiB, at 256 0.15 GiB" in cost
    older = activations.peak(QWEN3_8B, settings("0.19.0", max_num_seqs=1024), H100, 0).notes
    assert not any("counters" in note for note in older)
    assert not any("warm compile cache" in note for note in many)  # the sampler's rows are more than compiling takes


@pytest.mark.parametrize("model", [LLAMA_3_8B, QWEN3_8B], ids=["forward pass first", "sampler first"])
@pytest.mark.parametrize("version", ["0.19.0", "0.33.0"])
@pytest.mark.parametrize("seqs", [300, 700, 1024, 4096])
def test_what_many_sequences_cost_adds_up(model: Model, version: str, seqs: int) -> None:
    """The peak's and the counters' differences are the whole, as they are told."""
    notes = activations.peak(model, settings(version, max_num_seqs=seqs), H100, 0).notes
    cost = next((note for note in notes if note.startswith("max_num_seqs ")), "")
    if not cost:
        assert version == "0.19.0"
        return
    more, *told = (
        float(number) / (1024 if unit == "MiB" else 1) for number, unit in re.findall(r"([\d.]+) (GiB|MiB)", cost)
    )
    assert len(told) in (2, 4)
    assert sum(told[::2]) - sum(told[1::2]) == pytest.approx(more, abs=0.021)


def test_many_sequences_cost_counters_and_sampler_memory() -> None:
    """1,024 sequences over 151,936 words: 594 MiB of counters and 18.5 MiB of bits."""
    assert workspace.penalty_counters(1024, 151936) == 1024 * 151936 * 4 + 1024 * 4748 * 4
    few, many = (workspace.persistent(QWEN3_8B, settings(max_num_seqs=seqs), H100, 0).value for seqs in (256, 1024))
    assert many - few > 445 * MIB
    assert workspace.persistent(QWEN3_8B, settings("0.19.0"), H100, 0).value < 100 * MIB


def test_older_runners_have_no_counters() -> None:
    assert "penalty counters" not in workspace.persistent(QWEN3_8B, settings("0.19.0"), H100, 0).formula


def test_graphs_are_subtracted_only_where_the_era_does() -> None:
    assert graphs.estimate(LLAMA_3_8B, settings("0.19.1"), H100, 0).value == 0
    assert graphs.estimate(LLAMA_3_8B, settings("0.20.0"), H100, 0).value > 0
    assert graphs.actual(LLAMA_3_8B, settings("0.19.1"), H100, 0).value > 0
    eager = settings(graphs={"mode": "NONE", "sizes": (), "compiled": False})
    assert graphs.actual(LLAMA_3_8B, eager, H100, 0).value == 0


@pytest.mark.parametrize(
    ("version", "changes", "expected"),
    [
        ("0.33.0", {}, True),
        ("0.33.0", {"mode": "NONE", "compiled": False}, False),  # --enforce-eager
        ("0.33.0", {"mode": "NONE"}, True),  # cudagraph_mode NONE at -O2
        ("0.33.0", {"compiled": False}, False),  # -O0 with graphs asked for by name
        ("0.7.3", {}, False),  # V0 compiles only when it is asked to
        ("0.6.6", {}, False),
    ],
)
def test_a_cold_start_is_told_where_it_compiles(version: str, changes: dict[str, object], expected: bool) -> None:
    here = settings(version, graphs=changes)
    assert activations.compiles(here) is expected
    few = here._replace(scheduler=here.scheduler._replace(max_num_seqs=16))
    extra = activations.profiled(LLAMA_3_8B, few, H100, 0).cold_extra_bytes
    # The embedding once more: 128,256 × 4,096 × 2.
    assert 0 < extra < 128256 * 4096 * 2 if expected else extra == 0
    notes = activations.peak(LLAMA_3_8B, few, H100, 0).notes
    assert any("warm compile cache" in note for note in notes) is expected


@pytest.mark.parametrize(("version", "tried"), [("0.10.2", False), ("0.11.2", True)])
def test_the_embedding_is_tried_since_kernels_are_fused_side_by_side(version: str, tried: bool) -> None:
    """config/compilation.py of both releases: combo_kernels, from PyTorch 2.9 on."""
    here = settings(version, max_num_batched_tokens=2048, max_num_seqs=16)
    assert (activations.profiled(LLAMA_3_8B, here, H100, 0).cold_extra_bytes > 0) is tried


@pytest.mark.parametrize(
    ("version", "words", "hidden", "printed_gib", "about"),
    [
        # First starts: Qwen3-8B on 0.27.1 printed 1.18 GiB cold and 0.19 warm (uncited reports).
        ("0.27.1", 151936, 4096, 1.18, 0.02),
    ],
)
def test_a_first_start_peaks_at_a_second_embedding(
    version: str, words: int, hidden: int, printed_gib: float, about: float
) -> None:
    model = llama(36, hidden, 32, 8, 128, 12288, words)
    here = settings(version, max_num_batched_tokens=2048, max_num_seqs=256)
    cold = here._replace(graphs=here.graphs._replace(cold=True))
    assert activations.peak(model, cold, H100, 0).value / GIB == pytest.approx(printed_gib, abs=about)
    warm = here._replace(graphs=here.graphs._replace(cold=False))
    assert activations.peak(model, warm, H100, 0).value / GIB < 0.3
    tp2 = cold._replace(parallel=cold.parallel._replace(tp=2))
    assert activations.peak(model, tp2, H100, 0).value < activations.peak(model, cold, H100, 0).value


def test_block_tables_come_out_of_the_slack() -> None:
    """1,024 sequences of 131,072 tokens in blocks of 16: two tables of 8,192 × 4 bytes each, 64 MiB."""
    found = workspace.after_profile(LLAMA_3_8B, settings(max_model_len=131072))
    assert found.value == 64 * MIB + 8192 * 8


def test_an_eight_billion_model_on_an_h100_leaves_about_55_gib() -> None:
    here = settings("0.33.0", max_model_len=131072)
    found = terms(LLAMA_3_8B, here, H100, 0)
    used = sum(found[part].value for part in ("rank_weights", "inside", "persistent", "peak", "estimate"))
    available = 0.92 * H100.total_bytes - used
    assert available / GIB == pytest.approx(55, abs=1)
    assert available // (2 * MIB) * 16 == pytest.approx(450_000, rel=0.02)


@given(tokens=st.integers(256, 32768), seqs=st.integers(1, 2048), tp=st.sampled_from([1, 2, 4, 8]))
def test_more_tokens_or_sequences_never_need_less(tokens: int, seqs: int, tp: int) -> None:
    for version in ("0.7.3", "0.16.0", "0.19.0", "0.24.0", "0.33.0"):
        small = settings(version, max_num_batched_tokens=tokens, max_num_seqs=min(seqs, tokens), tp=tp)
        more_tokens = settings(version, max_num_batched_tokens=2 * tokens, max_num_seqs=min(seqs, tokens), tp=tp)
        more_seqs = settings(version, max_num_batched_tokens=tokens, max_num_seqs=min(2 * seqs, tokens), tp=tp)
        base, *more = (terms(LLAMA_3_8B, here, H100, 0) for here in (small, more_tokens, more_seqs))
        for part in ("peak", "persistent", "after_profile"):
            assert all(found[part].value >= base[part].value for found in more)


@given(tp=st.sampled_from([1, 2, 4, 8]), pp=st.integers(1, 4), version=st.sampled_from(["0.6.3", "0.9.1", "0.26.0"]))
def test_every_band_holds_its_value(tp: int, pp: int, version: str) -> None:
    here = settings(version, tp=tp, pp=pp)
    for stage in range(pp):
        for found in terms(LLAMA_3_8B, here, H100, stage).values():
            assert 0 <= found.low <= found.value <= found.high
            assert found.in_numbers()


@pytest.mark.parametrize(
    ("arch", "tp", "mib"),
    [((9, 0), 1, 0), ((9, 0), 2, 16 + 8 + 64), ((9, 0), 4, 16 + 8 + 32), ((9, 0), 8, 0.5 + 8 + 64),
     ((10, 0), 8, 2 + 8 + 128), ((8, 0), 4, 16 + 8)],
)  # fmt: skip
def test_all_reduce_buffers_follow_the_engines_table(arch: tuple[int, int], tp: int, mib: float) -> None:
    names = {(9, 0): "NVIDIA H100 80GB HBM3", (10, 0): "NVIDIA B200", (8, 0): "NVIDIA A100-SXM4-80GB"}
    assert runtime.all_reduce_bytes(settings(tp=tp), H100._replace(name=names[arch], arch=arch)) == mib * MIB


def test_more_than_two_gpus_without_nvlink_have_no_all_reduce_of_their_own() -> None:
    assert runtime.all_reduce_bytes(settings(tp=4), Gpu("NVIDIA GeForce RTX 4090", (8, 9), 24 * GIB)) == 0


def test_replicas_that_share_experts_are_warned_about() -> None:
    alone = runtime.inside(settings(tp=2), H100, 0)
    shared = runtime.inside(settings(tp=2, dp=2, expert_parallel=True), H100, 0)
    assert shared.high - alone.high > 2 * GIB
    assert "expert exchange" in shared.formula


def test_unified_memory_counts_the_hosts_use() -> None:
    gb10 = Gpu("NVIDIA GB10", (12, 1), 120 * GIB)
    assert runtime.outside(settings(), gb10).value > 4 * GIB
    host = runtime.outside(settings(), Gpu("Orin (nvgpu)", (8, 7), 8 * GIB))
    assert (host.value, host.high) == (GIB, 2 * GIB)
    assert 0 < host.low < host.value
    assert runtime.inside(settings(), gb10, 0).high > 3 * GIB


def test_expert_workspace_is_the_kernels_rule() -> None:
    """8,192 tokens × 2 experts × (max(128, 512) + max(256, 512)) × 2 bytes, for experts of width 128."""
    from tests.engine.vllm.weights.models import experts

    model = experts(2, 512, 16, 128, 2)
    assert workspace.expert_workspace(model, settings("0.19.0"), H100).bytes == 8192 * 2 * (512 + 512) * 2
    assert workspace.expert_workspace(model, settings(dp=2), H100).bytes == 16384 * 2 * (512 + 512) * 2
    assert workspace.expert_workspace(LLAMA_3_8B, settings(), H100).bytes == 0


def test_two_half_batches_double_the_shared_workspace() -> None:
    from tests.engine.vllm.weights.models import experts

    model = experts(2, 512, 16, 128, 2)
    one, two = (workspace.shared_workspace(model, settings("0.19.0", dbo=dbo), H100).bytes for dbo in (False, True))
    assert two == 2 * one > 0
    assert workspace.shared_workspace(LLAMA_3_8B, settings(dbo=True), H100).bytes == 0


def test_all_reduce_without_vllms_own_keeps_symmetric_memory_alone() -> None:
    assert runtime.all_reduce_bytes(settings(tp=2, custom_all_reduce=False), H100) == 64 * MIB
    assert runtime.all_reduce_bytes(settings("0.9.0", tp=2, custom_all_reduce=False), H100) == 0


def test_all_reduce_on_an_unknown_gpu_may_be_nothing() -> None:
    custom = H100._replace(name="Custom 80 GB", arch=None)
    found, known = (runtime.outside(settings(tp=4), gpu) for gpu in (custom, H100))
    assert found.value == known.value
    assert found.low < known.low
    assert found.basis == "assumed"


@pytest.mark.parametrize(
    ("name", "options", "rows", "tokens"),
    [
        # 4 groups in blocks of 1,024 tokens: 4 × 1,024 entries a sequence.
        (
            "moonshotai/Kimi-Linear-48B-A3B-Instruct",
            {"max_model_len": 1 << 20, "cache": {"mamba_mode": "align"}, "tp": 2},
            4 * 1024,
            4 * 8192,
        ),
        # 7 groups in blocks of 16: 7 × 8,192 entries, 448 MiB of tables for 1,024 sequences.
        ("google/gemma-3-27b-it", {"max_model_len": 131072}, 7 * 8192, 7 * 8192),
    ],
)
def test_block_tables_follow_the_caches_groups(name: str, options: dict[str, Any], rows: int, tokens: int) -> None:
    model = catalogue.load(name)
    here = settings(**options)
    layout = kv_layout.plan_cache(model.spec, here, H100, weights.partition(model.spec.num_layers, 1))
    found = workspace.after_profile(model, here, layout)
    assert found.value == 2 * 1024 * rows * 4 + tokens * 8
