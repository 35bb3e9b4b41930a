"""The first files of AutoGPTQ and AutoAWQ: config.json names no quantisation, a file beside it does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplanner.source.resolve import open_model
from tests.model.kit import LLAMA


@pytest.mark.parametrize(
    ("name", "beside", "method"),
    [
        ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": False, "sym": True}, "gptq"),
        ("quantize_config.json", {"bits": 4, "group_size": 128, "quant_method": "awq"}, "awq"),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 128, "zero_point": True, "version": "GEMM"}, "awq"),
    ],
)
def test_they_are_read(tmp_path: Path, name: str, beside: dict[str, object], method: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    plain = open_model(str(tmp_path / "config.json"))
    (tmp_path / name).write_text(json.dumps(beside))
    for what in (tmp_path / "config.json", tmp_path):
        model = open_model(str(what))
        assert model.weight_format == method
        assert plain.stored is not None
        assert model.stored is not None
        assert model.stored.value < 0.5 * plain.stored.value
        assert any(f"--quantization {method}" in problem for problem in model.problems)


def test_other_files_of_that_name_and_settings_of_the_config_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "quantize_config.json").write_text(json.dumps({"opset": 17}))
    assert open_model(str(tmp_path)).weight_format == "bfloat16"
    stated = {"quant_method": "awq", "bits": 4, "group_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"quantization_config": stated}))
    (tmp_path / "quantize_config.json").write_text(json.dumps({"bits": 8, "group_size": 128}))
    assert open_model(str(tmp_path)).weight_format == "awq"
