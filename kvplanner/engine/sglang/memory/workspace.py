"""Attention workspaces, made between the pools and the graphs (layers/attention/*.py, 0.5.23).

Figures: "Memory pool end" less "Capture cuda graph begin" of public logs: 0.42 to 0.66 GiB with FlashInfer (whose
workspace is 384 MiB), 0.10 with FlashAttention 3.
"""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.memory.outside import Figure
from kvplanner.engine.sglang.settings import Settings
from kvplanner.estimate import Basis, Estimate, Input, banded

_BY_BACKEND: Final[dict[str, Figure]] = {
    "flashinfer": Figure(0.53, 0.40, 0.70), "fa3": Figure(0.06, 0.0, 0.15), "fa4": Figure(0.08, 0.0, 0.30),
    "triton": Figure(0.20, 0.0, 0.66), "trtllm_mha": Figure(0.53, 0.12, 0.80), "trtllm_mla": Figure(0.20, 0.10, 0.60),
    "flashmla": Figure(0.10, 0.0, 0.40), "cutedsl_mla": Figure(0.20, 0.0, 0.60), "dsa": Figure(0.30, 0.05, 0.90),
    "dsv4": Figure(0.40, 0.05, 1.80),
}  # fmt: skip
_OTHER: Final = Figure(0.30, 0.0, 0.80)


def attention_workspace(settings: Settings) -> Estimate:
    """Bytes of the attention back ends' workspaces; two back ends have one each."""
    names = dict.fromkeys((settings.prefill_attention, settings.decode_attention))
    figures = [_BY_BACKEND.get(name, _OTHER) for name in names]
    value, low, high = (sum(parts) for parts in zip(*(f.bytes() for f in figures), strict=True))
    basis: Basis = "calibrated" if all(name in ("flashinfer", "fa3") for name in names) else "assumed"
    return banded(value, low, high, basis, "{attention workspace}",
                  Input("attention workspace", value, "B", " and ".join(names)))  # fmt: skip
