"""The activation peak of vLLM's profile run: one step with every token it allows, then the sampler on every row.

What the run executes (v1/worker/gpu/model_runner.py, 0.33; gpu_model_runner.py before): encoders on worst-case
items, whose outputs stay alive; a forward pass of max_num_batched_tokens without attention; on the last pipeline
stage the sampler on min(tokens, max_num_seqs) rows. A first start compiles before the forward pass, and the compiler
tries the kernel that looks words up on a second copy of their embedding: with and without a compile cache the printed
peaks of starts differ by that matrix (Qwen3-8B 0.99 GiB on 0.27.1 and 1.13 on 0.31, Qwen2.5-3B 0.45 on 0.29).
PyTorch's peak is the highest of the four moments.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kvplanner.engine.shared.identity import by_identity
from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.constants import Constant, lookup
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.memory.workspace import copies_rows, has_counters, penalty_counters
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.settings import Settings
from kvplanner.engine.vllm.weights.rank import bodies, moving, rank_tensors
from kvplanner.engine.vllm.weights.shard import cut
from kvplanner.estimate import Estimate, Input, banded
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.model import Model
from kvplanner.model.spec import Mla, ModelSpec, Moe
from kvplanner.record import Later, NamedTuple, later
from kvplanner.sized_text import SizedText, size_mark
from kvplanner.units import GIB, MIB, ceil_div, format_both, format_bytes

_USUAL_SEQS: Final = 256
# Most logits that a sparse indexer makes at once (VLLM_SPARSE_INDEXER_MAX_LOGITS_MB).
_INDEXER_LOGITS: Final = 512 * MIB
# Latent attention projects cached context up in chunks of at most this many tokens (mla_attention.py, 0.33).
_MLA_CHUNK: Final = 65_536
# An encoder's widest point per patch and hidden element: 16-bit queries, keys, values and an MLP four times as wide.
_ENCODER_BYTES_PER_VALUE: Final = 22
_ENCODER_BAND: Final = (0.6, 1.8)
_ENCODER_MOST: Final = 16 * GIB
# Rows of all experts that vLLM's CUTLASS kernels for NVFP4 hold at once: two copies and their weighed product.
_COPIES: Final = 3
# What starts without a compile cache print, as shares of the embedding.
_COLD_BAND: Final = (0.7, 1.4)


class Widths(NamedTuple):
    """Elements per token that one rank holds at the widest point of a layer's two halves.

    mixer: projections in and the vector before the output projection; mlp: gate, up and their product;
    gate_up: the first of these alone.
    """

    mixer: int
    mlp: int
    gate_up: int


class Moment(NamedTuple):
    """One candidate for the peak in bytes (value, low, high); how: the arithmetic behind the value."""

    value: int = 0
    low: int = 0
    high: int = 0
    how: str = "0"

    @property
    def band(self) -> tuple[int, int, int]:
        """(value, low, high)."""
        return self.value, self.low, self.high


class Moments(NamedTuple):
    """The candidates for the peak.

    kept: encoder outputs, which stay alive through the last three; rest: what else encoders leave; fixed: libraries.
    """

    encoder: Moment
    compilation: Moment
    forward: Moment
    sampler: Moment
    kept: Moment
    rest: Constant | None
    fixed: Constant

    def step(self, which: int) -> int:
        """The highest moment of a start that does not compile: which 0 is the value, 1 the low end, 2 the high end."""
        return self.highest(which)[1] + round(self.fixed.band[which])

    def highest(self, which: int) -> tuple[str, int]:
        """The name and size of the highest moment of a start that does not compile, libraries not among it."""
        left = self.kept.value + (round(self.rest.band[which]) if self.rest else 0)
        beside = " beside encoder outputs" if left else ""
        named = (
            ("the encoders' run", self.encoder.band[which]),
            (f"the forward pass{beside}", left + self.forward.band[which]),
            (f"the sampler{beside}", left + self.sampler.band[which]),
        )
        return max(named, key=lambda moment: moment[1])


class Profiled(NamedTuple):
    """What the profile run finds on one rank, in bytes.

    peak: PyTorch's peak above what stays allocated. serving: the peak of a full step, everything compiled.
    cold_extra_bytes: what a first start books beyond a start that finds its kernels compiled.
    """

    peak: Estimate
    serving: Estimate
    cold_extra_bytes: int


@by_identity(64, lambda _, settings, stage: (settings.parallel, settings.multimodal, stage))
def widths(model: Model, settings: Settings, stage: int) -> Widths:
    """The widest layer of a stage: outputs of its input projections and inputs of its output projections."""
    mixer = mlp = gate_up = 0
    for body, _ in bodies(model, settings, stage):
        into: dict[str, int] = {}
        through: dict[str, int] = {}
        for group in body:
            local = cut(group, settings)
            if not local.columns or group.kind not in ("attention", "state", "mlp"):
                continue
            half = "mlp" if group.kind == "mlp" else "mixer"
            wide = (local.columns if group.shard == "row" else local.rows) * local.copies
            through[half] = through.get(half, 0) + wide
            if group.shard != "row":
                into[half] = into.get(half, 0) + wide
        mixer = max(mixer, through.get("mixer", 0))
        mlp = max(mlp, through.get("mlp", 0))
        gate_up = max(gate_up, into.get("mlp", 0))
    return Widths(mixer, mlp, gate_up)


def moments(model: Model, settings: Settings, gpu: Gpu, stage: int, wide: Widths | None = None) -> Moments:
    """The moments of the profile run; wide: the stage's widths where they are known already."""
    spec = model.spec
    wide = wide or widths(model, settings, stage)
    forward = _forward(spec, settings, gpu, stage, max(wide.mixer, wide.mlp, _mla_expansion(spec, settings)))
    forward = _with_copied_rows(_with_indexer(forward, spec, settings), model, settings)
    sampler = _sampler(spec, settings, gpu, stage, settings.scheduler.max_num_seqs)
    encoder, outputs = _encoders(spec, settings, stage)
    rest = lookup("encoder_rest_bytes", settings, gpu) if outputs.value else None
    compilation = _compilation(model, settings, gpu, stage)
    return Moments(encoder, compilation, forward, sampler, outputs, rest, lookup("peak_fixed_bytes", settings, gpu))


