"""What one step holds: chunked prefill, tokens, sequences (config/scheduler.py, engine/arg_utils.py, vLLM 0.33)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.shared.ledger import Book
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.backends import image_prefix
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.settings import Parallel, Scheduler, Speculative, Version
from kvplanner.engine.vllm.settle.batch import batch_defaults
from kvplanner.model.spec import Attention, Mla, ModelSpec
from kvplanner.record import NamedTuple

# V0: tokens of a step, of models that pool and of models with towers, and sequences (config.py, 0.6.6).
_V0_TOKENS: Final = 2048
_V0_POOLING_TOKENS: Final = 32_768
_V0_MULTIMODAL_TOKENS: Final = 5120
_V0_SEQUENCES: Final = 256
_LONG_CONTEXT: Final = 32_768
_BATCHED_EXPERTS: Final = ("deepep_low_latency", "nixl_ep")
_BATCHED_EXPERT_TOKENS: Final = 256


class Here(NamedTuple):
    """What is settled before the scheduler. usage: "server" or "llm"; length: of the context, in tokens."""

    gpu: Gpu
    usage: str
    version: Version
    runner: str
    parallel: Parallel
    length: int
    speculative: Speculative


@by_identity(64, lambda _: ())
def is_causal(spec: ModelSpec) -> bool:
    """Whether every attention layer looks back only: encoders are not generative and keep no cache."""
    return all(m.causal for layer in spec.layers for m in layer.mixers if isinstance(m, Attention))


def settle_scheduler(spec: ModelSpec, book: Book, here: Here) -> Scheduler:
    """What a step holds, from the GPU's class and what was asked for."""
    causal = is_causal(spec)
    on, reason = _chunked(spec, book, here)
    chunked = bool(book.settle("enable_chunked_prefill", on, reason))
    on = causal and rules.ASYNC_SCHEDULING.at(here.version)
    why = "on" if on else "off in this version" if causal else "off for encoders"
    asynchronous = bool(book.settle("async_scheduling", on, why))
    tokens, sequences = _batch(spec, book, here, chunked)
    return Scheduler(tokens, sequences, chunked, asynchronous)


def _chunked(spec: ModelSpec, book: Book, here: Here) -> tuple[bool, str]:
    """Whether prompts are cut by default, and why. V0 did so for long contexts of plain models alone (arg_utils.py)."""
    if here.runner != "V0":
        return (True, "on for generative models") if is_causal(spec) else (False, "off for encoders")
    mixers = [m for layer in spec.layers for m in layer.mixers]
    windows = any(isinstance(m, Attention) and m.window is not None for m in mixers)
    latent = any(isinstance(m, Mla) for m in mixers)
    plain = not (windows or latent or spec.multimodal or book.options.get("enable_lora") or here.speculative.method)
    if here.length > _LONG_CONTEXT and plain and spec.task == "generate":
        return True, "on on V0 for contexts beyond 32,768 tokens"
    return False, "off on V0"


def _batch(spec: ModelSpec, book: Book, here: Here, chunked: bool) -> tuple[int, int]:
    """Tokens and sequences of a step."""
    if here.runner == "V0":
        return _batch_of_v0(spec, book, here, chunked)
    row = batch_defaults(here.gpu, here.version)
    tokens = row.tokens_server if here.usage == "server" else row.tokens_llm
    sequences, reason, why_tokens = row.sequences, row.reason, row.reason
    if book.settle("performance_mode", "balanced", "steps and graphs stay as they are") == "throughput":
        tokens, sequences = tokens * 2, sequences * 2
        reason = why_tokens = f"{row.reason}, doubled by --performance-mode throughput"
    tokens, why_tokens = _step_tokens(spec, book, here, chunked, (tokens, why_tokens))
    limit = (int(book.options["max_num_seqs"]) if book.given("max_num_seqs") else sequences) * here.length
    if tokens > limit:
        tokens, why_tokens = limit, "no more than sequences × context length"
    tokens = int(book.settle("max_num_batched_tokens", tokens, f"{why_tokens}: {tokens:,}"))
    if sequences > tokens:
        sequences, reason = tokens, "no more than tokens in a step"
    return tokens, int(book.settle("max_num_seqs", sequences, f"{reason}: {sequences:,}"))


def _batch_of_v0(spec: ModelSpec, book: Book, here: Here, chunked: bool) -> tuple[int, int]:
    """Tokens and sequences of a step on V0 (config.py SchedulerConfig, 0.6.6 to 0.10)."""
    tokens, why = _V0_TOKENS, "V0, with chunked prefill"
    if not chunked:
        tokens, why = max(here.length, _V0_TOKENS), "V0: without chunked prefill a step must hold a whole prompt"
    if spec.task != "generate":
        tokens = max(tokens, _V0_POOLING_TOKENS)
    if spec.multimodal:
        tokens = max(tokens, _V0_MULTIMODAL_TOKENS)
    book.settle("performance_mode", "balanced", "steps and graphs stay as they are")
    tokens = int(book.settle("max_num_batched_tokens", tokens, f"{why}: {tokens:,}"))
    return tokens, int(book.settle("max_num_seqs", _V0_SEQUENCES, f"V0: {_V0_SEQUENCES:,} on every GPU"))


def _step_tokens(spec: ModelSpec, book: Book, here: Here, chunked: bool, found: tuple[int, str]) -> tuple[int, str]:
    """The default of tokens in a step and its reason, by what else decides it; found: those of the GPU's class."""
    tokens, reason = found
    batched = book.options.get("all2all_backend") in _BATCHED_EXPERTS
    if batched and here.parallel.dp > 1 and here.parallel.expert_parallel:
        tokens, reason = _BATCHED_EXPERT_TOKENS, "batched experts take 256 tokens of a rank"
    if not chunked and here.length > tokens:
        tokens, reason = here.length, "without chunked prefill a step must hold a whole prompt"
    item = quirks(spec.architecture).largest_item_tokens if rules.WHOLE_ITEMS.at(here.version) else 0
    if item > tokens and image_prefix(spec) and not book.options.get("language_model_only"):
        tokens, reason = item, "a step must hold the largest video"
    return tokens, reason
