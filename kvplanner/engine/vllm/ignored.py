"""Flags of `vllm serve` that cannot change GPU memory, and whether each takes a value (0.33)."""

from __future__ import annotations

from typing import Final

_WITH_VALUE = """
--host --port --api-key --served-model-name --tokenizer --tokenizer-mode --tokenizer-revision --revision
--code-revision --hf-config-path --hf-token --download-dir --seed --chat-template --chat-template-content-format
--response-role --ssl-keyfile --ssl-certfile --ssl-ca-certs --root-path --uvicorn-log-level --allowed-origins
--allowed-methods --allowed-headers --middleware --tool-call-parser --tool-parser-plugin --reasoning-parser
--max-log-len --log-config-file --generation-config --override-generation-config --distributed-executor-backend
--data-parallel-address --data-parallel-rpc-port --data-parallel-backend --master-addr --master-port --node-rank
--nnodes --otlp-traces-endpoint --collect-detailed-traces --lora-modules --model --guided-decoding-backend
--structured-outputs-config --scheduling-policy --scheduler-cls --worker-cls --model-impl --logits-processors
--max-logprobs --config --config-format --chat-template-kwargs --default-chat-template-kwargs --uds --device
--model-loader-extra-config --ignore-patterns --safetensors-load-strategy --prefix-caching-hash-algo
--mm-processor-cache-gb --mm-processor-cache-type --interleave-mm-strings --media-io-kwargs --stream-interval
--api-server-count --shutdown-timeout --max-parallel-loading-workers --rope-scaling --rope-theta
--kv-transfer-config --kv-events-config --ec-transfer-config --additional-config --observability-config
--attention-config --profiler-config --max-cpu-loras --kv-offloading-backend --watermark
"""
_SWITCHES = """
--trust-remote-code --enable-auto-tool-choice --disable-log-requests --no-enable-log-requests --enable-log-requests
--disable-log-stats --disable-uvicorn-access-log --enable-prompt-tokens-details --enable-force-include-usage
--enable-server-load-tracking --return-tokens-as-token-ids --disable-fastapi-docs --allow-credentials
--enable-request-id-headers --headless --enable-reasoning --scheduler-reserve-full-isl
--no-scheduler-reserve-full-isl --enable-log-outputs --enable-log-deltas --no-enable-log-deltas
--disable-sliding-window-warning --enable-mfu-metrics --kv-cache-metrics --enable-tokenizer-info-endpoint
--enable-offline-docs --numa-bind --show-hidden-metrics --exclude-tools-when-tool-choice-none
"""

IGNORED_FLAGS: Final[dict[str, bool]] = dict.fromkeys(_WITH_VALUE.split(), True) | dict.fromkeys(
    _SWITCHES.split(), False
)
