"""Attention back ends, page size and the cache's element type, by architecture and compute capability.

arg_groups/model_override_base.py get_default_attn_backend, arg_groups/overrides.py, arg_groups/model_overrides
(0.5.23); FlashInfer counts as installed, as in the official image.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.quirks import PAGED_BY_STRATEGY, Quirk
from kvplanner.engine.sglang.settings import Speculation
from kvplanner.model.spec import Attention, ModelSpec
from kvplanner.record import NamedTuple

_PAGED_64: Final = ("flashmla",)
_LATENT_PAGES: Final = (32, 64)
_TRTLLM_PAGES: Final = (16, 32, 64, 128)
FP8: Final = "fp8_e4m3"


class Chosen(NamedTuple):
    """The user's own choices; "" and None where there is none."""

    attention: str = ""
    prefill: str = ""
    decode: str = ""
    dsa_prefill: str = ""
    dsa_decode: str = ""
    page_size: int | None = None
    kv_dtype: str = "auto"
    strategy: str = "auto"
    radix: bool = True


class Backends(NamedTuple):
    """Attention back ends of prefill and decode, page size, and the cache's element type and latent layout.

    forced_page: why the page size is not the user's or 1, "" where it is.
    """

    attention: str
    prefill: str
    decode: str
    page_size: int
    kv_dtype: str
    raw_latent: bool
    forced_page: str = ""


def choose(
    spec: ModelSpec,
    row: Quirk,
    chosen: Chosen,
    *,
    arch: tuple[int, int],
    latent: bool,
    dtype: str,
    speculation: Speculation,
) -> Backends:
    """What the engine takes for a model on GPUs of a compute capability; dtype: the model's, as it is run."""
    sparse = is_sparse_latent(spec)
    page, why = _forced_page(spec, row, chosen, sparse=sparse, arch=arch, speculative=bool(speculation.algorithm))
    attention = _attention(spec, row, chosen, arch=arch, latent=latent, sparse=sparse, speculation=speculation)
    prefill, decode = chosen.prefill or attention, chosen.decode or attention
    used = (attention, prefill, decode)
    if any(name in _PAGED_64 for name in (attention, decode)):
        page, why = 64, "FlashMLA takes pages of 64"
    if "trtllm_mla" in (attention, decode) and page not in _LATENT_PAGES:
        page, why = 64, "TRT-LLM MLA takes pages of 32 or 64"
    if "cutedsl_mla" in used and page not in _LATENT_PAGES:
        page, why = 64, "CuteDSL MLA takes pages of 32 or 64"
    if "trtllm_mha" in used and page not in _TRTLLM_PAGES:
        page, why = 64, "TRT-LLM MHA takes pages of 16 to 128"
    if "fa4" in used and not latent and arch[0] == 10 and speculation.topk <= 1:
        page, why = 128, "FlashAttention 4 takes pages of 128"
    dtype = _kv_dtype(spec, chosen.kv_dtype, arch, sparse=sparse, own=dtype)
    return Backends(attention, prefill, decode, page or 1, dtype, _raw(chosen, dtype, arch), why)


def is_sparse_latent(spec: ModelSpec) -> bool:
    """Whether latent attention selects its tokens with an indexer (DeepSeek V3.2, GLM 5)."""
    return any(not isinstance(m, Attention) and getattr(m, "indexer", None) is not None and hasattr(m, "kv_lora_rank")
               for layer in spec.layers for m in layer.mixers)  # fmt: skip


def _forced_page(
    spec: ModelSpec, row: Quirk, chosen: Chosen, *, sparse: bool, arch: tuple[int, int], speculative: bool
) -> tuple[int | None, str]:
    if sparse and row.deepseek:
        return 64, "sparse attention takes pages of 64"
    if row.page:
        return row.page, f"{spec.architecture} takes pages of {row.page}"
    if arch[0] == 10 and spec.architecture in PAGED_BY_STRATEGY and not chosen.attention:
        paged = _paged_states(chosen, speculative)
        return (64, "TRT-LLM MHA takes pages of 64") if paged else (1, "states are kept at any token")
    return chosen.page_size, ""


def _paged_states(chosen: Chosen, speculative: bool) -> bool:
    """Whether states are kept at pages only, so that paged attention may run."""
    return not chosen.radix or speculative or chosen.strategy.startswith("extra_buffer")


def _attention(
    spec: ModelSpec, row: Quirk, chosen: Chosen, *, arch: tuple[int, int], latent: bool, sparse: bool,
    speculation: Speculation,
) -> str:  # fmt: skip
    if spec.architecture == "DeepseekV4ForCausalLM":
        return "dsv4"
    if chosen.prefill and chosen.prefill == chosen.decode:
        return chosen.prefill
    if chosen.attention:
        return chosen.attention
    split = bool(chosen.prefill or chosen.decode)
    if row.deepseek and not split:
        if sparse:
            return "dsa"
        if arch[0] == 10:
            return "trtllm_mla"
    if arch[0] == 10 and spec.architecture in PAGED_BY_STRATEGY:
        paged = _paged_states(chosen, bool(speculation.algorithm))
        return "trtllm_mha" if paged and _general(spec, arch, latent, speculation) == "trtllm_mha" else "triton"
    own = _own(row, arch)
    if speculation.algorithm and own and spec.architecture.startswith("NemotronH") and speculation.topk > 1:
        return "triton"
    return own or _general(spec, arch, latent, speculation)


def _own(row: Quirk, arch: tuple[int, int]) -> str:
    wanted = row.attention
    if arch[0] == 10:
        return wanted.sm100
    if arch[0] == 9:
        return wanted.sm90
    if arch[0] >= 11:
        return wanted.sm120
    return wanted.other if arch[0] >= 8 or wanted.other == "triton" else "triton" if wanted.other else ""


def _general(spec: ModelSpec, arch: tuple[int, int], latent: bool, speculation: Speculation) -> str:
    single = not speculation.algorithm or speculation.topk == 1
    if latent:
        return {9: "fa3", 10: "flashinfer"}.get(arch[0], "triton")
    if arch[0] == 9 and single:
        return "fa3"
    mixers = [m for layer in spec.layers for m in layer.mixers if isinstance(m, Attention)]
    if arch[0] == 10 and single:
        return "fa4" if any(m.head_size != m.head_size_v for m in mixers) else "trtllm_mha"
    return "triton" if any(m.sinks for m in mixers) else "flashinfer"


def _kv_dtype(spec: ModelSpec, wanted: str, arch: tuple[int, int], *, sparse: bool, own: str) -> str:
    if spec.architecture == "DeepseekV4ForCausalLM":
        return FP8
    if wanted != "auto":
        return "bfloat16" if wanted == "bf16" else wanted
    if sparse:
        return FP8 if arch[0] >= 10 else "bfloat16"
    if spec.kv_cache_dtype and spec.kv_cache_dtype.startswith("fp8"):
        return FP8
    return own


def _raw(chosen: Chosen, dtype: str, arch: tuple[int, int]) -> bool:
    """Whether the rows of sparse latent attention stand without scales."""
    default = ("trtllm", "trtllm") if arch[0] >= 10 else ("flashmla_kv", "flashmla_kv")
    if dtype != FP8:
        default = ("flashmla_sparse", "trtllm" if arch[0] >= 10 else "fa3")
    prefill, decode = chosen.dsa_prefill or default[0], chosen.dsa_decode or default[1]
    return "trtllm" in (prefill, decode) or (prefill, decode) == ("tilelang", "tilelang")
