"""Seeds that are text: plan files, recordings, metrics pages and command lines of every kind that is read."""

from __future__ import annotations

import json
from typing import Final

from kvplanner.observe.recording import FORMAT, HEADER
from kvplanner.request.planfile import SCHEMA
from tests.observe.kit import VLLM_NEW

_GPU = "gpu,1,1.0,1.0,1,0,GPU-1,0,X,gpu,,,9,1,2,6,0,5,40,1000,ok,,,,,,,,"
_PROCESS = "process,1,1.0,1.0,1,0,GPU-1,,,,,,,,,,,,,,,,7,1000,C,python,me,vllm,7"
_HEAD = f"# {FORMAT}\n{','.join(HEADER)}\n"


def _plan(**fields: object) -> str:
    whole = {"schema": SCHEMA, "model": "Qwen/Qwen3-0.6B", "machine": "2xRTX 4090", "engine": {"name": "vllm"}}
    return json.dumps({**whole, **fields})


PLANS: Final = {
    "least": _plan(),
    "release": _plan(engine={"name": "vllm", "version": "0.24"}),
    "options": _plan(options={"tensor_parallel": 2, "max_model_len": 4096, "enforce_eager": True}),
    "load": _plan(load={"prompt": 1000, "output": 200, "users": 8}),
    "free": _plan(free_bytes={"0": 20_000_000_000}),
    "measured": _plan(measured={"weights": 1_000_000_000}),
    "format": _plan(weight_format="fp8"),
    "sglang": _plan(engine={"name": "sglang"}, options={"mem_fraction_static": 0.8}),
    "llamacpp": _plan(engine={"name": "llamacpp"}, options={"n_gpu_layers": 10}),
    "ollama": _plan(engine={"name": "ollama"}),
    "newer": _plan(schema="kvplanner.plan-file/99"),
    "window": _plan(window={"machine": "4xRTX 4090", "unticked": [1, 2], "free_bytes": {"3": 5}}),
    "moe": _plan(model="openai/gpt-oss-20b"),
}

RECORDINGS: Final = {
    "empty": "",
    "head": _HEAD,
    "gpu": _HEAD + _GPU + "\n",
    "process": _HEAD + _GPU + "\n" + _PROCESS + "\n",
    "two": _HEAD + _GPU + "\n" + _GPU.replace("gpu,1", "gpu,2") + "\n",
    "other-gpu": _HEAD + _GPU + "\n" + _GPU.replace("GPU-1", "GPU-2") + "\n",
    "lost": _HEAD + _GPU.replace(",ok,", ",lost,gone") + "\n",
    "no-figures": _HEAD + "gpu,1,1.0,1.0,1,0,GPU-1,0,X,gpu,,,,,,,,,,,stalled,no answer,,,,,,,\n",
    "mig": _HEAD + _GPU.replace("X,gpu,,", "X,mig,GPU-0,3") + "\n",
    "quoted": _HEAD + _GPU.replace("X", '"a, ""b"""') + "\n",
    "newer": _HEAD.replace("/1", "/2"),
    "columns": _HEAD.replace("uuid,", "uuid,more,"),
}

PAGES: Final = {
    "vllm": VLLM_NEW,
    "vllm-old": 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
    'vllm:cache_config_info{block_size="16",cache_dtype="auto",num_gpu_blocks="1000"} 1.0\n',
    "vllm-two": 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5\n'
    'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25\n',
    "llamacpp": "llamacpp:kv_cache_usage_ratio 0.125\nllamacpp:kv_cache_tokens 1024\n",
    "sglang": 'sglang:token_usage{model_name="m"} 0.5\nsglang:num_used_tokens{model_name="m"} 512\n'
    'sglang:max_total_num_tokens{model_name="m"} 1024\n',
    "nan": 'vllm:kv_cache_usage_perc{model_name="m"} NaN\n',
    "infinite": 'vllm:kv_cache_usage_perc{model_name="m"} +Inf\n',
    "negative": 'vllm:num_requests_running{model_name="m"} -1\n',
    "exponent": 'vllm:num_requests_running{model_name="m"} 1e308\n',
    "quotes": 'vllm:num_requests_running{model_name="a\\"b\\\\c\\nd"} 1\n',
    "none": "up 1\n",
}

COMMANDS: Final = {
    "vllm": "vllm serve Qwen/Qwen3-0.6B --max-model-len 8192 --gpu-memory-utilization=0.9 -tp 2",
    "vllm-module": "python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-0.6B --max-num-seqs 8",
    "docker": "docker run --rm --gpus all -e VLLM_USE_V1=0 -p 8000:8000 vllm/vllm-openai:v0.24.0 --model M -tp 2",
    "environment": "CUDA_VISIBLE_DEVICES=1 VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve M --kv-cache-dtype fp8",
    "json": "vllm serve M --compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4]}' -O.level=2",
    "sglang": "python3 -m sglang.launch_server --model-path M --tp 2 --mem-fraction-static 0.8",
    "llamacpp": "llama-server -m M -ngl 99 -c 32768 -ctk q8_0 -ctv q8_0 -ts 3,1 -ot exps=CPU --n-cpu-moe 4",
    "ollama": "OLLAMA_NUM_PARALLEL=4 OLLAMA_FLASH_ATTENTION=1 ollama serve",
    "pipes": "vllm serve M --max-num-seqs 4 2>&1 | tee log &",
    "continued": "vllm serve M \\\n  --enforce-eager \\\n  --max-num-seqs 4 # few",
    "quotes": "vllm serve 'M' --dtype \"half",
    "other": "vllm bench throughput --model M",
}
