"""Plan files: what was set comes back, what is not understood is kept, and broken ones are named clearly."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplanner import jsonfile
from kvplanner.catalog import gpus
from kvplanner.engine.request import Ask, Load, PlanRequest, mixed
from kvplanner.engine.segment import SEGMENT_KINDS
from kvplanner.errors import BadInput, NotModelled, PlannerError
from kvplanner.gpu.spec import Machine
from kvplanner.request import planfile
from kvplanner.request.named import parse_mix
from kvplanner.request.planfile import PlanFile
from tests import sample_plans

COUNT = st.integers(0, 1 << 53)
PLANS = st.builds(
    PlanFile,
    model=st.text(min_size=1).filter(str.strip),
    machine=st.text(min_size=1).filter(str.strip),
    ask=st.builds(
        Ask,
        engine=st.just("vllm"),
        version=st.none() | st.just("0.33.0"),
        options=st.dictionaries(
            st.text(min_size=1),
            st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        ),
        load=st.none()
        | st.builds(Load, COUNT, COUNT, COUNT, st.just(()))
        | st.builds(
            mixed, COUNT, st.sampled_from([parse_mix("70%:1500+500,30%:8k+1k"), parse_mix("2:1+1,1:2+2,4:7+0")])
        ),
        weight_format=st.none() | st.just("fp8"),
        measured=st.dictionaries(st.sampled_from(sorted({*SEGMENT_KINDS} - {"driver_reserved", "headroom"})), COUNT),
    ),
    free=st.dictionaries(st.integers(0, 63), COUNT),
    unknown=st.just({}),
)


@given(PLANS)
def test_reads_back_what_was_set(plan: PlanFile) -> None:
    document = json.loads(json.dumps(planfile.to_json(plan)))
    assert planfile.from_json(document, "f")._replace(unknown={}) == plan


def test_stores_only_what_was_set(tmp_path: Path) -> None:
    path = tmp_path / "a.kvplan.json"
    planfile.save(path, PlanFile("m", "H100"))
    assert json.loads(path.read_text()) == {
        "schema": "kvplanner.planfile/1", "model": "m", "machine": "H100", "engine": {"name": "vllm"},
    }  # fmt: skip


def test_unknown_fields_survive_and_unset_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "a.kvplan.json"
    document = {
        "schema": planfile.SCHEMA, "model": "m", "machine": "H100", "author": {"name": "A"},
        "engine": {"name": "vllm", "version": "0.30", "build": 7},
        "load": {"users": 1, "prompt_tokens": 2, "output_tokens": 3, "shape": "chat"},
        "options": {"enforce_eager": True},
    }  # fmt: skip
    path.write_text(json.dumps(document))
    plan = planfile.load(path)._replace(ask=Ask(load=Load(4, 5, 6)))
    planfile.save(path, plan)
    assert json.loads(path.read_text()) == {
        "schema": planfile.SCHEMA, "model": "m", "machine": "H100", "author": {"name": "A"},
        "engine": {"name": "vllm", "build": 7},
        "load": {"users": 4, "prompt_tokens": 5, "output_tokens": 6, "shape": "chat"},
    }  # fmt: skip


def test_a_failed_save_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.kvplan.json"
    planfile.save(path, PlanFile("old", "H100"))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="No space left"):
        planfile.save(path, PlanFile("new", "H100"))
    assert planfile.load(path).model == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_saving_keeps_permissions_and_follows_links(tmp_path: Path) -> None:
    real = tmp_path / "real.kvplan.json"
    planfile.save(real, PlanFile("m", "H100"))
    real.chmod(0o640)
    link = tmp_path / "link.kvplan.json"
    link.symlink_to(real)
    planfile.save(link, PlanFile("n", "H100"))
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert planfile.load(real).model == "n"


def test_no_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be saved"):
        planfile.save(tmp_path / "none" / "a.kvplan.json", PlanFile("m", "H100"))


def test_a_model_beside_the_file_is_found_from_it(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    path = tmp_path / "a.kvplan.json"
    planfile.save(path, PlanFile("./weights", "H100"))
    assert Path(planfile.load(path).model) == tmp_path / "weights"


GOOD = {"schema": planfile.SCHEMA, "model": "m", "machine": "H100"}


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (b"", "not a plan file"),
        (b"[]", "not a plan file.*where an object"),
        (b"\xff\xfe\x00", "not a plan file"),
        (b"[" * 100_000, "not a plan file"),
        (b'{"schema": "x", "schema": "y"}', "twice"),
        (b'{"schema": NaN}', "NaN"),
        ({"schema": "kvplanner.plan/1"}, "schema"),
        ({**GOOD, "model": 7}, "field model is 7"),
        ({**GOOD, "machine": " "}, "field machine"),
        ({**GOOD, "engine": "vllm"}, "field engine"),
        ({**GOOD, "engine": {"version": 33}}, "field engine.version|field engine.name"),
        ({**GOOD, "load": {"users": 1}}, "field load.prompt_tokens"),
        ({**GOOD, "load": {"users": -1, "prompt_tokens": 1, "output_tokens": 1}}, "load.users"),
        ({**GOOD, "load": {"users": True, "prompt_tokens": 1, "output_tokens": 1}}, "load.users"),
        ({**GOOD, "load": {"users": 1, "mix": [3]}}, "field load.mix is"),
        ({**GOOD, "load": {"users": 1, "mix": [{"share": 2}]}}, "field load.mix.share"),
        ({**GOOD, "load": {"users": 1, "mix": [{"share": 1, "prompt_tokens": "1"}]}}, "field load.mix.prompt_tokens"),
        ({**GOOD, "options": {"a": [1]}}, "field options.a"),
        ({**GOOD, "options": {"a": None}}, "field options.a"),
        ({**GOOD, "measured_bytes": {"magic": "1"}}, "measured_bytes.magic"),
        ({**GOOD, "measured_bytes": {"weights": 1.5}}, "measured_bytes.weights"),
        ({**GOOD, "free_bytes": {"first": 1}}, "first"),
        ({**GOOD, "free_bytes": {"0": 10**30}}, "free_bytes.0"),
        (b'{"schema": ' + b"1" * 5000 + b"}", "not a plan file"),
        (b" " * (planfile.MAX_BYTES + 1), "at most 1,048,576"),
    ],
)
def test_broken_files_name_the_file_and_the_field(tmp_path: Path, document: object, named: str) -> None:
    path = tmp_path / "broken.kvplan.json"
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    with pytest.raises(BadInput, match=named) as caught:
        planfile.load(path)
    assert caught.value.where == str(path)
    assert "\n" not in str(caught.value)


def test_text_that_no_encoding_holds_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.kvplan.json"
    planfile.save(path, PlanFile("\udcff/weights", "H100"))
    assert planfile.load(path).model == "\udcff/weights"


def test_missing_file_and_newer_schema(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        planfile.load(tmp_path / "none.kvplan.json")
    path = tmp_path / "newer.kvplan.json"
    path.write_text(json.dumps({**GOOD, "schema": "kvplanner.planfile/2"}))
    with pytest.raises(NotModelled, match="newer"):
        planfile.load(path)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(PlannerError) as caught:
        planfile.from_json(jsonfile.parse_object(data, "f"), "f")
    assert caught.value.where == "f"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["model", "machine", "engine", "options", "load", "measured_bytes", "free_bytes", "weight_format"]),
)
def test_any_field_value_is_read_or_refused(value: object, field: str) -> None:
    refused = ""
    try:
        planfile.to_json(planfile.from_json({**GOOD, field: value}, "f"))
    except BadInput as error:
        refused = str(error)
    assert not refused or field in refused


@pytest.mark.parametrize("name", ["fits", "other_programs", "eight_gpus"])
def test_a_request_round_trips(name: str, tmp_path: Path) -> None:
    request = sample_plans.ALL[name]().request
    path = tmp_path / "a.kvplan.json"
    planfile.save(path, planfile.from_request(request, request.model.id, "ignored"))
    machine = Machine(tuple(d.__class__(d.index, d.gpu) for d in request.machine.devices))
    back = planfile.to_request(planfile.load(path), request.model, machine)
    assert dict(back.options) == dict(request.options)
    assert back.load == request.load
    assert [d.free_bytes for d in back.machine.devices] == [d.free_bytes for d in request.machine.devices]


def test_free_memory_of_a_missing_gpu_is_refused() -> None:
    plan = PlanFile("m", "H100", free={3: 1})
    with pytest.raises(BadInput, match="no GPU 3: the machine has 1 GPU"):
        planfile.to_request(plan, sample_plans.llama_8b(), sample_plans.machine(sample_plans.H100))


@pytest.mark.parametrize("words", ["2xH100", "80GB", "4x79.2GiB", "1xRTX 4090,2xRTX 3090", "1000000.001kB"])
def test_machine_words_name_the_same_machine_again(words: str) -> None:
    machine = gpus.machine(words)
    again = gpus.machine(gpus.machine_words(machine))
    assert [d.gpu.total for d in again.devices] == [d.gpu.total for d in machine.devices]
    assert [d.gpu.id for d in again.devices] == [d.gpu.id for d in machine.devices]


def test_an_ask_has_the_fields_and_defaults_of_a_request_and_makes_one() -> None:
    for name, default in Ask._field_defaults.items():
        assert PlanRequest._field_defaults[name] == default, name
    asked = Ask("vllm", "0.33.0", {"enforce_eager": True}, Load(1, 2, 3), "FP8", {"weights": 5})
    request = asked.request(sample_plans.llama_8b(), gpus.machine("H100"))
    assert request.ask == asked
    assert request._asdict() | asked._asdict() == request._asdict()


def test_sizes_of_unknown_parts_are_named_and_kept(tmp_path: Path) -> None:
    """A newer version may have more parts; of the rest and of the driver's none can be given."""
    given = {"activations": 5, "magic": 7, "headroom": 9}
    path = tmp_path / "a.kvplan.json"
    path.write_text(json.dumps({**GOOD, "measured_bytes": given}))
    plan = planfile.load(path)
    assert plan.ask.measured == {"activations": 5}
    said = planfile.notes(plan)
    assert [note.split(" ")[0] for note in said] == ["measured_bytes.magic", "measured_bytes.headroom"]
    assert all("kept, and not planned with; known are other, runtime_outside," in note for note in said)
    planfile.save(path, plan)
    assert json.loads(path.read_text())["measured_bytes"] == given
    assert planfile.notes(planfile.load(path)) == said
    assert planfile.notes(PlanFile("m", "h100")) == ()
