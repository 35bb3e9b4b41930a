"""Flags of llama-server that are no option here: they cannot change memory, or may not be left out.

Names: common/arg.cpp of llama.cpp 0.5.0-dev (October 2026).
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.option import FlagRule

_WITH_VALUE: Final = """
-m --model
--server-base -t --threads -tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb
--cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch -n --predict --n-predict --keep
--samplers -s --seed --sampler-seq --sampling-seq --temp --temperature --top-k --top-p --min-p --top-nsigma
--top-n-sigma --xtc-probability --xtc-threshold --typical --typical-p --repeat-last-n --repeat-penalty
--presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n
--dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr
--mirostat-ent -l --logit-bias --grammar --grammar-file -j --json-schema -jf --json-schema-file --yarn-ext-factor
--yarn-attn-factor --yarn-beta-slow --yarn-beta-fast -gan --grp-attn-n -gaw --grp-attn-w -dt --defrag-thold
--mtmd-batch-max-tokens --video-fps --video-timestamp-interval --video-ffmpeg-dir -lzm --lazy-mode --numa -fitp
--fit-print --control-vector-layer-range -a --alias --tags -hft --hf-token -npp -ntg -npl --host --port --path
--cors-origins --cors-methods --cors-headers --api-prefix --ui-config --webui-config --ui-config-file
--webui-config-file --tools --tools-runtime --mcp-servers-config --mcp-servers-json --api-key --api-key-file
--ssl-key-file --ssl-cert-file --chat-template-kwargs -to --timeout --sse-ping-interval --threads-http --cache-reuse
--slot-save-path --media-path --models-max --reasoning-format -rea --reasoning --reasoning-effort --reasoning-budget
--reasoning-budget-message --chat-template --chat-template-file -sps --slot-prompt-similarity --sleep-idle-seconds
--log-file --log-prompts-dir --log-colors -lv --verbosity --log-verbosity --spec-draft-hf -hfd -hfrd --hf-repo-draft
--spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd --threads-batch-draft --spec-draft-cpu-mask
-Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft
--spec-draft-prio --prio-draft --spec-draft-poll --poll-draft --spec-draft-cpu-mask-batch -Cbd
--cpu-mask-batch-draft --spec-draft-cpu-range-batch -Crbd --cpu-range-batch-draft --spec-draft-cpu-strict-batch
--cpu-strict-batch-draft --spec-draft-prio-batch --prio-batch-draft --spec-draft-poll-batch --poll-batch-draft
--spec-draft-override-tensor -otd --override-tensor-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed
--n-cpu-moe-draft --spec-draft-n-min --spec-synth-len --spec-synth-rates --spec-draft-p-split --draft-p-split
--spec-draft-p-min --draft-p-min --spec-draft-device -devd --device-draft --spec-draft-ngl -ngld --gpu-layers-draft
--n-gpu-layers-draft --spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match
--spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n
--spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m
--spec-ngram-map-k4v-min-hits --draft-min --draft-n-min --spec-ngram-size-n --spec-ngram-size-m
--spec-ngram-min-hits -wd --weight-decay
"""
_SWITCHES: Final = """
-cl --cache-list --completion-bash --cache-idle-slots --no-cache-idle-slots --context-shift --no-context-shift
--perf --no-perf -e --escape --no-escape --warmup --no-warmup --spm-infill --ignore-eos -bs --backend-sampling
--no-host -cb --cont-batching -nocb --no-cont-batching --mmproj-auto --no-mmproj --no-mmproj-auto --list-devices
--mtp --dflash --eagle3 -pps -tgs --reuse-port --cors-credentials --no-cors-credentials --ui-mcp-proxy
--webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy -ag --agent -no-ag --no-agent --ui --webui --no-ui
--no-webui --rerank --reranking --cache-prompt --no-cache-prompt --metrics --props --slots --no-slots
--models-autoload --no-models-autoload --jinja --no-jinja --reasoning-preserve --no-reasoning-preserve
--skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant --lora-init-without-apply
--simple-io --log-disable --log-jsonl --no-log-jsonl -v --verbose --log-verbose --offline --log-prefix
--no-log-prefix --log-timestamps --no-log-timestamps --spec-draft-cpu-moe -cmoed --cpu-moe-draft
--spec-draft-backend-sampling --no-spec-draft-backend-sampling --fim-qwen-1.5b-default --fim-qwen-3b-default
--fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default
--gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default
--no-slots-endpoint --cont-batching --log-enable --log-append
"""

_ROPE: Final = "a changed rope setting changes the context that the model was made for"
_NAME_IT: Final = "Name the file before --, or with -m"
_REFUSED: Final[dict[str, FlagRule]] = {
    "--rpc": FlagRule("1", "devices of other machines are not planned", "Leave it out, and name all GPUs with --gpu"),
    "--rope-scaling": FlagRule("1", _ROPE, "Set --ctx-size as well", ("none",)),
    "--override-kv": FlagRule("1", "it changes the model's own facts", "Leave it out"),
    "--attention": FlagRule("1", "attention without a cache is not planned", "Leave it out", ("causal",)),
    "--kv-unified-per-slot": FlagRule("1", "how cells are shared then is not modelled", "Set --ctx-size for all slots"),
    "--n-cpu-ffn": FlagRule("1", "it is not modelled", "Name the tensors with --override-tensor"),
    "-ncffn": FlagRule("1", "it is not modelled", "Name the tensors with --override-tensor"),
    "--hf-repo": FlagRule("1", "models are not fetched here", _NAME_IT),
    "-hf": FlagRule("1", "models are not fetched here", _NAME_IT),
    "-hfr": FlagRule("1", "models are not fetched here", _NAME_IT),
    "--hf-file": FlagRule("1", "models are not fetched here", _NAME_IT),
    "-hff": FlagRule("1", "models are not fetched here", _NAME_IT),
    "--model-url": FlagRule("1", "models are not fetched here", _NAME_IT),
    "-mu": FlagRule("1", "models are not fetched here", _NAME_IT),
    "--docker-repo": FlagRule("1", "models are not fetched here", _NAME_IT),
    "-dr": FlagRule("1", "models are not fetched here", _NAME_IT),
    "--models-dir": FlagRule("1", "a router of several models is planned one by one", _NAME_IT),
    "--models-preset": FlagRule("1", "a router of several models is planned one by one", _NAME_IT),
    "--mmproj": FlagRule("1", "its size is not read from here", "Give it as --mmproj-size 880MiB"),
    "-mm": FlagRule("1", "its size is not read from here", "Give it as --mmproj-size 880MiB"),
    "--mmproj-url": FlagRule("1", "its size is not read from here", "Give it as --mmproj-size 880MiB"),
    "-mmu": FlagRule("1", "its size is not read from here", "Give it as --mmproj-size 880MiB"),
    "--lora": FlagRule("1", "its size is not read from here", "Give it as --lora-size 200MiB"),
    "--lora-scaled": FlagRule("1", "its size is not read from here", "Give it as --lora-size 200MiB"),
}
# Rotary settings, which change nothing that is sized.
_SMALL: Final = """
--rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --pooling
"""

IGNORED_FLAGS: Final[dict[str, FlagRule]] = (
    dict.fromkeys(_WITH_VALUE.split(), FlagRule("1"))
    | dict.fromkeys(_SMALL.split(), FlagRule("1"))
    | dict.fromkeys(_SWITCHES.split(), FlagRule())
    | _REFUSED
)
