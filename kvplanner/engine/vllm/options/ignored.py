"""Flags of `vllm serve` that are no option here: they cannot change GPU memory, or may not be left out (0.33)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.option import FlagRule

_WITH_VALUE: Final = """
--host --port --tokenizer --tokenizer-mode --tokenizer-revision --revision
--code-revision --hf-config-path --hf-token --download-dir --seed --chat-template --chat-template-content-format
--response-role --ssl-keyfile --ssl-certfile --ssl-ca-certs --root-path --uvicorn-log-level --allowed-origins
--allowed-methods --allowed-headers --tool-call-parser --tool-parser-plugin --reasoning-parser
--max-log-len --log-config-file --generation-config --override-generation-config --distributed-executor-backend
--data-parallel-address --data-parallel-rpc-port --data-parallel-backend --master-addr --master-port --node-rank
--otlp-traces-endpoint --model --guided-decoding-backend
--structured-outputs-config --scheduling-policy --scheduler-cls --worker-cls --model-impl
--max-logprobs --config-format --chat-template-kwargs --default-chat-template-kwargs --uds
--model-loader-extra-config --safetensors-load-strategy --prefix-caching-hash-algo
--mm-processor-cache-gb --mm-processor-cache-type --media-io-kwargs --stream-interval
--api-server-count --shutdown-timeout --max-parallel-loading-workers
--kv-events-config --additional-config --observability-config
--profiler-config --max-cpu-loras --kv-offloading-backend --watermark
--swap-space --max-seq-len-to-capture --scheduler-delay-factor --preemption-mode --long-prefill-token-threshold
--max-num-partial-prefills --max-long-partial-prefills --convert --data-parallel-size-local --data-parallel-start-rank
--mm-encoder-attn-backend --guided-decoding-disable-fallback --ssl-ciphers --h11-max-incomplete-event-size
--h11-max-header-count --tool-server --distributed-timeout-seconds
"""
_WITH_WORDS: Final = """
--served-model-name --lora-modules --api-key --middleware --logits-processors --ignore-patterns
"""
_SWITCHES: Final = """
--trust-remote-code --enable-auto-tool-choice --disable-log-requests --no-enable-log-requests --enable-log-requests
--disable-log-stats --disable-uvicorn-access-log --enable-prompt-tokens-details --enable-force-include-usage
--enable-server-load-tracking --return-tokens-as-token-ids --disable-fastapi-docs --allow-credentials
--enable-request-id-headers --headless --enable-reasoning --scheduler-reserve-full-isl
--no-scheduler-reserve-full-isl --enable-log-outputs --enable-log-deltas --no-enable-log-deltas
--disable-sliding-window-warning --enable-mfu-metrics --kv-cache-metrics --enable-tokenizer-info-endpoint
--enable-offline-docs --numa-bind --show-hidden-metrics --exclude-tools-when-tool-choice-none
--interleave-mm-strings --use-v2-block-manager --disable-frontend-multiprocessing --worker-use-ray
--ray-workers-use-nsight --disable-async-output-proc --multi-step-stream-outputs --no-multi-step-stream-outputs
--disable-chunked-mm-input --data-parallel-hybrid-lb --data-parallel-external-lb
--enable-ssl-refresh --no-enable-prompt-tokens-details --enable-per-request-metrics --log-error-stack
--disable-nccl-for-dp-synchronization --use-tqdm-on-load --allow-deprecated-quantization
"""

_CHANGED_CONFIG: Final = "Give the changed config.json as the model"
_ROPE: Final = "a changed rope setting changes the context length and the rotary tables"
_CONNECTOR: Final = "a KV connector keeps buffers of its own on the GPU and changes how the cache is managed"
_REFUSED: Final[dict[str, FlagRule]] = {
    "--config": FlagRule("1", "a file of flags is not read here", "Write its flags on the command line"),
    "--rope-theta": FlagRule("1", _ROPE, _CHANGED_CONFIG),
    "--device": FlagRule("1", "memory is modelled for CUDA devices only", "Leave it out", ("cuda", "auto")),
    "--kv-transfer-config": FlagRule("1", _CONNECTOR, "Leave it out to plan without a connector"),
    "--ec-transfer-config": FlagRule("1", _CONNECTOR, "Leave it out to plan without a connector"),
    "--nnodes": FlagRule(
        "1", "GPUs of several machines are planned as one machine", "Leave it out, and name all GPUs with --gpu", ("1",)
    ),
    "--attention-config": FlagRule(
        "1", "only its back end is modelled, and an option names that", "Use --attention-backend", ("{}",)
    ),
}
_TASK: Final = "only generation is planned by flags: another task follows from the model"
_REFUSED_TASKS: Final[dict[str, FlagRule]] = {
    "--task": FlagRule("1", _TASK, "Leave it out", ("auto", "generate")),
    "--runner": FlagRule("1", _TASK, "Leave it out", ("auto", "generate")),
    "--num-scheduler-steps": FlagRule(
        "1", "scheduling of several steps at once is not modelled", "Leave it out", ("1",)
    ),
}
# Environment variables that a plan may not leave out, by their names.
_REFUSED_ENVIRONMENT: Final[dict[str, FlagRule]] = {
    "VLLM_USE_V1": FlagRule(
        "1", "the older engine has other memory rules", "Plan a release that runs it: --engine-version 0.7.3", ("1",)
    ),
    "VLLM_MLA_DISABLE": FlagRule("1", "it makes latent attention keep whole keys and values", "Leave it out", ("0",)),
    "VLLM_ENABLE_STARTUP_PLAN": FlagRule(
        "1", "it sizes the cache as an earlier start suggested", "Use --kv-cache-memory-bytes instead", ("0",)
    ),
}
_SHORT: Final[dict[str, FlagRule]] = {
    "-cc": FlagRule("1", same_as="--compilation-config"),
    "-O": FlagRule("1", same_as="--compilation-config"),
    "-sc": FlagRule("1", same_as="--speculative-config"),
    "-ac": FlagRule("1", same_as="--attention-config"),
}

IGNORED_FLAGS: Final[dict[str, FlagRule]] = (
    dict.fromkeys(_WITH_VALUE.split(), FlagRule("1"))
    | dict.fromkeys(_WITH_WORDS.split(), FlagRule("+"))
    | dict.fromkeys(_SWITCHES.split(), FlagRule())
    | _REFUSED
    | _REFUSED_TASKS
    | _REFUSED_ENVIRONMENT
    | _SHORT
)
