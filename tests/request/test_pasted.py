"""Whatever starts a server can be pasted: the same words come of it, nothing is run, and nothing takes long."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.catalog import models
from kvplanner.errors import BadInput, PlannerError
from kvplanner.model.model import Model
from kvplanner.request.pasted import is_log, read, starts_server
from kvplanner.request.words import ModelElsewhere, PlanWords, Sources, build
from tests.cli.hostile_files import texts
from tests.patience import processor_seconds

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
WANTED = {"max_model_len": 8192, "gpu_memory_utilization": 0.85, "tensor_parallel_size": 2, "enforce_eager": True}
FLAGS = "--max-model-len 8192 --gpu-memory-utilization 0.85 --tensor-parallel-size 2 --enforce-eager"

TEXTS = {
    "lines that a page has broken": f"$ vllm serve {LLAMA}\n    --max-model-len 8192 \n --gpu-memory-utilization 0.85\n"
                                    "    -tp 2 --enforce-eager\n$ curl http://localhost:8000/v1/models",
    "a fenced block with comments": f"```bash\n# eager, since the graphs do not fit\nexport VLLM_LOGGING_LEVEL=INFO\n"
                                    f"vllm serve {LLAMA} \\\n  {FLAGS}  # all\n```",
    "a script with variables": f"#!/bin/bash\nset -e\nMODEL={LLAMA}\nLEN=${{LEN:-8192}}\nvllm serve $MODEL "
                               f"{FLAGS.replace('8192', '${LEN}')} > out.log 2>&1 &\nsleep 60",
    "a shell within docker": f"docker run --gpus all --entrypoint bash vllm/vllm-openai:v0.20.0 -c "
                             f"'pip install x && vllm serve {LLAMA} {FLAGS}'",
    "PowerShell": f"PS C:\\Users\\jo> docker run `\n  vllm/vllm-openai:latest `\n  --model {LLAMA} `\n  {FLAGS}",
    "compose, a text": f"""
services:
  llm:
    image: vllm/vllm-openai:${{TAG:-v0.20.0}}
    command: --model {LLAMA} {FLAGS}
""",
    "compose with an anchor": f"""
x-gpu: &gpu
  deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, count: all, capabilities: [gpu]}}]}}}}}}
services:
  cache: {{image: redis}}
  llm:
    <<: *gpu
    image: vllm/vllm-openai
    environment: [VLLM_USE_V1=1]
    command: ["--model", "{LLAMA}", "--max-model-len", "8192", "--gpu-memory-utilization=0.85",
              "--tensor-parallel-size", "2", "--enforce-eager"]
""",
    "a shell in Kubernetes": f"""
apiVersion: v1
kind: Service
metadata: {{name: llm}}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: llm
        image: registry.local/our/build:7
        command: ["/bin/sh", "-c"]
        args:
          - >-
            vllm serve {LLAMA}
            {FLAGS}
        env:
        - {{name: HF_TOKEN, valueFrom: {{secretKeyRef: {{name: s, key: k}}}}}}
        - {{name: VLLM_ATTENTION_BACKEND, value: FLASH_ATTN}}
""",
    "a custom resource": f"""
kind: InferenceService
spec:
  predictor:
    model:
      image: vllm/vllm-openai:v0.20.0
      args: [--model, {LLAMA}, --max-model-len=8192, --gpu-memory-utilization=0.85, -tp, "2", --enforce-eager]
""",
    "LLM(...)": f"""
import os
from vllm import LLM, SamplingParams
os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
size = 2
llm = LLM("{LLAMA}", tensor_parallel_size=size, max_model_len=8 * 1024, enforce_eager=True,
          gpu_memory_utilization=0.85, trust_remote_code=True, seed=None)
out = llm.generate(prompts)
""",
    "AsyncEngineArgs in an indented part": f"""
        engine_args = AsyncEngineArgs(
            model="{LLAMA}",
            tensor_parallel_size=2,
            max_model_len=8192,
            gpu_memory_utilization=0.85,
            enforce_eager=True,
            disable_log_stats=False,
        )
        self.engine = AsyncLLMEngine.from_engine_args(engine_args)
""",
    "arguments spread": f"""
kwargs = dict(max_model_len=8192, enforce_eager=True)
vllm.LLM(model="{LLAMA}", gpu_memory_utilization=.85, tensor_parallel_size=2, **kwargs)
""",
    "a unit": f"""
[Unit]
Description=LLM
[Service]
User=llm
Environment="HF_HOME=/data/hf" VLLM_LOGGING_LEVEL=INFO
ExecStart=/opt/venv/bin/vllm serve {LLAMA} \\
    {FLAGS}
Restart=always
""",
    "a Dockerfile": f"""
