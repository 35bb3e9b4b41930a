"""Writes the seeds that are made rather than found: `python -m tests.fuzz.make_seeds`."""

from __future__ import annotations

import json

from tests.fuzz.targets import FOLDER
from tests.fuzz.texts import COMMANDS, PAGES, PLANS, RECORDINGS
from tests.source import wrong_gguf, wrong_json, wrong_safetensors
from tests.source.checkpoints import sub_model
from tests.source.checkpoints_dense import llama
from tests.source.checkpoints_sparse import gpt_oss
from tests.source.kit import CONFIG
from tests.source.make_gguf import ARRAY, F32, STRING, U32, header, llama_pairs, llama_tensors
from tests.source.make_models import awq, fp8_block, gptq, header_bytes, nvfp4, total_bytes

MOST_BYTES = 16_000
LOGS = FOLDER.parent / "diagnose" / "logs"


def main() -> None:
    """One small file for each shape of input: right ones of every layout, and the wrong ones of the tests."""
    tiny = {**sub_model(CONFIG, 1), "hidden_size": 128, "intermediate_size": 128, "vocab_size": 128}
    for name, linear in (("fp8", fp8_block), ("awq", awq), ("gptq", gptq), ("nvfp4", nvfp4)):
        _save("safetensors", name, header_bytes(llama(tiny, linear=linear)) + b"\xff")
    moe = {**tiny, "num_local_experts": 4}
    _save("safetensors", "mxfp4", header_bytes(gpt_oss(moe)) + b"\xff")
    small = {"a.weight": ("BF16", (2, 3)), "b.bias": ("F32", ())}
    _save("safetensors", "whole", header_bytes(small, {"format": "pt"}) + bytes(total_bytes(small)))
    rows = llama_tensors(1, 8)
    for version in (1, 2, 3):
        for big in (False, True):
            data, _ = header(llama_pairs(1, 8, 8), rows, version=version, big=big)
            _save("gguf", f"v{version}{'big' if big else 'little'}", data + b"\xff")
    windows = llama_pairs(1, 8, arch="gemma3", attention__sliding_window=(U32, 16), x=((ARRAY, F32), [1.0, 2.0]))
    _save("gguf", "windows", header([*windows, ("general.tags", (ARRAY, STRING), ["a", "b"])], rows)[0] + b"\xff")
    _save("json", "config", json.dumps(CONFIG).encode())
    index = {"metadata": {"total_size": 1.0}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    _save("json", "index", json.dumps(index).encode())
    for target, cases in (
        ("safetensors", wrong_safetensors.WRONG), ("gguf", wrong_gguf.WRONG), ("json", wrong_json.WRONG),
    ):  # fmt: skip
        for name, (data, _) in cases.items():
            _save(target, f"wrong-{name}", data)
    for target, texts in (("plan", PLANS), ("recording", RECORDINGS), ("metrics", PAGES), ("command", COMMANDS)):
        for name, text in texts.items():
            _save(target, name, text.encode())
    for path in LOGS.rglob("*.log"):
        _save("log", path.stem, path.read_bytes())


def _save(target: str, name: str, data: bytes) -> None:
    folder = FOLDER / "seeds" / target
    folder.mkdir(parents=True, exist_ok=True)
    if len(data) <= MOST_BYTES:
        (folder / "".join(c if c.isalnum() else "-" for c in name)).write_bytes(data)


if __name__ == "__main__":
    main()
