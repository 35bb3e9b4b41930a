"""Which attention kernels vLLM picks, and the block sizes that they can work with.

Priorities and limits: platforms/cuda.py and v1/attention/backends/* of vLLM 0.33, with FlashInfer, FlashMLA and
CUTLASS installed as in the official image. Only what decides bytes is kept: the name, the smallest block and whether
a GPU can run the configuration at all.
"""

from __future__ import annotations

from typing import Final, Literal

from kvplanner.engine.vllm import rules
from kvplanner.engine.vllm.dtypes import LATENT_ONLY, is_quantised
from kvplanner.engine.vllm.gpu import Gpu
from kvplanner.engine.vllm.quirks import quirks
from kvplanner.engine.vllm.settings import Settings
from kvplanner.errors import BadInput
from kvplanner.model.spec import Attention, Compressed, Mixer, Mla, ModelSpec, State
from kvplanner.record import NamedTuple

Layout = Literal["LBNHC", "LBHNC", "BLHNC"]

# The smallest block of each back end, in tokens. Others start at 16.
_SMALLEST_BLOCK: Final[dict[str, int]] = {
    "FLASHMLA": 64, "CUTLASS_MLA": 128, "FLASHINFER_MLA": 32, "FLASHMLA_SPARSE": 64, "FLASHINFER_MLA_SPARSE": 32,
    "TRITON_FLASHINFER": 64, "DEEPSEEK_V4": 256, "ULTRAQUANT": 64,
}  # fmt: skip
KNOWN: Final = frozenset(_SMALLEST_BLOCK) | {
    "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT", "FLASH_ATTN_DIFFKV", "XFORMERS",
    "TRITON_FLASH_ATTN", "FLASH_ATTN_MLA", "TRITON_MLA", "FLASH_ATTN_MLA_SPARSE",
}  # fmt: skip
# The indexer's own kernel of sparse MLA knows one size.
INDEXER_BLOCK: Final = 64
_PER_HEAD: Final = ("int8_per_token_head", "fp8_per_token_head", "int4_per_token_head")
_OLD_MLA: Final = (14, 0)


class Chosen(NamedTuple):
    """The attention back ends of a model. primary: of its attention layers; smallest_block: the largest of their
    smallest blocks, in tokens; flashinfer_gdn: the gated-delta prefill kernel that keeps one more state block;
    packed_latent: sparse latent rows are stored in a format of their own (fp8_ds_mla).
    """

    primary: str
    smallest_block: int
    layout: Layout
    reason: str
    flashinfer_gdn: bool = False
    packed_latent: bool = False


def select(spec: ModelSpec, settings: Settings, gpu: Gpu) -> Chosen:
    """The back ends that vLLM would choose. Raises BadInput where it finds none for this GPU and cache."""
    arch = gpu.runs_as
    mixers: list[Mixer] = [m for layer in spec.layers for m in layer.mixers]
    gdn = _flashinfer_gdn(mixers, arch, settings.version)
    layout: Layout = "LBNHC"
    if any(isinstance(m, Compressed) for m in mixers):
        if settings.cache.dtype in _PER_HEAD or settings.cache.dtype.startswith("turboquant"):
            raise _no_backend(settings, gpu, "use_mla=True")
        return Chosen("DEEPSEEK_V4", 256, "BLHNC", "the only one for compressed attention", gdn)
    if expands_latent(spec, settings):
        mixers = [expanded(m) if isinstance(m, Mla) else m for m in mixers]
    latent = [m for m in mixers if isinstance(m, Mla)]
    attention = [m for m in mixers if isinstance(m, Attention)]
    if settings.attention_backend is not None:
        name, reason = _named(settings.attention_backend), "set by the user"
        _check_named(name, bool(latent), settings, arch)
    elif latent:
        name, reason = _latent_backend(latent[0], settings, gpu)
    elif attention:
        name, reason = _attention_backend(spec, attention, settings, gpu)
    else:
        name, reason = "NONE", "no attention layers"
    if name.endswith("FLASHINFER") and arch[0] == 10:
        layout = "LBHNC"
    smallest = _SMALLEST_BLOCK.get(name, 16)
    if any(m.indexer is not None for m in latent):
        smallest = INDEXER_BLOCK
    packed = name == "FLASHMLA_SPARSE" or (arch[0] == 12 and any(m.indexer is not None for m in latent))
    return Chosen(name, smallest, layout, reason, gdn, packed)


