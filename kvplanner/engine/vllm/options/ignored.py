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
--max-num-partial-prefills --max-long-partial-prefills --data-parallel-size-local --data-parallel-start-rank
--mm-encoder-attn-backend --guided-decoding-disable-fallback --ssl-ciphers --h11-max-incomplete-event-size
--h11-max-header-count --tool-server --distributed-timeout-seconds
--allowed-local-media-path --collect-detailed-traces --cp-kv-cache-interleave-size --cpu-distributed-timeout-seconds
--data-parallel-rank --dbo-decode-token-threshold --dbo-prefill-token-threshold --dcp-comm-backend
--dcp-kv-cache-interleave-size --default-mm-loras --device-ids --dp-sync-interval --ec-manager-config
--eplb-step-interval --eplb-window-size --expert-placement-strategy --fault-tolerance-config --io-processor-plugin
--ir-op-priority --jit-monitor-mode --kv-cache-metrics-sample --log-level --logging-config --logits-processor-pattern
--logprobs-mode --long-prefill-token-threshold-adaptive --mamba-cache-philox-rounds --max-lora-cls-labels
--max-num-queued-reqs --max-num-queued-tokens --mm-encoder-fp8-scale-path --mm-encoder-fp8-scale-save-margin
--mm-encoder-fp8-scale-save-path --mm-hasher-algorithm --mm-shm-cache-max-object-size-mb --mm-tensor-ipc
--model-class-overrides --num-lookahead-slots --override-pooler-config --pooler-config --prefill-schedule-interval
--prefix-cache-retention-interval --prefix-match-unit --pt-load-map-location --reasoning-config
--reasoning-parser-plugin --renderer-num-workers --safetensors-prefetch-block-size --safetensors-prefetch-num-threads
--show-hidden-metrics-for-version --sleep-mode-backend --ssl-cert-reqs --watchdog-config --worker-extension-cls
"""
_WITH_WORDS: Final = """
--served-model-name --lora-modules --api-key --middleware --logits-processors --ignore-patterns
--allowed-media-domains --custom-histogram-buckets --lora-target-modules --numa-bind-cpus --numa-bind-nodes
--prompt-adapters --sleep-preserve-parameter-names
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
# The same, which have a --no- form too.
_SWITCHED: Final = """
aggregate-engine-logging calculate-kv-scales cudagraph-metrics data-parallel-multi-port-external-lb
disable-cascade-attn disable-mm-preprocessor-cache enable-ep-weight-filter enable-fault-tolerance
enable-flashinfer-autotune enable-layerwise-nvtx-tracing enable-logging-iteration-details
enable-mamba-cache-stochastic-rounding enable-mm-embeds enable-shm-tensor-arena eplb-log-balancedness
fail-on-environ-validation grpc guided-decoding-disable-additional-properties
guided-decoding-disable-any-whitespace jit-monitor-verbose per-request-spec-decode-metrics return-sampling-mask
skip-tokenizer-init
"""
# What may change memory by an amount that is not known here: planned without it, and said so.
_UNKNOWN_WITH_VALUE: Final = """
--kernel-config --linear-backend --mamba-backend --gdn-prefill-backend --kda-prefill-backend --kda-decode-backend
--mamba-ssu-algorithm --eplb-config --quantization-config --diffusion-config --engram-config --aux-output-config
--offload-backend --offload-group-size --offload-num-in-group --offload-prefetch-step --offload-params
--cpu-offload-params --kv-transfer-config --ec-transfer-config --mm-encoder-attn-dtype --mm-processor-device
--lora-dtype --lora-extra-vocab-size --max-num-scheduled-tokens --video-pruning-rate --video-pruning-method
--weight-transfer-config --watermark-config --ubatch-size --override-attention-dtype --replayssm-buffer-len
--sparse-indexer-topk-backend --elastic-ep-max-dp-size --convert
"""
_UNKNOWN_SWITCHES: Final = """
enable-return-routed-experts kv-sharing-fast-prefill fully-sharded-loras enable-cumem-allocator enable-elastic-ep
enable-hc-sp enable-lora-bias enable-mixed-moe-lora-format enable-moe-shared-loras enable-nccl-comm-suspend
enable-prompt-adapter enable-prompt-embeds enable-tower-connector-lora enable-trace-replay
enable-batch-sharded-sampling enable-bf16x3-router-gemm enable-mamba-shared-prefix-checkpoint
enable-multimodal-encoder-data-parallel mm-device-do-normalize monokernel sleep-mode-offload-cudagraph
specialize-active-lora swa-bounded-replay use-fp64-gumbel use-replayssm dcp-q-replicate
"""

_CHANGED_CONFIG: Final = "Give the changed config.json as the model"
_ROPE: Final = "a changed rope setting changes the context length and the rotary tables"
_REFUSED: Final[dict[str, FlagRule]] = {
    "--config": FlagRule("1", "a file of flags is not read here", "Write its flags on the command line"),
    "--rope-theta": FlagRule("1", _ROPE, _CHANGED_CONFIG),
    "--device": FlagRule("1", "memory is modelled for CUDA devices only", "Leave it out", ("cuda", "auto")),
    "--nnodes": FlagRule("1"),  # the machine is of so many nodes
    "--disable-sliding-window": FlagRule("", "it cuts the context to the window", "Give --max-model-len instead"),
    "--mm-encoder-only": FlagRule("", "a server of encoders alone is not modelled", "Leave it out"),
}
_REFUSED_TASKS: Final[dict[str, FlagRule]] = {
    # What a model does follows from its architecture: a plan leaves another task out and says so.
    "--task": FlagRule("1", harmless=("auto", "generate"), modelled=False),
    "--runner": FlagRule("1", harmless=("auto", "generate"), modelled=False),
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
    | {f"--{no}{name}": FlagRule() for name in _SWITCHED.split() for no in ("", "no-")}
    | dict.fromkeys(_UNKNOWN_WITH_VALUE.split(), FlagRule("1", harmless=("{}", "auto", "none"), modelled=False))
    | {f"--{no}{name}": FlagRule(modelled=bool(no)) for name in _UNKNOWN_SWITCHES.split() for no in ("", "no-")}
    | _REFUSED
    | _REFUSED_TASKS
    | _REFUSED_ENVIRONMENT
    | _SHORT
)