FROM vllm/vllm-openai:v0.20.0
ENV VLLM_LOGGING_LEVEL=INFO
RUN pip install -U transformers
CMD ["--model", "{LLAMA}", "--max-model-len", "8192", "--gpu-memory-utilization", "0.85", "-tp", "2", "--enforce-eager"]
""",
}  # fmt: skip


def built(text: str, *, model: str = "", gpu: str = "2xH100", **more: object) -> object:
    return build(PlanWords(model=model, gpu=gpu, flags=(text,)), Sources(_open, lambda: None, **more))  # type: ignore[arg-type]  # fields of sources, by name


def _open(name: str) -> Model:
    return models.load(models.find(name).id)


@pytest.mark.parametrize("name", TEXTS)
def test_the_same_server_in_any_form(name: str) -> None:
    assert starts_server(TEXTS[name])
    request = build(PlanWords(gpu="2xH100", flags=(TEXTS[name],)), Sources(_open, lambda: None)).request
    assert request.model.id == LLAMA
    assert {key: request.options[key] for key in WANTED} == WANTED
    assert set(request.options) - set(WANTED) <= {"usage", "attention_backend"}


OTHERS = [
    ("sglang", "import sglang as sgl\nllm = sgl.Engine(model_path='Qwen/Qwen3-8B', mem_fraction_static=0.7, tp_size=2)",
     "Qwen/Qwen3-8B", {"mem_fraction_static": 0.7, "tp_size": 2}),
    ("sglang", "docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server "
     "--model-path Qwen/Qwen3-8B --context-length 8192 --tp 2",
     "Qwen/Qwen3-8B", {"context_length": 8192, "tp_size": 2}),
    ("llamacpp", "LLAMA_ARG_MODEL=/models/Qwen3-8B-Q4_K_M.gguf\nLLAMA_ARG_CTX_SIZE=8192\n", "", {}),
    ("ollama", "# the service\nOLLAMA_CONTEXT_LENGTH=8192\nOLLAMA_NUM_PARALLEL=2\nOLLAMA_KV_CACHE_TYPE=q8_0\n",
     "Qwen/Qwen3-8B", {"num_ctx": 8192, "num_parallel": 2, "kv_cache_type": "q8_0"}),
    ("ollama", "FROM Qwen3-8B\nPARAMETER num_ctx 8192\nPARAMETER temperature 0.7\nPARAMETER num_gpu 20\nSYSTEM You are",
     "Qwen/Qwen3-8B", {"num_ctx": 8192, "num_gpu": 20}),
    ("vllm", "VLLM_ATTENTION_BACKEND=FLASH_ATTN\n", LLAMA, {}),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "text", "model", "options"), OTHERS)
def test_other_engines_say_which_they_are(engine: str, text: str, model: str, options: dict[str, object]) -> None:
    named = "" if "FROM" in text or "Qwen/" in text else model or "Qwen/Qwen3-8B"
    request = build(PlanWords(model=named, gpu="2xRTX 4090", flags=(text,)), Sources(_open, lambda: None)).request
    assert request.engine == engine
    assert {key: request.options[key] for key in options} == options
    if model:
        assert request.model.id == model


PATHS = {
    "/models/Llama-3.1-8B-Instruct": LLAMA,
    "/models/meta-llama/Llama-3.1-8B-Instruct/": LLAMA,
    "~/.cache/huggingface/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e39f249a16976918f6564b8830bc894c89659":
        LLAMA,
    "/mnt/nas/Llama-3.1-8B-Instruct/hf": LLAMA,
    "/models/meta-llama--Llama-3.1-8B-Instruct": LLAMA,
    r"D:\models\Llama-3.1-8B-Instruct": LLAMA,
    "/models/Qwen3-8B/config.json": "Qwen/Qwen3-8B",
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_another_machine_is_found_by_its_last_parts(path: str) -> None:
    found = build(PlanWords(gpu="H100", flags=(f"vllm serve '{path}'",)), Sources(_open, lambda: None))
    assert found.request.model.id == PATHS[path]
    assert any("is not on this machine" in warning and PATHS[path] in warning for warning in found.warnings)


def test_an_unknown_path_is_asked_for_and_remembered(tmp_path: Path) -> None:
    text = "vllm serve /models/kestrel-v3 --max-model-len 4096"
    with pytest.raises(ModelElsewhere) as caught:
        build(PlanWords(gpu="H100", flags=(text,)), Sources(_open, lambda: None))
    assert caught.value.path == "/models/kestrel-v3"
    named = build(PlanWords(model="Qwen3-8B", gpu="H100", flags=(text,)), Sources(_open, lambda: None))
    assert named.request.model.id == "Qwen/Qwen3-8B"
    known = Sources(_open, lambda: None, remembered={"/models/kestrel-v3": "Qwen/Qwen3-8B"})
    assert build(PlanWords(gpu="H100", flags=(text,)), known).request.model.id == "Qwen/Qwen3-8B"
    served = build(PlanWords(gpu="H100", flags=(f"{text} --served-model-name Qwen3-8B",)), Sources(_open, lambda: None))
    assert served.request.model.id == "Qwen/Qwen3-8B"
    # What lies here is opened as it is, whatever it is called.
    (tmp_path / "Qwen3-8B").mkdir()
    seen: list[str] = []

    def opened(name: str) -> Model:
        seen.append(name)
        return _open("Qwen3-8B")

    build(PlanWords(gpu="H100", flags=(f"vllm serve {tmp_path}/Qwen3-8B",)), Sources(opened, lambda: None))
    assert seen == [f"{tmp_path}/Qwen3-8B"]


def test_several_servers_are_counted_and_the_first_is_planned() -> None:
    text = f"vllm serve {LLAMA} --gpu-memory-utilization 0.5 --port 8000 &\nvllm serve Qwen/Qwen3-8B --port 8001 &\n"
    found = read(text)
    assert [words[2] for words in found.servers] == [LLAMA, "Qwen/Qwen3-8B"]
    planned = build(PlanWords(gpu="H100", flags=(text,)), Sources(_open, lambda: None))
    assert planned.request.model.id == LLAMA
    assert "2 servers are started: the first one is planned" in planned.warnings


LOGS = [
    "INFO 05-11 14:20:11 [api_server.py:1042] vLLM API server version 0.9.0\nINFO 05-11 14:20:12 vllm serve x\n"
    "WARNING 05-11 14:20:12 [config.py:58] y\n",
    "time=2025-01-01T00:00:00Z level=INFO source=x msg=a\n" * 3,
    "llama_model_loader: loaded meta data\nload_tensors: offloading 32 layers\nllama_context: n_ctx = 4096\n",
]


@pytest.mark.parametrize("text", LOGS)
def test_a_log_is_no_command(text: str) -> None:
    assert is_log(text)
    assert not starts_server(text)
    with pytest.raises(BadInput, match="start-up log"):
        read(text)


@pytest.mark.parametrize(
    "text", ["hello world", "", "git commit -m 'vllm serve'", "just some\nlines of text\n", "{}", "a: b"]
)
def test_other_texts_start_nothing(text: str) -> None:
    assert not starts_server(text)


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(12)
)
HOSTILE = [
    "services:\n" + LAUGHS,
    "services:\n  x: " + "[" * 5000,
    "args: !!python/object/apply:os.system ['touch /tmp/pwned']",
    "LLM(" + "(" * 5000,
    "LLM(model=__import__('os').system('id'))",
    "LLM(model='x', max_model_len=9**9**9)",
    "vllm serve 'x",
    "services:\n" + "  a:\n    image: vllm/vllm-openai\n" * 8000,
    "x" * (1 << 19) + " vllm serve y",
    "[Service]\nExecStart=" + '"' * 40_000,
    "FROM x\n" + "PARAMETER num_ctx " * 20_000,
    "vllm serve " + "$" * 50_000 + "{" * 50_000,
    *(text for _, text in texts()),
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_end_soon_and_run_nothing(text: str) -> None:
    with processor_seconds(3, text[:60]):
        try:
            build(PlanWords(model="Qwen3-8B", gpu="H100", flags=(text,)), Sources(_open, lambda: None))
        except PlannerError as error:
            assert len(str(error)) < 2000
    assert not Path("/tmp/pwned").exists()


PIECES = (
    "services:", "  a:", "    image: vllm/vllm-openai", "    command: >", "- --model", "LLM(", "model='x'", ")",
    "FROM x", "ExecStart=vllm serve x", "A=b", "vllm serve", "'", '"', "${x:-y}", "# z", "PARAMETER num_ctx 1",
    "&a", "*a", "CMD",
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=8).map("\n".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(PlannerError):
        read(text)
    starts_server(text)


@pytest.mark.parametrize(("flag", "value", "name", "kept"), [
    ("--speculative-config", "{method:ngram,num_speculative_tokens:3}", "num_speculative_tokens", 3),
    ("--speculative-config", "{'method': 'ngram', 'num_speculative_tokens': 3}", "num_speculative_tokens", 3),
    ("--limit-mm-per-prompt", "{image:4,video:0}", "limit_mm_per_prompt", '{"image": 4, "video": 0}'),
])  # fmt: skip
def test_an_object_whose_quotes_a_shell_took_is_read(flag: str, value: str, name: str, kept: object) -> None:
    words = PlanWords(gpu="H100", flags=("vllm", "serve", LLAMA, flag, value))
    assert build(words, Sources(_open, lambda: None)).request.options[name] == kept


SERVERS_LOGS = Path(__file__).parent.parent / "diagnose" / "logs"


@pytest.mark.parametrize("log", sorted(SERVERS_LOGS.glob("*/*.log")), ids=lambda log: log.name)
def test_every_kind_of_log_is_known_as_one(log: Path) -> None:
    assert is_log(log.read_text(encoding="utf-8", errors="replace"))


def test_what_a_bad_text_was_read_for_is_not_kept() -> None:
    class Caller:
        """Stands for a window, whose method pastes."""

        def paste(self) -> None:
            with pytest.raises(BadInput, match="No closing quotation"):
                read('vllm serve Qwen/Qwen3-8B --served-model-name "my')

    caller = Caller()
    left = weakref.ref(caller)
    caller.paste()
    del caller
    gc.collect()
    assert left() is None