def expands_latent(spec: ModelSpec, settings: Settings) -> bool:
    """Whether the engine caches expanded heads rather than the latent."""
    return quirks(spec.architecture).expanded_latent or not rules.LATENT_CACHE.at(settings.version)


def expanded(mixer: Mla) -> Attention:
    """A latent layer as the ordinary attention that its projections expand to, values padded to the keys' size."""
    size = mixer.qk_nope + mixer.qk_rope
    return Attention(mixer.heads, mixer.heads, size, size)


def image_prefix(spec: ModelSpec) -> bool:
    """Whether image tokens see each other. Gemma 4's small models, whose later layers reuse earlier caches, do not."""
    if not quirks(spec.architecture).image_prefix or not spec.multimodal:
        return False
    return all(m.owns_cache for layer in spec.layers for m in layer.mixers if isinstance(m, Attention))


def _named(text: str) -> str:
    name = text.upper().removesuffix("_VLLM_V1")
    if name not in KNOWN and name != "NONE":
        raise BadInput(
            f"{text!r} is not an attention back end", "--attention-backend", "Known: " + ", ".join(sorted(KNOWN))
        )
    return name


def _check_named(name: str, latent: bool, settings: Settings, arch: tuple[int, int]) -> None:
    """Raises BadInput for a back end that cannot run the model's attention or its cache on this GPU."""
    dtype, why = settings.cache.dtype, ""
    flash = name == "FLASH_ATTN"
    unfit = flash and is_quantised(dtype) and (arch[0] != 9 or dtype == "fp8_e5m2")
    if name != "NONE" and ("MLA" in name) != latent:
        why = "non-MLA not supported" if "MLA" in name else "MLA not supported"
    elif flash and arch < (8, 0):
        why = "compute capability not supported"
    elif unfit or (dtype in _PER_HEAD and name not in ("TRITON_ATTN", "NONE")):
        why = "kv_cache_dtype not supported"
    if why:
        raise BadInput(
            f"Selected backend {name} is not valid for this configuration. Reason: ['{why}']",
            "--attention-backend",
            "Leave it to the engine",
        )


def _flashinfer_gdn(mixers: list[Mixer], arch: tuple[int, int], version: tuple[int, int]) -> bool:
    gated = [m for m in mixers if isinstance(m, State) and m.kind == "gated_delta"]
    if not gated or any(m.key_size != 128 or m.head_size != 128 for m in gated):
        return False
    return rules.CHECKPOINTS.at(version) and (arch == (9, 0) or arch[0] in (10, 12))


def _is_fp8(dtype: str) -> bool:
    return dtype.startswith("fp8") and dtype not in _PER_HEAD


def _latent_backend(mixer: Mla, settings: Settings, gpu: Gpu) -> tuple[str, str]:
    arch, dtype = gpu.runs_as, settings.cache.dtype
    facts = (f"head_size={mixer.kv_lora_rank + mixer.qk_rope}", "use_mla=True")
    if dtype in _PER_HEAD or (dtype.startswith(("turboquant", "nvfp4")) and dtype not in LATENT_ONLY):
        raise _no_backend(settings, gpu, *facts)
    if dtype in LATENT_ONLY and (mixer.indexer is None or (dtype == "nvfp4_ds_mla" and arch[0] != 10)):
        raise _no_backend(settings, gpu, *facts)  # formats of sparse attention; the 4-bit one for 10.x alone
    if dtype == "nvfp4_ds_mla":
        return "FLASHMLA_SPARSE", "4-bit cache"
    if mixer.indexer is not None:
        if arch[0] == 9:
            if dtype == "auto" and rules.FA_MLA_SPARSE.at(settings.version):
                return "FLASH_ATTN_MLA_SPARSE", "Hopper, 16-bit cache"
            return "FLASHMLA_SPARSE", "Hopper in this version" if dtype == "auto" else "Hopper, 8-bit cache"
        if arch[0] in (10, 12):
            return "FLASHINFER_MLA_SPARSE", "Blackwell"
        raise _no_backend(settings, gpu, *facts, "use_sparse=True")
    if arch[0] == 10:
        if settings.version < (11, 0):
            return "CUTLASS_MLA", "Blackwell in this version"
        return (
            ("FLASHINFER_MLA", "Blackwell") if mixer.qk_nope == 128 else ("CUTLASS_MLA", "Blackwell, other head sizes")
        )
    if arch[0] == 9:
        if settings.version < _OLD_MLA or _is_fp8(dtype):
            return "FLASHMLA", "Hopper, 8-bit cache" if _is_fp8(dtype) else "Hopper in this version"
        return "FLASH_ATTN_MLA", "Hopper, 16-bit cache"
    return "TRITON_MLA", "runs on every GPU"