def _compilation(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Moment:
    """The compiler's trial of the embedding's kernel in a first start.

    Nothing where words are looked up outside of what is compiled. Models with encoders get their words looked up
    before, beside the encoders' outputs (gpu_model_runner.py). Gemma 4 on two RTX 3090 printed the same memory at the
    first start of a layout and at its second (0.21.0): where words are scaled, the trial is within the band and not in
    the value.
    """
    spec = model.spec
    outside = spec.multimodal and not settings.multimodal.language_model_only
    tried = rules.COMBO_KERNELS.at(settings.version)
    if not tried or not compiles(settings) or stage or outside:
        return Moment()
    words = [h.bytes for h in rank_tensors(model, settings, gpu, stage) if h.group.kind == "embedding"]
    size = max(words, default=0)
    rows = settings.scheduler.max_num_batched_tokens * spec.hidden_size * DTYPE_BYTES[settings.model.dtype]
    low = 0 if settings.graphs.cold is None else round(_COLD_BAND[0] * size)
    how = f"{size:,} of the embedding once more + {rows:,} of looked-up words"
    high = round(_COLD_BAND[1] * size) + rows
    if quirks(spec.architecture).scaled_words:
        return Moment(0, 0, high, how)
    return Moment(size + rows, low, high, how)


def _forward(spec: ModelSpec, settings: Settings, gpu: Gpu, stage: int, widest: int) -> Moment:
    """The forward pass at the widest point of a layer, and rows of hidden size beside it."""
    tokens, element, hidden = (
        settings.scheduler.max_num_batched_tokens,
        DTYPE_BYTES[settings.model.dtype],
        spec.hidden_size,
    )
    shares, rows = lookup("forward_share", settings, gpu), lookup("forward_hidden_rows", settings, gpu, stage)
    value, low, high = (
        round(tokens * element * (part * widest + count * hidden))
        for part, count in zip(shares.band, rows.band, strict=True)
    )
    how = (
        f"{tokens:,} tokens × {element} × ({shares.value:.9g} × {widest:,} wide + {rows.value:.9g} × {hidden:,} hidden)"
    )
    return Moment(value, low, high, how)


def _sampler(spec: ModelSpec, settings: Settings, gpu: Gpu, stage: int, seqs: int) -> Moment:
    """The sampler's run beside the hidden states that it reads; nothing where none runs."""
    if stage != settings.parallel.pp - 1 or spec.task != "generate":
        return Moment()
    tokens, element, hidden = (
        settings.scheduler.max_num_batched_tokens,
        DTYPE_BYTES[settings.model.dtype],
        spec.hidden_size,
    )
    rows = min(tokens, seqs)
    # A head in fp32 makes its logits, and their copy between ranks, twice as wide.
    wider = element - 2
    per_logit = lookup("sampler_logit_bytes", settings, gpu)
    value, low, high = (
        round((each + wider) * rows * spec.vocab_size) + tokens * hidden * element for each in per_logit.band
    )
    each = per_logit.value + wider
    how = f"{rows:,} rows × {spec.vocab_size:,} words × {each:.9g} + {tokens:,} tokens × {hidden:,} hidden × {element}"
    return Moment(value, low, high, how)


def peak(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Estimate:
    """PyTorch's peak above what stays allocated, in bytes on one rank of a stage."""
    return profiled(model, settings, gpu, stage).peak


def _moving(model: Model, settings: Settings, gpu: Gpu, stage: int) -> tuple[object, ...]:
    """All that a profile run depends on: nothing of the cache, and of the length what is expanded."""
    expanded = _mla_expansion(model.spec, settings)
    return (
        settings.era,
        settings.scheduler,
        settings.graphs,
        settings.expert_backend,
        expanded,
        moving(model, settings, gpu, stage),
    )


@by_identity(64, _moving)
def profiled(model: Model, settings: Settings, gpu: Gpu, stage: int) -> Profiled:
    """The peaks of one rank of a stage: of the start that is planned, and of a full step of the running server."""
    wide = widths(model, settings, stage)
    found = moments(model, settings, gpu, stage, wide)
    value, low, high = (found.step(which) for which in range(3))
    compilation = found.compilation
    extra = max(compilation.value - value, 0)
    gate_up = settings.scheduler.max_num_batched_tokens * wide.gate_up * DTYPE_BYTES[settings.model.dtype]
    formula, inputs = _explained(model.spec, settings, found, wide.gate_up)
    notes = Later(partial(_remarks, model.spec, settings, gpu, stage, found, gate_up))
    serving = banded(value, low, high, "calibrated", formula, *inputs)._replace(notes=later(notes))
    if settings.graphs.cold is False or not compilation.high:
        return Profiled(serving, serving, extra)
    inputs.append(Input("compilation", compilation.value, "B", compilation.how))
    cold = banded(
        max(value, compilation.value), max(low, compilation.low), max(high, compilation.high), "calibrated",
        f"max({{compilation}}, {formula})", *inputs,
    )  # fmt: skip
    remarks = later(lambda: (*notes(), *_cold_remarks(found, extra)))
    return Profiled(cold._replace(notes=remarks), serving, extra)


def _explained(spec: ModelSpec, settings: Settings, found: Moments, gate_up: int) -> tuple[str, list[Input]]:
    """The formula of a step's peak with its inputs; gate_up: elements per token of the gate and up projections."""
    tokens, element = settings.scheduler.max_num_batched_tokens, DTYPE_BYTES[settings.model.dtype]
    tensors = f"{tokens:,} tokens × {gate_up:,} × {element}; a part of it"
    inputs = [
        Input("forward pass", found.forward.value, "B", found.forward.how),
        Input("gate and up tensors", tokens * gate_up * element, "B", tensors),
    ]
    formula = "{forward pass}"
    if found.sampler.value:
        inputs += _sampler_inputs(spec, settings, found.sampler)
        formula = "max({forward pass}, {sampler})"
    if found.encoder.value:
        inputs += _encoder_inputs(found)
        formula = f"max({{encoders}}, {{encoder outputs}} + {formula})"
    inputs.append(Input("libraries", round(found.fixed.value), "B", found.fixed.source))
    return formula + " + {libraries}", inputs


def _sampler_inputs(spec: ModelSpec, settings: Settings, sampler: Moment) -> tuple[Input, Input]:
    rows, words = _rows(settings), spec.vocab_size
    how = f"{rows:,} rows × {words:,} words × 4; one copy, a part of it"
    return Input("sampler", sampler.value, "B", sampler.how), Input("fp32 logits", 4 * rows * words, "B", how)


def _encoder_inputs(found: Moments) -> tuple[Input, Input]:
    outputs, size = found.kept.how, found.kept.value
    if found.rest:
        outputs += f" + {round(found.rest.value):,}; {found.rest.source}"
        size += round(found.rest.value)
    encoders = Input("encoders", found.encoder.value, "B", f"{found.encoder.how}; worst-case items")
    return encoders, Input("encoder outputs", size, "B", outputs)


def compiles(settings: Settings) -> bool:
    """Whether torch.compile runs at start-up: not on V0, whose default is off, nor with --enforce-eager."""
    if settings.era.runner == "V0":
        return False
    return settings.graphs.compiled


def _remarks(
    spec: ModelSpec, settings: Settings, gpu: Gpu, stage: int, found: Moments, gate_up: int
) -> tuple[str, ...]:
    tokens, remarks = settings.scheduler.max_num_batched_tokens, []
    if gate_up:
        remarks.append(f"{tokens:,} tokens in one step: gate and up tensors {format_both(gate_up)}")
    if found.sampler.value:
        rows, logits = _rows(settings), 4 * _rows(settings) * spec.vocab_size
        remarks.append(f"{rows:,} rows of fp32 logits over {spec.vocab_size:,} words: {_both_small(logits)}")
        remarks += _beside_usual(spec, settings, gpu, stage, found)
    return tuple(SizedText(remark) for remark in remarks)


def _cold_remarks(found: Moments, extra: int) -> tuple[str, ...]:
    """What a first start's peak is where compilation sets it, `extra` bytes above a step's."""
    if not extra:
        return ()
    return (
        SizedText(
            f"a first start compiles: its peak is {size_mark(found.compilation.value)}; with a warm compile cache "
            f"{size_mark(extra)} more are left for the KV cache (--compile-cache warm)"
        ),
    )


def _both_small(size: int) -> str:
    return f"{format_bytes(size, 'MB', 0)} = {format_bytes(size, 'MiB', 0)}"


def _beside_usual(spec: ModelSpec, settings: Settings, gpu: Gpu, stage: int, found: Moments) -> tuple[str, ...]:
    """What many sequences cost beside what the usual number would: in the peak, and in penalty counters."""
    seqs = settings.scheduler.max_num_seqs
    if seqs <= _USUAL_SEQS:
        return ()
    few = found._replace(sampler=_sampler(spec, settings, gpu, stage, _USUAL_SEQS))
    (moment, peak_), (few_moment, few_peak) = found.highest(0), few.highest(0)
    parts = []
    if peak_ > few_peak:
        other = "" if moment == few_moment else f"{few_moment} with "
        parts.append(f"{moment} sets the peak with {size_mark(peak_)}, at {_USUAL_SEQS} {other}{size_mark(few_peak)}")
    extra = peak_ - few_peak
    if has_counters(settings):
        many, usual = (penalty_counters(count, spec.vocab_size) for count in (seqs, _USUAL_SEQS))
        extra += many - usual
        parts.append(
            f"penalty counters over {spec.vocab_size:,} words take {size_mark(many)}, "
            f"at {_USUAL_SEQS} {size_mark(usual)}"
        )
    told = f"max_num_seqs {seqs:,} costs {size_mark(extra)} more than {_USUAL_SEQS} would: {'; '.join(parts)}"
    return (told,) if extra else ()


def _rows(settings: Settings) -> int:
    return min(settings.scheduler.max_num_batched_tokens, settings.scheduler.max_num_seqs)


def _with_indexer(forward: Moment, spec: ModelSpec, settings: Settings) -> Moment:
    """The forward pass beside the logits of a sparse indexer, which come and go (sparse_attn_indexer.py, 0.20.2)."""
    if not _latent(spec)[1] or not rules.INDEXER_LOGITS.at(settings.version):
        return forward
    value, low, high = (size + _INDEXER_LOGITS for size in (forward.value, forward.low, forward.high))
    return Moment(value, low, high, f"{forward.how} + {_INDEXER_LOGITS:,}")


def _with_copied_rows(forward: Moment, model: Model, settings: Settings) -> Moment:
    """The forward pass beside the rows that expert kernels copy: into the first product, out of the second, weighed."""
    if not copies_rows(model, settings):
        return forward
    moes = [m for layer in model.spec.layers for m in layer.mlps if isinstance(m, Moe)]
    widest = max((m.top_k * (m.hidden or model.spec.hidden_size) for m in moes), default=0)
    tokens, element = settings.scheduler.max_num_batched_tokens, DTYPE_BYTES[settings.model.dtype]
    size = _COPIES * tokens * widest * element
    value, low, high = (part + size for part in forward.band)
    how = f"{forward.how} + {_COPIES} × {tokens:,} tokens × {widest:,} × {element}; rows copied for their experts"
    return Moment(value, low, high, how)


def _mla_expansion(spec: ModelSpec, settings: Settings) -> int:
    """Elements per token of latent attention's worst-case up-projection, which the profile run allocates."""
    latent = _latent(spec)[0]
    if latent is None:
        return 0
    chunk = min(max(8 * settings.model.max_model_len, 64 * settings.scheduler.max_num_seqs), _MLA_CHUNK)
    heads = ceil_div(latent.heads, settings.parallel.tp)
    return chunk * heads * (latent.qk_nope + latent.head_size_v) // settings.scheduler.max_num_batched_tokens


@by_identity(64, lambda _: ())
def _latent(spec: ModelSpec) -> tuple[Mla | None, bool]:
    """The model's first layer of latent attention, None without any, and whether one of them has a sparse indexer."""
    mixers = [m for layer in spec.layers for m in layer.mixers if isinstance(m, Mla)]
    return next(iter(mixers), None), any(m.indexer is not None for m in mixers)


def _encoders(spec: ModelSpec, settings: Settings, stage: int) -> tuple[Moment, Moment]:
    """The encoders' own run, and their outputs that stay alive; nothing without profiling."""
    if not spec.towers or stage or settings.multimodal.language_model_only or settings.multimodal.skip_profiling:
        return Moment(), Moment()
    element, hidden = DTYPE_BYTES[settings.model.dtype], spec.hidden_size
    usual = quirks(spec.architecture).item
    longest = max((t.tokens_per_item or usual.tokens for t in spec.towers), default=0)
    budget = max(settings.scheduler.max_num_batched_tokens, longest)
    kept = Moment(size := budget * hidden * element, size, size, f"{budget:,} tokens × {hidden:,} hidden × {element}")
    own, how = 0, "0"
    for tower in spec.towers:
        per_item = tower.tokens_per_item or longest
        items = 1
        if per_item:
            most = ceil_div(budget, per_item) if rules.ROUND_UP_ITEMS.at(settings.version) else budget // per_item
            items = max(1, min(most, settings.scheduler.max_num_seqs))
        patches = (tower.patch_tokens_per_item or usual.patches or per_item) * items
        size = patches * tower.hidden_size * _ENCODER_BYTES_PER_VALUE
        if size > own:
            own, how = size, f"{patches:,} patches × {tower.hidden_size:,} wide × {_ENCODER_BYTES_PER_VALUE}"
    if own > _ENCODER_MOST:
        own, how = _ENCODER_MOST, f"{_ENCODER_MOST:,}"
    low, high = _ENCODER_BAND
    run = Moment(own + kept.value, round(low * own) + kept.value, round(high * own) + kept.value, f"{how} + {kept.how}")
    return run, kept
