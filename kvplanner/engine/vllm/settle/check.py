"""What vLLM refuses before it plans any memory, in its own words with this plan's numbers."""

from __future__ import annotations

from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.settle import dtype as defaults_dtype
from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.served import served_by
from kvplanner.model.spec import Attention, Mla, ModelSpec, State


def check_configuration(spec: ModelSpec, settings: Settings, gpu: Gpu) -> None:
    """Raises BadInput for a combination that the engine does not start with (config/vllm.py, config/model.py)."""
    _check_architecture(spec, settings.version)
    check_heads(spec, settings.parallel.tp)
    _check_context_parallel(spec, settings)
    _check_batch(settings)
    defaults_dtype.check(spec, settings, gpu)
    if settings.parallel.pp > 1 and not spec.num_layers:
        raise NotModelled(
            f"the layers of {spec.architecture} are not known and cannot be spread over {settings.parallel.pp} stages",
            "--pipeline-parallel-size",
            "Use 1",
        )
    if settings.parallel.pp > max(spec.num_layers, 1):
        raise BadInput(
            f"{settings.parallel.pp} pipeline stages for {spec.num_layers} layers", "--pipeline-parallel-size",
            f"Give at most {spec.num_layers}",
        )  # fmt: skip


def _check_architecture(spec: ModelSpec, version: tuple[int, int]) -> None:
    known = served_by(spec.architecture)
    last = known.last if known is not None else None
    if last is not None and version > last:
        release = f"0.{last[0]}.{last[1]}"
        raise BadInput(
            f"Model architecture {spec.architecture} was supported in vLLM until v{release}, and is not supported "
            "anymore",
            "--engine-version",
            f"Plan it with --engine-version {release}",
        )


def check_heads(spec: ModelSpec, tp: int, flag: str = "--tensor-parallel-size") -> None:
    """Raises BadInput (where = flag) for heads that a tensor-parallel size neither splits nor copies evenly."""
    for mixer in (m for layer in spec.layers for m in layer.mixers):
        if isinstance(mixer, State):
            heads = mixer.heads or mixer.channels
            if heads % tp:
                raise BadInput(
                    f"State layers of {heads} heads or channels must be divisible by tensor parallel size ({tp})",
                    flag,
                    "Choose a size that divides them",
                )
            continue
        if mixer.heads % tp:
            raise BadInput(
                f"Total number of attention heads ({mixer.heads}) must be divisible by tensor parallel size ({tp})",
                flag, f"Choose a size that divides {mixer.heads}",
            )  # fmt: skip
        if isinstance(mixer, Attention) and mixer.kv_heads % tp and tp % mixer.kv_heads:
            raise BadInput(
                f"{mixer.kv_heads} KV heads can be neither split nor copied evenly over tensor parallel size ({tp})",
                flag, f"Choose a divisor or a multiple of {mixer.kv_heads}",
            )  # fmt: skip


def _check_context_parallel(spec: ModelSpec, settings: Settings) -> None:
    dcp, flag = settings.parallel.dcp, "--decode-context-parallel-size"
    if dcp == 1:
        return
    if settings.parallel.tp % dcp and dcp not in (settings.parallel.pcp, settings.parallel.tp * settings.parallel.pcp):
        raise BadInput(
            f"tp_size={settings.parallel.tp} must be divisible by dcp_size={dcp}",
            flag,
            "Choose a divisor of the tensor parallel size",
        )
    for mixer in (m for layer in spec.layers for m in layer.mixers):
        if isinstance(mixer, Attention) and mixer.causal and not mixer.cross:
            if mixer.window is not None or mixer.chunk is not None:
                raise BadInput("Sliding window is not supported with decode context parallelism", flag, "Use 1")
            if settings.parallel.tp <= mixer.kv_heads or dcp > settings.parallel.tp // mixer.kv_heads:
                raise BadInput(
                    f"tensor parallel size {settings.parallel.tp} must be greater than total num kv heads "
                    f"{mixer.kv_heads} when enable decode context parallel for GQA/MQA", flag,
                    f"At most tensor parallel size // KV heads = {settings.parallel.tp // mixer.kv_heads}",
                )  # fmt: skip
        if isinstance(mixer, Mla) and mixer.window is not None:
            raise BadInput("Sliding window is not supported with decode context parallelism", flag, "Use 1")


def _check_batch(settings: Settings) -> None:
    tokens, length = settings.scheduler.max_num_batched_tokens, settings.model.max_model_len
    if tokens < length and not settings.scheduler.chunked_prefill and not settings.model.auto_fit:
        raise BadInput(
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({length}). This effectively limits the "
            "maximum sequence length to max_num_batched_tokens", "--max-num-batched-tokens",
            f"Raise it to {length} or lower --max-model-len",
            brief=f"{tokens:,} tokens per step are fewer than the context of {length:,}",
        )  # fmt: skip
    if tokens < settings.scheduler.max_num_seqs:
        raise BadInput(
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs "
            f"({settings.scheduler.max_num_seqs})",
            "--max-num-batched-tokens", "Raise it or lower --max-num-seqs",
            brief=f"{tokens:,} tokens per step are fewer than the {settings.scheduler.max_num_seqs:,} sequences",
        )  # fmt: skip
