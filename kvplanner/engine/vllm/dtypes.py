"""Bytes of one cached row for every --kv-cache-dtype (config/cache.py and the back ends of vLLM 0.33)."""

from __future__ import annotations

from typing import Final

_ELEMENT_BYTES: Final = {
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "uint8": 1,
}
_ONE_BYTE: Final = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")
# Bits of keys and values, and bytes of scales and offsets beside them, per token and head.
_TURBOQUANT: Final[dict[str, tuple[int, int, int, int]]] = {
    "turboquant_k8v4": (8, 0, 4, 4),
    "turboquant_4bit_nc": (4, 2, 4, 4),
    "turboquant_k3v4_nc": (3, 2, 4, 4),
    "turboquant_3bit_nc": (3, 2, 3, 4),
}
_PLAIN: Final = ("auto", "float16", "bfloat16", "float32")
_PER_TOKEN: Final = ("int8_per_token_head", "fp8_per_token_head", "int4_per_token_head", "nvfp4", "nvfp4_4over6")
# Formats of a latent cache alone.
LATENT_ONLY: Final = ("fp8_ds_mla", "nvfp4_ds_mla")
# What --kv-cache-dtype takes (config/cache.py); fp8_inc is for other hardware and stands in no form.
OFFERED: Final = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", *_PER_TOKEN, *_TURBOQUANT,
                  "nvfp4_ds_mla")  # fmt: skip
KNOWN: Final = (*OFFERED, "fp8_inc")
# The first release that has a dtype (config/cache.py CacheDType of the releases on both sides); others are older.
SINCE: Final[dict[str, tuple[int, int]]] = {
    **dict.fromkeys(("int8_per_token_head", "fp8_per_token_head", "nvfp4", *_TURBOQUANT), (20, 0)),
    "int4_per_token_head": (25, 0), "nvfp4_4over6": (28, 0), "nvfp4_ds_mla": (30, 0),
}  # fmt: skip
_FP8_DS_MLA: Final = 656  # 512 values of 1 byte, 16 bytes of scales, 64 rope values of 2 bytes
_NVFP4_DS_MLA: Final = 352


def element_bytes(dtype: str) -> int:
    """Bytes of one element of a plain dtype name. Raises KeyError for others."""
    return _ELEMENT_BYTES[dtype]


def is_quantised(kv_dtype: str) -> bool:
    """Whether a cache dtype stores less than the model's own."""
    return kv_dtype not in _PLAIN


def head_bytes(kv_dtype: str, dtype: str, key: int, value: int) -> int:
    """Bytes that one token takes for one KV head of `key` and `value` elements, scales included.

    dtype: the model's, used where kv_dtype is "auto". Raises KeyError for a name that does not exist.
    """
    if kv_dtype in _TURBOQUANT:
        key_bits, key_extra, value_bits, value_extra = _TURBOQUANT[kv_dtype]
        raw = -(-key * key_bits // 8) + key_extra + -(-value * value_bits // 8) + value_extra
        return raw + raw % 2
    if kv_dtype in _ONE_BYTE:
        return key + value
    if kv_dtype in ("int8_per_token_head", "fp8_per_token_head"):
        return key + value + 8
    if kv_dtype == "int4_per_token_head":
        return (key + value) // 2 + 8
    if kv_dtype in ("nvfp4", "nvfp4_4over6"):
        return (key + value) // 2 + (key + value) // 16
    return (key + value) * element_bytes(dtype if kv_dtype == "auto" else kv_dtype)


def latent_bytes(kv_dtype: str, dtype: str, elements: int, packed: bool) -> int:
    """Bytes of one token of a latent (MLA) cache of `elements`.

    packed: the back end stores 8-bit rows in its own format with scales and a 16-bit rope part.
    """
    if kv_dtype == "fp8_ds_mla" or (packed and kv_dtype in _ONE_BYTE):
        return _FP8_DS_MLA
    if kv_dtype == "nvfp4_ds_mla":
        return _NVFP4_DS_MLA
    if kv_dtype in _ONE_BYTE:
        return elements
    return elements * element_bytes(dtype if kv_dtype == "auto" else kv_dtype)
