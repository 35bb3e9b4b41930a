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
--mtmd-batch-max-tokens --video-fps --video-timestamp-interval --video-ffmpeg-dir --numa -fitp
--fit-print --control-vector-layer-range -a --alias --tags -hft --hf-token -npp -ntg -npl --host --port --path
--cors-origins --cors-methods --cors-headers --api-prefix --ui-config --webui-config --ui-config-file
--webui-config-file --tools --tools-runtime --mcp-servers-config --mcp-servers-json --api-key --api-key-file
--ssl-key-file --ssl-cert-file --chat-template-kwargs -to --timeout --sse-ping-interval --threads-http --cache-reuse
--slot-save-path --media-path --models-max --reasoning-format -rea --reasoning --reasoning-effort --reasoning-budget
--reasoning-budget-message --chat-template --chat-template-file -sps --slot-prompt-similarity --sleep-idle-seconds
--log-file --log-prompts-dir --log-colors -lv --verbosity --log-verbosity
--spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd --threads-batch-draft --spec-draft-cpu-mask
-Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft
--spec-draft-prio --prio-draft --spec-draft-poll --poll-draft --spec-draft-cpu-mask-batch -Cbd
--cpu-mask-batch-draft --spec-draft-cpu-range-batch -Crbd --cpu-range-batch-draft --spec-draft-cpu-strict-batch
--cpu-strict-batch-draft --spec-draft-prio-batch --prio-batch-draft --spec-draft-poll-batch --poll-batch-draft
--spec-draft-n-min --spec-synth-len --spec-synth-rates --spec-draft-p-split --draft-p-split
--spec-draft-p-min --draft-p-min --spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match
--spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n
--spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m
--spec-ngram-map-k4v-min-hits --draft-min --draft-n-min --spec-ngram-size-n --spec-ngram-size-m
--spec-ngram-min-hits -wd --weight-decay
-p --prompt -f --file -bf --binary-file -sys --system-prompt -sysf --system-prompt-file -r --reverse-prompt --image
"""
_SWITCHES: Final = """
-cl --cache-list --completion-bash --cache-idle-slots --no-cache-idle-slots --context-shift --no-context-shift
--perf --no-perf -e --escape --no-escape --warmup --no-warmup --spm-infill --ignore-eos -bs --backend-sampling
--no-host -cb --cont-batching -nocb --no-cont-batching --mmproj-auto --no-mmproj --no-mmproj-auto --list-devices
-ndio --no-direct-io -pps -tgs --reuse-port --cors-credentials --no-cors-credentials --ui-mcp-proxy
--webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy -ag --agent -no-ag --no-agent --ui --webui --no-ui
--no-webui --cache-prompt --no-cache-prompt --metrics --props --slots --no-slots
--models-autoload --no-models-autoload --jinja --no-jinja --reasoning-preserve --no-reasoning-preserve
--skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant --lora-init-without-apply
--simple-io --log-disable --log-jsonl --no-log-jsonl -v --verbose --log-verbose --offline --log-prefix
--no-log-prefix --log-timestamps --no-log-timestamps
--spec-draft-backend-sampling --no-spec-draft-backend-sampling --spec-default
-cnv --conversation -no-cnv --no-conversation -st --single-turn -i --interactive -if --interactive-first --color
-mli --multiline-input --no-display-prompt --show-timings --no-show-timings --special -sp
--no-slots-endpoint --cont-batching --log-enable --log-append
"""

_ROPE: Final = "a changed rope setting changes the context that the model was made for"
_NAME_IT: Final = "Name the file before --, or with -m"
# May change memory; a plan that leaves them out says so.
_UNSAID_WITH_VALUE: Final = """
--spec-draft-device -devd --device-draft --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft
--spec-draft-override-tensor -otd --override-tensor-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed
--n-cpu-moe-draft -lzm --lazy-mode
"""
_UNSAID: Final = """
-dio --direct-io --mtp --dflash --eagle3 --spec-draft-cpu-moe -cmoed --cpu-moe-draft
"""
# Variables of llama-server that move no memory.
_VARIABLES: Final = """
HOST PORT THREADS THREADS_BATCH THREADS_HTTP N_PREDICT ALIAS TAGS API_KEY API_PREFIX TIMEOUT STATIC_PATH PATH UI WEBUI
NO_UI NO_WEBUI UI_CONFIG ENDPOINT_METRICS ENDPOINT_SLOTS NO_ENDPOINT_SLOTS ENDPOINT_PROPS JINJA NO_JINJA THINK
THINK_BUDGET THINK_BUDGET_MESSAGE REASONING REASONING_EFFORT REASONING_PRESERVE CHAT_TEMPLATE CHAT_TEMPLATE_FILE
CHAT_TEMPLATE_KWARGS SKIP_CHAT_PARSING PREFILL_ASSISTANT CACHE_PROMPT NO_CACHE_PROMPT CACHE_REUSE CONT_BATCHING
NO_CONT_BATCHING CONTEXT_SHIFT NO_CONTEXT_SHIFT DEFRAG_THOLD NUMA SSL_KEY_FILE SSL_CERT_FILE OFFLINE WARMUP NO_WARMUP
TOP_K MIROSTAT SEED TEMP PERF NO_PERF TOOLS AGENT MODELS_MAX MODELS_AUTOLOAD NO_MODELS_AUTOLOAD LOG_VERBOSITY
LOG_FILE LOG_COLORS LOG_PREFIX LOG_TIMESTAMPS SLOT_PROMPT_SIMILARITY MODEL HF_REPO HF_FILE HF_TOKEN POOLING ROPE_SCALE
ROPE_FREQ_BASE ROPE_FREQ_SCALE YARN_ORIG_CTX YARN_EXT_FACTOR YARN_ATTN_FACTOR YARN_BETA_SLOW YARN_BETA_FAST
GRP_ATTN_N GRP_ATTN_W MMPROJ_AUTO NO_MMPROJ NO_MMPROJ_AUTO FIT_PRINT
"""
_PROJECTOR: Final = FlagRule(
    "1", "the file is not on this machine", "Give its size in its place: --mmproj-size 880MiB",
    sizes="mmproj_size", encoders=True,
    unless=("--no-mmproj", "--no-mmproj-auto", "LLAMA_ARG_NO_MMPROJ", "LLAMA_ARG_NO_MMPROJ_AUTO"),
    # docs/multimodal.md of llama.cpp, by what GGUF files call them.
    seeing=("gemma3", "gemma3n", "gemma4", "qwen2vl", "qwen3vl", "qwen3vlmoe", "llama4", "mistral3", "pixtral"),
)  # fmt: skip
_ADAPTER: Final = FlagRule(
    "1", "the file is not on this machine", "Give its size in its place: --lora-size 200MiB", sizes="lora_size"
)
_REFUSED: Final[dict[str, FlagRule]] = {
    "--config-file": FlagRule("1", "what it sets is not read from here", "Write the settings of one model as flags"),
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
    "--mmproj": _PROJECTOR,
    "-mm": _PROJECTOR,
    "LLAMA_ARG_MMPROJ": _PROJECTOR,
    "--mmproj-url": FlagRule("1", "its size is not read from here", "Give it as --mmproj-size 880MiB"),
    "-mmu": FlagRule("1", "its size is not read from here", "Give it as --mmproj-size 880MiB"),
    "--lora": _ADAPTER,
    "--lora-scaled": _ADAPTER,
    **dict.fromkeys(
        (
            "LLAMA_ARG_RPC",
            "LLAMA_ARG_ROPE_SCALING_TYPE",
            "LLAMA_ARG_MODELS_DIR",
            "LLAMA_ARG_MODELS_PRESET",
            "LLAMA_ARG_MODEL_URL",
            "LLAMA_ARG_DOCKER_REPO",
        ),
        FlagRule("1", "it changes what is planned, and is not modelled", "Leave it out", ("none",)),
    ),
}
# Rotary settings, which change nothing that is sized.
_SMALL: Final = """
--rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --pooling
"""

IGNORED_FLAGS: Final[dict[str, FlagRule]] = (
    dict.fromkeys(_WITH_VALUE.split(), FlagRule("1"))
    | dict.fromkeys(_SMALL.split(), FlagRule("1"))
    | dict.fromkeys(_SWITCHES.split(), FlagRule())
    | dict.fromkeys(_UNSAID_WITH_VALUE.split(), FlagRule("1", modelled=False))
    | dict.fromkeys(_UNSAID.split(), FlagRule(modelled=False))
    | {f"LLAMA_ARG_{name}": FlagRule("1") for name in _VARIABLES.split()}
    | _REFUSED
)
