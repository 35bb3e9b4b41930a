"""Flags of `vllm serve` that are no option here: they cannot change GPU memory, or may not be left out (0.33)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.option import FlagRule

_WITH_VALUE: Final = """
--host --port --tokenizer --tokenizer-mode --tokenizer-revision --revision --code-revision --hf-config-path --hf-token
--download-dir --seed --chat-template --chat-template-content-format --response-role --ssl-keyfile --ssl-certfile
--ssl-ca-certs --root-path --uvicorn-log-level --allowed-origins --allowed-methods --allowed-headers
--tool-call-parser --tool-parser-plugin --reasoning-parser --max-log-len --log-config-file --generation-config
--override-generation-config --distributed-executor-backend --data-parallel-address --data-parallel-rpc-port
--data-parallel-backend --master-addr --master-port --node-rank --otlp-traces-endpoint --model
--guided-decoding-backend --structured-outputs-config --scheduling-policy --scheduler-cls --worker-cls --model-impl
--max-logprobs --config-format --chat-template-kwargs --default-chat-template-kwargs --uds --model-loader-extra-config
--safetensors-load-strategy --prefix-caching-hash-algo --mm-processor-cache-gb --mm-processor-cache-type
--media-io-kwargs --stream-interval --api-server-count --shutdown-timeout --max-parallel-loading-workers
--kv-events-config --additional-config --observability-config --profiler-config --max-cpu-loras
--kv-offloading-backend --watermark --swap-space --max-seq-len-to-capture --scheduler-delay-factor --preemption-mode
--long-prefill-token-threshold --max-num-partial-prefills --max-long-partial-prefills --data-parallel-size-local
--data-parallel-start-rank --mm-encoder-attn-backend --ssl-ciphers --h11-max-incomplete-event-size
--h11-max-header-count --tool-server --distributed-timeout-seconds --allowed-local-media-path
--collect-detailed-traces --cp-kv-cache-interleave-size --cpu-distributed-timeout-seconds --data-parallel-rank
--dbo-decode-token-threshold --dbo-prefill-token-threshold --dcp-comm-backend --dcp-kv-cache-interleave-size
--default-mm-loras --device-ids --dp-sync-interval --ec-manager-config --eplb-step-interval --eplb-window-size
--expert-placement-strategy --fault-tolerance-config --io-processor-plugin --ir-op-priority --jit-monitor-mode
--kv-cache-metrics-sample --log-level --logging-config --logits-processor-pattern --logprobs-mode
--mamba-cache-philox-rounds --max-lora-cls-labels --max-num-queued-reqs --max-num-queued-tokens
--mm-encoder-fp8-scale-path --mm-encoder-fp8-scale-save-margin --mm-encoder-fp8-scale-save-path --mm-hasher-algorithm
--mm-shm-cache-max-object-size-mb --mm-tensor-ipc --model-class-overrides --num-lookahead-slots
--override-pooler-config --pooler-config --prefill-schedule-interval --prefix-cache-retention-interval
--prefix-match-unit --pt-load-map-location --reasoning-config --reasoning-parser-plugin --renderer-num-workers
--safetensors-prefetch-block-size --safetensors-prefetch-num-threads --show-hidden-metrics-for-version
--sleep-mode-backend --ssl-cert-reqs --watchdog-config --worker-extension-cls --per-request-spec-decode-metrics
--anthropic-disabled-thinking-effort --cohere-format --data-parallel-supervisor-port
--dp-supervisor-probe-failure-threshold --dp-supervisor-probe-interval-s --dp-supervisor-probe-timeout-s
--fingerprint-mode --fingerprint-value --grpc-port --disable-access-log-for-endpoints --long-lora-scaling-factors
--max-prompt-adapter-token --max-prompt-adapters --ngram-prompt-lookup-max --ngram-prompt-lookup-min
--override-neuron-config --quantization-param-path --reasoning-effort-map --spec-decoding-acceptance-method
--speculative-disable-by-batch-size --speculative-max-model-len --sse-keep-alive-interval
--tokenizer-pool-extra-config --tokenizer-pool-size --tokenizer-pool-type --tool-strict-level
--typical-acceptance-sampler-posterior-alpha --typical-acceptance-sampler-posterior-threshold
"""
_WITH_WORDS: Final = """
--served-model-name --lora-modules --api-key --middleware --logits-processors --ignore-patterns
--allowed-media-domains --custom-histogram-buckets --lora-target-modules --numa-bind-cpus --numa-bind-nodes
--prompt-adapters --sleep-preserve-parameter-names
"""
# Switches, with a --no- form.
_SWITCHED: Final = """
aggregate-engine-logging allow-credentials allow-deprecated-quantization calculate-kv-scales cohere-is-reasoning-model
cudagraph-metrics data-parallel-external-lb data-parallel-hybrid-lb data-parallel-multi-port-external-lb
disable-async-output-proc disable-cascade-attn disable-chunked-mm-input disable-fastapi-docs
disable-frontend-multiprocessing disable-log-requests disable-log-stats disable-logprobs-during-spec-decoding
disable-mm-preprocessor-cache disable-nccl-for-dp-synchronization disable-sliding-window-warning
disable-uvicorn-access-log enable-auto-tool-choice enable-ep-weight-filter enable-fault-tolerance
enable-flash-late-interaction enable-flashinfer-autotune enable-force-include-usage enable-layerwise-nvtx-tracing
enable-log-deltas enable-log-outputs enable-log-requests enable-logging-iteration-details
enable-mamba-cache-stochastic-rounding enable-mfu-metrics enable-mm-embeds enable-offline-docs
enable-per-request-metrics enable-prompt-tokens-details enable-reasoning enable-request-id-headers enable-scale-out
enable-server-load-tracking enable-shm-tensor-arena enable-ssl-refresh enable-tokenizer-info-endpoint
eplb-log-balancedness exclude-tools-when-tool-choice-none expand-tools-even-if-tool-choice-none
fail-on-environ-validation grpc guided-decoding-disable-additional-properties guided-decoding-disable-any-whitespace
guided-decoding-disable-fallback headless interleave-mm-strings jit-monitor-verbose kv-cache-metrics log-error-stack
long-prefill-token-threshold-adaptive multi-step-stream-outputs numa-bind ray-workers-use-nsight return-sampling-mask
return-tokens-as-token-ids scheduler-reserve-full-isl show-hidden-metrics skip-tokenizer-init
speculative-disable-mqa-scorer tokens-only trust-remote-code trust-request-chat-template trust-request-mm-kwargs
use-tqdm-on-load use-v2-block-manager worker-use-ray
"""
# What may change memory by an amount that is not known here: planned without it, and said so.
_UNKNOWN_WITH_VALUE: Final = """
--kernel-config --linear-backend --mamba-backend --gdn-prefill-backend --kda-prefill-backend --kda-decode-backend
--mamba-ssu-algorithm --eplb-config --quantization-config --diffusion-config --engram-config --aux-output-config
--offload-backend --offload-group-size --offload-num-in-group --offload-prefetch-step --offload-params
--cpu-offload-params --kv-transfer-config --ec-transfer-config --mm-encoder-attn-dtype --mm-processor-device
--lora-dtype --lora-extra-vocab-size --max-num-scheduled-tokens --video-pruning-rate --video-pruning-method
--weight-transfer-config --watermark-config --ubatch-size --override-attention-dtype --replayssm-buffer-len
--sparse-indexer-topk-backend --elastic-ep-max-dp-size --convert --speculative-model-quantization
--qlora-adapter-name-or-path
"""
_UNKNOWN_SWITCHES: Final = """
enable-return-routed-experts kv-sharing-fast-prefill fully-sharded-loras enable-cumem-allocator enable-elastic-ep
enable-hc-sp enable-lora-bias enable-mixed-moe-lora-format enable-moe-shared-loras enable-nccl-comm-suspend
enable-prompt-adapter enable-prompt-embeds enable-tower-connector-lora enable-trace-replay
enable-batch-sharded-sampling enable-bf16x3-router-gemm enable-mamba-shared-prefix-checkpoint
enable-multimodal-encoder-data-parallel mm-device-do-normalize monokernel sleep-mode-offload-cudagraph
specialize-active-lora swa-bounded-replay use-fp64-gumbel use-replayssm dcp-q-replicate
enable-mamba-fine-grained-prefix-cache
"""

_CHANGED_CONFIG: Final = "Give the changed config.json as the model"
_ROPE: Final = "a changed rope setting changes the context length and the rotary tables"
_REFUSED: Final[dict[str, FlagRule]] = {
    "--config": FlagRule("1", "a file of flags is not read here", "Write its flags on the command line"),
    "--rope-theta": FlagRule("1", _ROPE, _CHANGED_CONFIG),
    "--device": FlagRule("1", "memory is modelled for CUDA devices only", "Leave it out", ("cuda", "auto")),
    "--nnodes": FlagRule("1"),  # the machine is of so many nodes
    "--disable-sliding-window": FlagRule("", "it cuts the context to the window", "Give --max-model-len instead"),
    "--no-disable-sliding-window": FlagRule(),
    "--no-mm-encoder-only": FlagRule(),
    "--cuda-graph-sizes": FlagRule("+", modelled=False),
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
    | {f"--{no}{name}": FlagRule() for name in _SWITCHED.split() for no in ("", "no-")}
    | dict.fromkeys(_UNKNOWN_WITH_VALUE.split(), FlagRule("1", harmless=("{}", "auto", "none"), modelled=False))
    | {f"--{no}{name}": FlagRule(modelled=bool(no)) for name in _UNKNOWN_SWITCHES.split() for no in ("", "no-")}
    | _REFUSED
    | _REFUSED_TASKS
    | _REFUSED_ENVIRONMENT
    | _SHORT
)
