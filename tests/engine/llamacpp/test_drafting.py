"""--spec-type draft-mtp: the model's own prediction layers as a second context, as public logs print it."""

from __future__ import annotations

from typing import Any

import pytest

from kvplanner.catalog import models
from kvplanner.errors import BadInput
from kvplanner.units import MIB
from tests.engine.llamacpp.kit import LLAMA, plan, size

ONE = "Qwen/Qwen3.6-27B"


def more(kind: str, **options: Any) -> float:
    """MiB that drafting adds to a kind of segment of one GPU."""
    model = models.load(ONE)
    with_it = plan(model, "1x80GiB", fit="off", spec_type="draft-mtp", **options).devices[0]
    return (size(with_it, kind) - size(plan(model, "1x80GiB", fit="off", **options).devices[0], kind)) / MIB


def test_its_cache_has_one_layer_at_full_length_and_states_have_rows_for_drafted_tokens() -> None:
    """A public report: 1,024 MiB at 262,144 tokens in f16, 544 in q8_0; 149.62 MiB of state for each row."""
    states = 149.62 * 4 * 3
    added = more("kv_cache", ctx_size=262144, parallel=4, kv_unified=True)
    assert added == pytest.approx(1024 + states, abs=0.5)
    q8 = more("kv_cache", ctx_size=262144, parallel=1, spec_draft_type_k="q8_0", spec_draft_type_v="q8_0")
    assert q8 == pytest.approx(544 + 149.62 * 3, abs=0.5)
    two = more("kv_cache", ctx_size=262144, parallel=1, spec_draft_n_max=2)
    assert two == pytest.approx(1024 + 149.62 * 2, abs=0.5)


def test_its_compute_buffer_is_what_a_report_prints() -> None:
    """324.02 MiB for the drafting context at 262,144 tokens, micro-batch 512 (September 2026).

    The model's own graph gives three snapshots of each sequence's state then: llama.cpp's own buffer grows from 130.02
    to 136.95 MiB at 8,192 tokens (n_rs_seq 2).
    """
    given: dict[str, Any] = {"ctx_size": 262144, "parallel": 4, "kv_unified": True, "spec_draft_n_max": 2}
    found = plan(models.load(ONE), "1x80GiB", fit="off", spec_type="draft-mtp", **given).devices[0]
    (drafted,) = [one.value for s in found.segments if s.kind == "compute"
                  for one in s.estimate.inputs if one.name == "draft model"]  # fmt: skip
    assert float(drafted) / MIB == pytest.approx(324.02, rel=0.001)
    assert more("compute", **given) - float(drafted) / MIB == pytest.approx(136.95 - 130.02, abs=0.01)


def test_its_layers_lie_with_the_output_and_are_quantised_as_the_last_one() -> None:
    model = models.load(ONE)
    plain = plan(model, "2x24GiB", ctx_size=8192)
    drafting = plan(model, "2x24GiB", ctx_size=8192, spec_type="draft-mtp")
    assert size(plain.devices[0], "weights") == size(drafting.devices[0], "weights")
    added = size(drafting.devices[1], "weights") - size(plain.devices[1], "weights")
    assert 0.8 < added / (425e6 * 4.9 / 8) < 1.2  # 425 M parameters in Q4_K and Q6_K


def test_what_has_no_such_layers_is_refused() -> None:
    with pytest.raises(BadInput, match="no layers that predict further tokens"):
        plan(LLAMA, spec_type="draft-mtp")


def test_a_draft_drafts_three_tokens_where_nobody_says_how_many() -> None:
    """params.speculative.draft.n_max of common/common.h: 3 since June 2026, 16 before."""
    assert plan(models.load(ONE), "1x80GiB", spec_type="draft-mtp").options["spec_draft_n_max"].value == 3
    assert plan(models.load(ONE), "1x80GiB", spec_type="draft-mtp", version="b9000").options[
        "spec_draft_n_max"
    ].value == 16  # fmt: skip


@pytest.mark.parametrize("split", ["layer", "tensor"])
def test_a_wrong_override_beside_it_is_refused_as_without_it(split: str) -> None:
    """--fit asks for the second context first."""
    with pytest.raises(BadInput, match="is not PATTERN=BUFFER"):
        plan(models.load(ONE), "2x24GiB", spec_type="draft-mtp", override_tensor="/nowhere", split_mode=split)
