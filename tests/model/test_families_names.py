"""Module names of skip lists: whole paths, words, globs and expressions, in every spelling that files use."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner.errors import BadInput, NotModelled, PlannerError
from kvplanner.model.quantisation.names import covers, parse_name
from tests.patience import processor_seconds


def hit(name: str, path: str, layer: int | None = None) -> bool:
    matcher = parse_name(name, "list")
    if matcher.layer not in (None, -1) and matcher.layer != layer:
        return False
    return covers(matcher, "" if layer is None else f"layers.{layer}.", (path,))


@pytest.mark.parametrize(
    ("name", "path", "layer", "expected"),
    [
        ("lm_head", "lm_head", None, True),
        ("gate", "mlp.gate", 3, True),
        ("gate", "mlp.gate_proj", 3, False),
        ("model.layers.3.mlp.gate", "mlp.gate", 3, True),
        ("model.layers.3.mlp.gate", "mlp.gate_proj", 3, False),
        ("model.layers.3.mlp.gate", "mlp.gate", 30, False),
        ("model.layers.3", "self_attn.q_proj", 3, True),
        ("model.language_model.layers.3.self_attn*", "self_attn.q_proj", 3, True),
        ("language_model.model.layers.3.self_attn.q_proj.weight", "self_attn.q_proj", 3, True),
        ("backbone.layers.4.mixer.in_proj", "mixer.in_proj", 4, True),
        ("model.layers.*.self_attn", "self_attn.q_proj", 11, True),
        ("model.layers.*.mlp.router", "mlp.experts.gate_up_proj", 11, False),
        ("model.layers.0*", "mlp.down_proj", 0, True),
        ("model.layers.0*", "mlp.down_proj", 10, False),
        ("model.layers.1*", "mlp.down_proj", 17, True),
        ("*.attn.*", "attn.wq_a", 2, True),
        ("*.mlp.shared_expert.*", "mlp.shared_expert.up_proj", 5, True),
        ("re:.*self_attn.*", "self_attn.o_proj", 5, True),
        ("re:.*mlp\\.(gate|up|down)_proj.*", "mlp.up_proj", 0, True),
        ("re:.*mlp\\.(gate|up|down)_proj.*", "mlp.experts.up_proj", 1, False),
        ("model.layers.2.mlp.experts.5.w1", "mlp.experts.0.w1", 2, True),
        ("mtp*", "self_attn.q_proj", 2, False),
    ],
)
def test_names_cover_what_they_say(name: str, path: str, layer: int | None, expected: bool) -> None:
    assert hit(name, path, layer) is expected


@pytest.mark.parametrize("name", ["re:(a+)+b", "re:(.*)*", "re:.*a.*a.*a.*a", "a*b*c*d*e*f*g*h*i*j*k*"])
def test_names_that_may_take_forever_are_refused(name: str) -> None:
    with pytest.raises(NotModelled):
        covers(parse_name(name, "list"), "layers.0.", ("a" * 200,))


@pytest.mark.parametrize("name", ["", "x" * 500, "re:(", "re:[z-a]", "re:a{99999999999999999999}"])
def test_names_that_are_none_are_bad_input(name: str) -> None:
    with pytest.raises(BadInput):
        parse_name(name, "list")


@given(st.text("re:.*+?()[]{}|\\^$ablayers0123456789", max_size=60))
def test_any_name_is_read_or_refused_quickly(name: str) -> None:
    with processor_seconds(1.0, name), suppress(PlannerError):
        covers(parse_name(name, "list"), "layers.12.", ("mlp.experts.0.gate_proj", "a" * 60))
