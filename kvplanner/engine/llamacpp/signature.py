"""How a running llama-server looks in a process list (data only; read by kvplanner.observe.processes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FIM: Final = ("--ubatch-size", "1024", "--batch-size", "1024", "--ctx-size", "0")
_OSS: Final = ("--ubatch-size", "2048", "--batch-size", "32768", "--parallel", "2", "--ctx-size", "262144")
_DRAFT: Final = ("--spec-draft-model", "Qwen2.5-Coder-0.5B-Q8_0-GGUF")
# The end of common_params_parser_init in common/arg.cpp of llama.cpp (2026): a model of the Hub, and its settings.
_PRESETS: Final = (
    ("--embd-gemma-default", ("-hf", "ggml-org/embeddinggemma-300M-qat-q4_0-GGUF", "--ubatch-size", "2048",
                              "--batch-size", "2048", "--parallel", "32", "--ctx-size", "65536", "--embeddings")),
    ("--fim-qwen-1.5b-default", ("-hf", "ggml-org/Qwen2.5-Coder-1.5B-Q8_0-GGUF", *_FIM)),
    ("--fim-qwen-3b-default", ("-hf", "ggml-org/Qwen2.5-Coder-3B-Q8_0-GGUF", *_FIM)),
    ("--fim-qwen-7b-default", ("-hf", "ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF", *_FIM)),
    ("--fim-qwen-7b-spec", ("-hf", "ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF", *_DRAFT, *_FIM)),
    ("--fim-qwen-14b-spec", ("-hf", "ggml-org/Qwen2.5-Coder-14B-Q8_0-GGUF", *_DRAFT, *_FIM)),
    ("--fim-qwen-30b-default", ("-hf", "ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF", *_FIM)),
    ("--gpt-oss-20b-default", ("-hf", "ggml-org/gpt-oss-20b-GGUF", *_OSS)),
    ("--gpt-oss-120b-default", ("-hf", "ggml-org/gpt-oss-120b-GGUF", *_OSS)),
    ("--vision-gemma-4b-default", ("-hf", "ggml-org/gemma-3-4b-it-qat-GGUF", "--ctx-size", "0")),
    ("--vision-gemma-12b-default", ("-hf", "ggml-org/gemma-3-12b-it-qat-GGUF", "--ctx-size", "0")),
)  # fmt: skip

# A model's file, as one of the words.
_FILE: Final = r"(?i)(?:.*=)?[^=]*\.gguf"
# What the programs take that answer one prompt, and a server does not.
_CHAT: Final[Mapping[str, object]] = {
    "dropped": (
        "-p", "--prompt", "-f", "--file", "-bf", "--binary-file", "-sys", "--system-prompt", "-sysf",
        "--system-prompt-file", "-r", "--reverse-prompt", "--prompt-cache", "--in-prefix", "--in-suffix",
        "--image", "--audio", "--video",
    ),
    "switches": (
        "-cnv", "--conversation", "-no-cnv", "--no-conversation", "-i", "--interactive", "-if",
        "--interactive-first", "-st", "--single-turn", "-mli", "--multiline-input", "-co", "--color",
        "-sp", "--special", "--no-display-prompt", "--display-prompt", "--prompt-cache-all",
        "--prompt-cache-ro", "--show-timings", "--no-show-timings",
    ),
}  # fmt: skip

# llama-cpp-python's server: llama_cpp/server/settings.py and llama_cpp/llama.py of 0.3.36. It sets neither
# n_outputs_max nor swa_full: libllama's own defaults are a row for every token of a batch, and windows at full length.
# A projector is loaded where --clip_model_path names it, and never unasked (llama_cpp/server/model.py).
_TYPES: Final = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 20: "iq4_nl", 30: "bf16",
}  # fmt: skip
_PYTHON: Final[Mapping[str, object]] = {
    "command": (r"-m", r"llama_cpp\.server"),
    "serves": True,
    "variables": True,
    "words": (
        "--parallel", "1", "--fit", "off", "--n-gpu-layers", "0", "--ctx-size", "2048", "--batch-size", "512",
        "--ubatch-size", "512", "--flash-attn", "off", "--load-mode", "mlock", "--swa-full", "--all-outputs",
        "--no-mmproj",
    ),
    "port": 8000,
    "renamed": (
        ("--model", "--model"), ("--model_alias", "--alias"), ("--n_gpu_layers", "--n-gpu-layers"),
        ("--split_mode", "--split-mode"), ("--main_gpu", "--main-gpu"), ("--tensor_split", "--tensor-split"),
        ("--kv_overrides", "--override-kv"), ("--rpc_servers", "--rpc"), ("--n_ctx", "--ctx-size"),
        ("--n_batch", "--batch-size"), ("--n_ubatch", "--ubatch-size"), ("--rope_freq_base", "--rope-freq-base"),
        ("--rope_freq_scale", "--rope-freq-scale"), ("--yarn_orig_ctx", "--yarn-orig-ctx"), ("--lora_path", "--lora"),
        ("--clip_model_path", "--mmproj"), ("--type_k", "--cache-type-k"), ("--type_v", "--cache-type-v"),
        ("--hf_model_repo_id", "--hf-repo"), ("--host", "--host"), ("--port", "--port"),
        ("--config_file", "--config-file"),
    ),
    "of_repository": ("--hf_model_repo_id", "--model", "--hf-file"),
    "joined": ("--tensor_split", "--kv_overrides"),
    "as_words": (
        *((("--split_mode",), str(n), ("--split-mode", name)) for n, name in enumerate(("none", "layer", "row"))),
        *(((f"--type_{of}",), str(n), (f"--cache-type-{of}", name)) for of in "kv" for n, name in _TYPES.items()),
        *(((flag,), value, ()) for flag in ("--rope_freq_base", "--rope_freq_scale", "--yarn_orig_ctx")
          for value in ("0", "0.0")),
    ),
    "toggles": (
        ("--use_mmap", (), ("--no-mmap",)),
        ("--use_mlock", (), ("--load-mode", "mmap")),
        ("--offload_kqv", (), ("--no-kv-offload",)),
        ("--flash_attn", ("--flash-attn", "on"), ("--flash-attn", "off")),
        # One sequence for each text of a batch, in shared cells.
        ("--embedding", ("--embeddings", "--parallel", "256", "--kv-unified"), ()),
    ),
    "dropped": (
        "--vocab_only", "--seed", "--n_threads", "--n_threads_batch", "--rope_scaling_type", "--yarn_ext_factor",
        "--yarn_attn_factor", "--yarn_beta_fast", "--yarn_beta_slow", "--mul_mat_q", "--logits_all",
        "--last_n_tokens_size", "--lora_base", "--numa", "--chat_format", "--chat_template_kwargs", "--cache",
        "--cache_type", "--cache_size", "--hf_tokenizer_config_path", "--hf_pretrained_model_name_or_path",
        "--draft_model", "--draft_model_num_pred_tokens", "--verbose", "--ssl_keyfile", "--ssl_certfile", "--api_key",
        "--interrupt_requests", "--disable_ping_events", "--root_path",
    ),
}  # fmt: skip

# Fields as in kvplanner.engine.signature.
SIGNATURE: Final[Mapping[str, object]] = {
    "engine": "llamacpp",
    "title": "llama-server",
    "commands": ((r"llama-server",), (r"llama", "serve")),
    "titles": (),
    "model_flags": ("-m", "--model"),
    "usual": ("gguf",),
    "files": (".gguf",),
    "repo_flags": ("-hf", "-hfr", "--hf-repo"),
    "repo_file_flags": ("-hff", "--hf-file"),
    "repo_env": ("LLAMA_ARG_HF_REPO",),
    "repo_file_env": ("LLAMA_ARG_HF_FILE",),
    "presets": _PRESETS,
    "kin": r"llama-(?:perplexity|quantize|imatrix|embedding|fit-params|gguf-split|batched-bench|parallel|speculative"
           r"|lookup|tts|export-lora|retrieval|tokenize)",
    "env_prefixes": ("LLAMA_ARG_",),
    "model_positional": False,
    "default_port": 8080,
    "packages": (),
    "launch": ("llama-server",),
    "model_env": ("LLAMA_ARG_MODEL",),
    "images": (r"ghcr\.io/ggml-org/llama\.cpp",),
    "container": "ghcr.io/ggml-org/llama.cpp:server-cuda-{version}",
    "container_words": ("--host", "0.0.0.0"),
    "container_model": "-m",
    "planned": True,
    # tools/cli, tools/completion and tools/llama-bench of llama.cpp 0.5.0-dev (October 2026)
    "programs": (
        {"command": (r"llama-(?:cli|mtmd-cli)",), "words": ("--parallel", "1"), **_CHAT},
        # No projector is theirs: mmproj_examples of common/arg.cpp.
        {
            "command": (r"llama-(?:completion|main|simple-chat|run)",),
            "words": ("--parallel", "1", "--no-mmproj"),
            **_CHAT,
        },
        # Their names until b3153 (pull request 7809 of June 2024), which people still paste.
        {"command": (r"main",), "words": ("--parallel", "1", "--no-mmproj"), "beside": _FILE, **_CHAT},
        {"command": (r"server",), "beside": _FILE},
        {
            "command": (r"llama-bench",),
            "words": ("--parallel", "1", "--n-gpu-layers", "all", "--fit", "off", "--all-outputs", "--no-mmproj"),
            "listed": True,
            "dropped": (
                "-t", "--threads", "-C", "--cpu-mask", "--cpu-strict", "--poll", "-r", "--repetitions", "--prio",
                "--delay", "-o", "--output", "-oe", "--output-err", "--numa",
            ),
            "switches": ("-v", "--verbose", "--progress", "--no-warmup", "--list-devices"),
            "as_words": (
                (("-fa", "--flash-attn"), "1", ("--flash-attn", "on")),
                (("-fa", "--flash-attn"), "0", ("--flash-attn", "off")),
                (("-nkvo", "--no-kv-offload"), "1", ("--no-kv-offload",)),
                (("-nkvo", "--no-kv-offload"), "0", ()),
                (("-mmp", "--mmap"), "0", ("--no-mmap",)), (("-mmp", "--mmap"), "1", ()),
                (("-dio", "--direct-io"), "0", ()), (("-dio", "--direct-io"), "1", ()),
                (("-nopo", "--no-op-offload"), "1", ("--no-op-offload",)), (("-nopo", "--no-op-offload"), "0", ()),
                (("-embd", "--embeddings"), "1", ("--embeddings",)), (("-embd", "--embeddings"), "0", ()),
                (("--no-host",), "0", ()), (("--no-host",), "1", ()),
            ),
            "tests": ((("-p", "--n-prompt"), 512), (("-n", "--n-gen"), 128)),
            "pairs": ("-pg",),
            "depth": ("-d", "--n-depth"),
        },
        _PYTHON,
    ),
}  # fmt: skip
