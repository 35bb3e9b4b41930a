"""A log full of secrets: nothing of them is in what is made of it, on paper, in files or in the window's plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplanner.catalog import models
from kvplanner.diagnose.privacy import public_name, scrubbed
from tests.cli.kit import Terminal, in_this_process

SECRETS = ("alice", "acme", "hunter2", "sk-4f9a8b7c6d5e", "hf_AbCdEfGh", "10.11.12.13", "gpu-box", "fe80", "/srv",
           "t.jinja", "s3cr3t", "xoxb-1234", "deadbeefdeadbeefdeadbeefdeadbeef")  # fmt: skip
ARGUMENTS = {
    "model": "/home/alice/models/Llama-3.1-8B-Instruct", "api_key": ["sk-4f9a8b7c6d5e4f3a"], "host": "10.11.12.13",
    "max_model_len": 8192, "hf_token": "hf_AbCdEfGhIjKlMnOp", "download_dir": "/srv/acme/cache",
    "served_model_name": ["acme-chat"], "chat_template": "D:\\\\acme\\\\t.jinja", "ssl_keyfile": "/srv/acme/key.pem",
    "tokenizer": "/home/alice/tok",
    "load_format": "auto", "otlp_traces_endpoint": "http://gpu-box.acme.internal:4317/?token=s3cr3t",
}  # fmt: skip
LOG = f"""\
gpu-box vllm[9]: INFO 05-20 08:12:00 [api.py:1] vLLM API server version 0.24.0
INFO 05-20 08:12:00 [utils.py:1] non-default args: {ARGUMENTS!r}
WARNING HF_TOKEN=hf_AbCdEfGhIjKlMnOp SLACK=xoxb-1234567890 sha deadbeefdeadbeefdeadbeefdeadbeef addr fe80::1
(EngineCore pid=7) INFO 05-20 08:12:10 [m.py:1] Starting to load model /home/alice/models/Llama-3.1-8B-Instruct...
(EngineCore pid=7) INFO 05-20 08:12:16 [m.py:1] Model loading took 14.99 GiB memory and 3.1 seconds
(EngineCore pid=7) INFO 05-20 08:12:18 [w.py:1] Available KV cache memory: 4.47 GiB
(EngineCore pid=7) INFO 05-20 08:12:18 [k.py:1] GPU KV cache size: 99,616 tokens
(EngineCore pid=7) INFO 05-20 08:12:19 [c.py:1] init engine (profile, create kv cache, warmup model) took 9.1 s
"""
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 23.52 GiB "
    "of which 87.00 MiB is free. See /home/alice/x with token hunter2"
)
FAILED = LOG.replace("init engine (profile, create kv cache, warmup model) took 9.1 s", OOM).replace(
    "'tokenizer':", "'unknown_thing': 'password=hunter2 at alice@acme.com', 'tokenizer':"
)


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    monkeypatch.setenv("KVPLANNER_DATA_DIR", str(tmp_path / "data"))
    return in_this_process(capsys, monkeypatch)


def holds(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret.lower() in text.lower()]


@pytest.mark.parametrize("log", [LOG, FAILED], ids=["started", "failed"])
def test_nothing_of_a_log_s_secrets_is_in_any_output(terminal: Terminal, tmp_path: Path, log: str) -> None:
    where, handed, report = (tmp_path / name for name in ("server.log", "runs.json", "report.md"))
    where.write_text(log, encoding="utf-8")
    words = (str(where), "--gpu", "RTX 4090", "--model", "meta-llama/Llama-3.1-8B-Instruct")
    text = terminal("diagnose", *words, "--report", str(report)).out
    document = json.loads(terminal("diagnose", *words, "--json").out)
    assert document["plan"] is not None
    # More tokens than that memory holds: a finding, where the whole command line is understood.
    assert bool(document["findings"]) == ("99,616" in report.read_text("utf-8")) == (log is LOG)
    assert terminal("calibrations", "add", *words).status == 0
    listed = terminal("calibrations").out
    terminal("calibrations", "export", str(handed))
    kept = (tmp_path / "data" / "calibrations.json").read_text("utf-8")
    plan = tmp_path / "made.kvplan.json"
    plan.write_text(json.dumps(document["plan"]), encoding="utf-8")
    planned = terminal("plan", str(plan)).out
    for output in (text, json.dumps(document), report.read_text("utf-8"), listed, handed.read_text("utf-8"), kept,
                   planned):  # fmt: skip
        assert not holds(output)


def test_a_path_that_is_there_is_no_part_of_the_plan_either(terminal: Terminal, tmp_path: Path) -> None:
    place = tmp_path / "alice" / "Llama-3.1-8B-Instruct"
    place.mkdir(parents=True)
    where = tmp_path / "server.log"
    where.write_text(LOG.replace("/home/alice/models/Llama-3.1-8B-Instruct", str(place)), encoding="utf-8")
    words = (str(where), "--gpu", "RTX 4090", "--model", "meta-llama/Llama-3.1-8B-Instruct")
    document = terminal("diagnose", *words, "--json").out
    assert str(tmp_path) not in document.replace(str(where), "")


def test_a_folder_that_opens_here_is_in_nothing_that_is_made_of_its_log(terminal: Terminal, tmp_path: Path) -> None:
    place = tmp_path / "alice" / "our-chat-v2"
    place.mkdir(parents=True)
    config = models.record("Qwen/Qwen2.5-7B-Instruct")["config"] | {"num_hidden_layers": 27}  # no catalogue has it
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    where, report, handed = (tmp_path / name for name in ("server.log", "report.md", "runs.json"))
    where.write_text(LOG.replace("/home/alice/models/Llama-3.1-8B-Instruct", str(place)), encoding="utf-8")
    words = (str(where), "--gpu", "RTX 4090")
    document = terminal("diagnose", *words, "--report", str(report), "--json").out
    assert json.loads(document)["plan"]["model"] == "our-chat-v2"
    assert terminal("calibrations", "add", *words).status == 0
    terminal("calibrations", "export", str(handed))
    for output in (document, report.read_text("utf-8"), handed.read_text("utf-8"), terminal("plan", *words).out):
        assert "alice" not in output
        assert str(tmp_path) not in output


@pytest.mark.parametrize(("name", "public"), [
    ("org/Name-7B", "org/Name-7B"), ("/home/ann/m/Name-7B/", "Name-7B"), ("C:\\Users\\ann\\x.gguf", "x.gguf"),
    ("/home/ann/.cache/huggingface/hub/models--org--Name-7B/snapshots/0123", "org/Name-7B"), ("~/m/n", "n"),
])  # fmt: skip
def test_names_lose_their_folders(name: str, public: str) -> None:
    assert public_name(name) == public


def test_texts_lose_keys_and_addresses() -> None:
    text = scrubbed("--api-key sk-abcdefgh123 at http://gpu7.corp:8000 and 10.0.0.3:80, /home/ann/x, ann@b.org")
    assert not any(word in text for word in ("sk-abc", "gpu7", "10.0.0.3", "ann"))


@pytest.mark.parametrize("identity", [
    "GPU-5f1c9a2b-1c77-0e7d-9b41-7a0c2e6d4f10", "MIG-5f1c9a2b-1c77-0e7d-9b41-7a0c2e6d4f10",
    "MIG-GPU-5f1c9a2b-1c77-0e7d-9b41-7a0c2e6d4f10/1/0", "GPU-5f1c9a2b1c770e7d9b417a0c2e6d4f10",
])  # fmt: skip
def test_texts_lose_the_identities_of_gpus(identity: str) -> None:
    """By themselves, whoever calls."""
    assert scrubbed(f"NVML lost {identity}: 0x1f") == "NVML lost a GPU: 0x1f"