def _attention_backend(spec: ModelSpec, attention: list[Attention], settings: Settings, gpu: Gpu) -> tuple[str, str]:
    arch, dtype = gpu.runs_as, settings.cache.dtype
    special = _special_cache(settings, gpu)
    if special is not None:
        return special
    if settings.model.dtype == "float32":
        return "FLEX_ATTENTION", "float32"
    heads = max(m.head_size for m in attention)
    if image_prefix(spec) and rules.KNOWS_IMAGE_PREFIX.at(settings.version):
        return _image_prefix_backend(attention, settings, gpu)
    if heads > 256:
        return _triton(settings, gpu, "head size above 256")
    if any(m.head_size_v != m.head_size for m in attention):
        return "FLASH_ATTN_DIFFKV", "keys and values of different size"
    if arch[0] == 12 and any(m.sinks for m in attention) and rules.FLASHINFER_SINKS.at(settings.version):
        return "FLASHINFER", "attention sinks on this GPU"
    if any(m.sinks for m in attention) and arch[0] not in (9, 10):
        return _triton(settings, gpu, "attention sinks on this GPU")
    if arch < (8, 0):
        return _triton(settings, gpu, "the GPU is older than Ampere")
    if arch[0] == 10 and settings.version >= (11, 0):
        return "FLASHINFER", "Blackwell server GPU"
    if _is_fp8(dtype) and (arch[0] != 9 or dtype == "fp8_e5m2"):
        return "FLASHINFER", "8-bit cache on this GPU"
    return "FLASH_ATTN", "first choice on this GPU"


def _special_cache(settings: Settings, gpu: Gpu) -> tuple[str, str] | None:
    """The back end of cache formats that have one of their own."""
    dtype = settings.cache.dtype
    if dtype in _PER_HEAD:
        return "TRITON_ATTN", "scales per token and head"
    if dtype.startswith("turboquant"):
        return "TURBOQUANT", "this cache has its own kernels"
    if dtype in LATENT_ONLY:
        raise _no_backend(settings, gpu, "use_mla=False")
    if not dtype.startswith("nvfp4"):
        return None
    if gpu.runs_as[0] < 10:
        raise _no_backend(settings, gpu, "use_mla=False")
    return "FLASHINFER", "4-bit cache"


def _image_prefix_backend(attention: list[Attention], settings: Settings, gpu: Gpu) -> tuple[str, str]:
    arch = gpu.runs_as
    wide = all(m.head_size in (256, 512) for m in attention)
    grouped = all(m.heads > m.kv_heads for m in attention)
    if wide and settings.version >= (33, 0):
        if arch[0] == 10 and grouped:
            return "TRITON_FLASHINFER", "image tokens see each other"
        if arch[0] == 9:
            return "TRITON_FLASH_ATTN", "image tokens see each other"
    return _triton(settings, gpu, "image tokens see each other")


def _triton(settings: Settings, gpu: Gpu, reason: str) -> tuple[str, str]:
    arch = gpu.runs_as
    if _is_fp8(settings.cache.dtype) and settings.cache.dtype != "fp8_e5m2" and arch < (8, 9):
        raise BadInput(
            f"FP8 KV cache is not supported by the Triton attention backend on {gpu.name} (compute capability "
            f"{arch[0]}.{arch[1]}); native FP8 (fp8e4nv) requires SM89+", "--kv-cache-dtype",
            "Re-run with --kv-cache-dtype bfloat16",
        )  # fmt: skip
    return "TRITON_ATTN", reason


def _no_backend(settings: Settings, gpu: Gpu, *facts: str) -> BadInput:
    said = ", ".join((*facts, f"dtype={settings.model.dtype}", f"kv_cache_dtype={settings.cache.dtype}"))
    return BadInput(
        f"No valid attention backend found for {gpu.name} with {said}",
        "--attention-backend" if settings.cache.dtype == "auto" else "--kv-cache-dtype",
        "Choose another KV cache dtype, or a Hopper or Blackwell GPU",
    )  # fmt: skip
