"""No refusal is a dead end: every place where an engine refuses is walked, and what is offered there gives a plan."""

from __future__ import annotations

from itertools import islice

import pytest

from kvplanner.engine.registry import engine
from kvplanner.errors import BadInput
from kvplanner.report.mends import button, sentence
from kvplanner.solve.mends import Mend, mends
from tests.solve.refusals import BEHIND, CASES, OTHERS, Refused, place, places, refused

_BUTTONS = 3


def ways_back(case: Refused) -> list[Mend]:
    return list(islice(mends(*refused(case)), _BUTTONS))


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.engine}-{case.model.rpartition('/')[2]}-{case.options}"
)
def test_what_is_offered_at_a_refusal_gives_a_plan(case: Refused) -> None:
    found = ways_back(case)
    if not found:  # GPUs of which nothing can be told: others have to be chosen, and the window opens their list
        error = refused(case)[1]
        assert error.where == "--gpu", error
        assert error.remedy
    assert len({button(mend) for mend in found}) == len(found)
    for mend in found:
        assert engine(mend.request.engine).plan(mend.request).fits is not None
        assert "None" not in sentence(mend)


def test_every_place_that_refuses_is_walked() -> None:
    """A new refusal needs a case here: it says what a user can do about it."""
    walked = [place(refused(case)[1]) for case in CASES]
    assert len(walked) == len(set(walked)), "two cases come to the same place"
    known = {where for where, (raised, _, _) in places().items() if not where[0].startswith(OTHERS)}
    assert known - {*walked} == {*BEHIND}


def test_what_belongs_together_is_given_back_together() -> None:
    """A draft model of another vocabulary: neither its name nor its method alone can go."""
    case = next(c for c in CASES if c.draft == "Qwen/Qwen3-8B")
    assert button(ways_back(case)[0]) == "Reset speculative method, draft model"


def test_experts_whose_parts_do_not_divide_are_kept_whole() -> None:
    for case in (c for c in CASES if c.model == "Qwen/Qwen3-235B-A22B-FP8"):
        assert any("expert parallel" in button(mend) for mend in ways_back(case)), case


def test_a_draft_model_that_is_not_named_is_not_planned_by_changing_something_else() -> None:
    """The window asks for the draft model before it plans: what leaves that as it is gives no plan."""
    request = Refused(
        "vllm", "Qwen/Qwen3-8B", options={"speculative_method": "draft_model", "max_num_seqs": 8}
    ).request()
    with pytest.raises(BadInput) as raised:
        engine("vllm").draft_wanted(request.options)
    found = list(islice(mends(request, raised.value), _BUTTONS))
    assert button(found[0]) == "Reset speculative method"
    assert all("speculative_method" not in mend.request.options for mend in found)
