"""Flags of SGLang that are no option here: they cannot change GPU memory, or may not be left out (0.5.23)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.option import FlagRule

_WITH_VALUE: Final = """
--host --port --tokenizer-path --tokenizer-mode --tokenizer-backend --tokenizer-worker-num --detokenizer-worker-num
--fastapi-root-path --grpc-port --grpc-response-timeout-secs --grpc-worker-threads --sidecar --warmups
--http2-max-concurrent-streams --http2-initial-connection-window-size --ssl-keyfile --ssl-certfile --ssl-ca-certs
--ssl-keyfile-password --api-key --admin-api-key --served-model-name --weight-version --chat-template
--hf-chat-template-name --completion-template --file-storage-path --reasoning-parser --default-chat-template-kwargs
--tool-call-parser --tool-server --sampling-defaults --asr-max-buffer-seconds --asr-max-concurrent-sessions
--preferred-sampling-params --stream-interval --batch-notify-size --constrained-json-whitespace-pattern
--constrained-json-max-whitespace-cnt --dynamic-batch-tokenizer-batch-size --dynamic-batch-tokenizer-batch-timeout
--log-level --log-level-http --log-requests-level --log-requests-format --crash-dump-folder --decode-log-interval
--load-snapshot-publish-interval --tokenizer-metrics-custom-labels-header --extra-metric-labels --kv-events-config
--gc-warning-threshold-secs --otlp-traces-endpoint --otlp-service-name --trace-modules --export-metrics-to-file-dir
--random-seed --seed --watchdog-timeout --soft-watchdog-timeout --base-gpu-id --gpu-id-step --dist-timeout
--dist-init-addr --nccl-init-addr --nccl-port --node-rank --load-balance-method --revision --download-dir
--model-loader-extra-config --model-impl --model-config-parser --load-format --schedule-policy
--schedule-conservativeness --max-queued-requests --default-priority-value --priority-scheduling-preemption-threshold
--retraction-policy --num-continuous-decode-steps --scheduler-recv-interval --prefill-decode-interval
--radix-eviction-policy --sampling-backend --grammar-backend --fp8-gemm-backend --fp8-gemm-runner-backend
--fp4-gemm-backend --fp4-gemm-runner-backend --bf16-gemm-backend --dsa-topk-backend --mm-attention-backend
--media-url-max-file-size-mb --limit-mm-data-per-request --mm-processor-worker-num --mm-io-worker-num
--image-processor-backend --lora-eviction-policy --lora-backend --max-lora-chunk-size --max-loaded-loras
--speculative-accept-threshold-single --speculative-accept-threshold-acc --speculative-attention-mode
--speculative-draft-model-revision --speculative-ngram-min-bfs-breadth --speculative-ngram-max-bfs-breadth
--speculative-ngram-match-type --speculative-ngram-max-trie-depth --speculative-ngram-capacity
--hicache-write-policy --hicache-io-backend --hicache-mem-layout --hicache-storage-backend
--hicache-storage-prefetch-policy --hicache-storage-backend-extra-config --hicache-host-memory-fraction
--triton-attention-num-kv-splits --triton-attention-split-tile-size --mamba-backend --mamba-track-interval
--linear-attn-decode-backend --linear-attn-prefill-backend --torch-compile-max-bs --dcp-comm-backend --deepep-mode
--deepep-config --eplb-algorithm --eplb-rebalance-num-iterations --pp-max-micro-batch-size --pp-async-batch-depth
--weight-loader-prefetch-num-threads --startup-weight-load-mode --min-free-slots-delay --prefill-max-requests
"""
_WITH_WORDS: Final = """
--lora-paths --lora-target-modules --bucket-time-to-first-token --bucket-inter-token-latency
--bucket-e2e-request-latency --prompt-tokens-buckets --generation-tokens-buckets --log-requests-target
--allowed-media-domains --numa-node --gc-threshold
"""
_SWITCHES: Final = """
--trust-remote-code --skip-tokenizer-init --skip-server-warmup --enable-http2 --enable-ssl-refresh --log-requests
--show-time-cost --enable-metrics --enable-mfu-metrics --enable-metrics-for-all-schedulers --enable-trace
--enable-request-time-stats-logging --enable-cache-report --return-input-ids --return-output-ids
--enable-custom-logit-processor --stream-output --incremental-streaming-output --enable-streaming-session
--allow-auto-truncate --enable-tokenizer-batch-encode --disable-tokenizer-batch-decode --sleep-on-idle --use-ray
--disable-outlines-disk-cache --disable-custom-all-reduce --enable-mixed-chunk --enable-p2p-check
--enable-priority-scheduling --disable-priority-preemption --schedule-low-priority-values-first
--weight-loader-disable-mmap --weight-loader-prefetch-checkpoints --weight-loader-drop-cache-after-load
--enable-dp-lm-head --disable-cuda-graph-padding --enable-profile-cuda-graph --enable-cudagraph-gc
--enable-nccl-nvls --enable-mscclpp --enable-flashinfer-allreduce-fusion --disable-flashinfer-autotune
--enable-deterministic-inference --triton-attention-reduce-in-fp32 --disable-chunked-prefix-cache
--enable-fused-qk-norm-rope --enable-broadcast-mm-inputs-process --disable-fast-image-processor
--enable-single-batch-overlap --disable-fake-graph --enable-torch-compile --enable-tf32-matmul
"""
_NOT_PLANNED: Final = "its memory is not modelled"
_LEAVE: Final = "Leave it out to plan without it"
_REFUSED: Final[dict[str, FlagRule]] = {
    "--enable-piecewise-cuda-graph": FlagRule("", "it captures prefill graphs, which 0.5.10 and later do unasked",
                                              "Write --cuda-graph-backend-prefill tc_piecewise"),
    "--enable-hisparse": FlagRule("", f"HiSparse keeps part of the cache in host memory: {_NOT_PLANNED}", _LEAVE),
    "--enable-unified-memory": FlagRule("", f"one pool for windows, states and cache: {_NOT_PLANNED}", _LEAVE),
    "--enable-page-major-kv-layout": FlagRule("", f"it needs unified memory: {_NOT_PLANNED}", _LEAVE),
    "--enable-kv-cache-sharding": FlagRule("", f"sharded pages need buffers of their own: {_NOT_PLANNED}", _LEAVE),
    "--enable-symm-mem": FlagRule("", f"it preallocates 4 GB of symmetric memory: {_NOT_PLANNED}",
                                  "Leave it out, and give less free memory with --free"),
    "--enable-memory-saver": FlagRule("", f"weights and caches may be given back: {_NOT_PLANNED}", _LEAVE),
    "--enable-pdmux": FlagRule("", f"prefill and decode share a GPU: {_NOT_PLANNED}", _LEAVE),
    "--enable-prefill-cp": FlagRule("", f"prefill context parallelism: {_NOT_PLANNED}", _LEAVE),
    "--enable-eplb": FlagRule("", f"copies of busy experts: {_NOT_PLANNED}", _LEAVE),
    "--enable-linear-replayssm": FlagRule("", f"buffers of replayed states: {_NOT_PLANNED}", _LEAVE),
    "--enable-int8-mamba-checkpoint": FlagRule("", f"a second pool of 8-bit states: {_NOT_PLANNED}", _LEAVE),
    "--enable-lmcache": FlagRule("", f"LMCache keeps buffers of its own: {_NOT_PLANNED}", _LEAVE),
    "--enable-flexkv": FlagRule("", f"FlexKV keeps buffers of its own: {_NOT_PLANNED}", _LEAVE),
    "--prefill-only-disable-kv-cache": FlagRule("", f"a server without a cache: {_NOT_PLANNED}", _LEAVE),
    "--dcp-size": FlagRule("1", f"decode context parallelism: {_NOT_PLANNED}", _LEAVE, ("1",)),
    "--decode-context-parallel-size": FlagRule("1", f"decode context parallelism: {_NOT_PLANNED}", _LEAVE, ("1",)),
    "--attn-cp-size": FlagRule("1", f"attention context parallelism: {_NOT_PLANNED}", _LEAVE, ("1",)),
    "--moe-dense-tp-size": FlagRule("1", f"dense layers split otherwise than experts: {_NOT_PLANNED}", _LEAVE),
    "--moe-dp-size": FlagRule("1", f"experts in data-parallel groups: {_NOT_PLANNED}", _LEAVE, ("1",)),
    "--dwdp-size": FlagRule("1", f"weights spread over data-parallel ranks: {_NOT_PLANNED}", _LEAVE, ("1",)),
    "--ep-num-redundant-experts": FlagRule("1", f"copies of busy experts: {_NOT_PLANNED}", _LEAVE, ("0",)),
    "--disaggregation-mode": FlagRule("1", f"nodes of prefill or decode only: {_NOT_PLANNED}", _LEAVE, ("null",)),
    "--kt-weight-path": FlagRule("1", f"experts on the host (KTransformers): {_NOT_PLANNED}", _LEAVE),
    "--torchao-config": FlagRule("1", f"weights are packed as they are loaded: {_NOT_PLANNED}", _LEAVE, ("",)),
    "--json-model-override-args": FlagRule("1", "it changes the model's config",
                                           "Give the changed config.json as the model", ("{}",)),
    "--cuda-graph-config": FlagRule("1", "graphs are planned from their own flags",
                                    "Use --cuda-graph-backend-decode and its like", ("{}",)),
    "--device": FlagRule("1", "memory is modelled for CUDA devices only", "Leave it out", ("cuda", "auto")),
    "--nnodes": FlagRule("1"),  # the machine is of so many nodes
    "--config": FlagRule("1", "a file of flags is not read here", "Write its flags on the command line"),
    "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": FlagRule("1", f"pools sized after the graphs: {_NOT_PLANNED}",
                                                     "Leave it out", ("0", "false", "False")),
    "--is-embedding": FlagRule("", "only generation is planned", "Leave it out"),
}  # fmt: skip

IGNORED_FLAGS: Final[dict[str, FlagRule]] = (
    dict.fromkeys(_WITH_VALUE.split(), FlagRule("1"))
    | dict.fromkeys(_WITH_WORDS.split(), FlagRule("+"))
    | dict.fromkeys(_SWITCHES.split(), FlagRule())
    | _REFUSED
)
