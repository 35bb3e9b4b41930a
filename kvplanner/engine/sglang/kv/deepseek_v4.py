"""DeepSeek V4: a pool of windows and pools of compressed latents, in pages (model_executor/pool_configurator.py,
mem_cache/deepseek_v4_memory_pool.py, 0.5.23)."""

from __future__ import annotations

from typing import Final

from kvplanner.engine.sglang.kv.cells import stage_layers
from kvplanner.engine.sglang.settings import Settings
from kvplanner.errors import NotModelled
from kvplanner.model.spec import Compressed, ModelSpec
from kvplanner.record import NamedTuple
from kvplanner.units import ceil_div, round_up

_ROPE: Final = 64  # qk_rope_head_dim of every published config
_ALIGN: Final = 576
_STATE_BYTES: Final = 4  # SGLANG_DSV4_COMPRESS_STATE_DTYPE: float32
_FINE, _COARSE = 4, 128


class Compression(NamedTuple):
    """What the pools of a stage are made of.

    layers: of all ratios; fine, coarse: of ratio 4 and 128. latent, index_width: elements of a row. fine_ring,
    coarse_ring: pending states of a page and of a request. inflation: for a draft's layer."""

    layers: int
    fine: int
    coarse: int
    latent: int
    index_width: int
    page: int
    window: int
    fine_ring: int
    coarse_ring: int
    inflation: float

    @property
    def window_token(self) -> float:
        """Bytes of a token of the window pool: its latent in every layer, and the pending states of fine layers."""
        pending = self.fine_ring / self.page * (4 * self.latent + 4 * self.index_width) * _STATE_BYTES * self.fine
        return (self._paged(self.page) * self.layers + pending) * self.inflation

    @property
    def full_token(self) -> float:
        """Bytes of a token of the full pool, the window pool's share left out."""
        fine = (self._paged(self.page // _FINE) / _FINE + _index_bytes(self.index_width) / _FINE) * self.fine
        return (fine + self._paged(self.page // _COARSE) / _COARSE * self.coarse) * self.inflation

    def rings(self, requests: int) -> int:
        """Bytes of the coarse layers' pending states, whatever the tokens."""
        rows = round_up((requests + 1) * self.coarse_ring + self.coarse_ring + 1, _COARSE)
        return rows * 2 * self.latent * _STATE_BYTES * self.coarse

    def pool_bytes(self, tokens: int, window_tokens: int, requests: int) -> int:
        """Bytes of all pools and of the table from full to window slots."""
        fine_pages = ceil_div(tokens // _FINE + self.page, self.page // _FINE)
        coarse_pages = ceil_div(tokens // _COARSE + self.page, self.page // _COARSE)
        latents = fine_pages * self._page(self.page // _FINE) * self.fine
        latents += coarse_pages * self._page(self.page // _COARSE) * self.coarse
        index = fine_pages * (self.page // _FINE) * _index_bytes(self.index_width) * self.fine
        windows = ceil_div(window_tokens + self.page, self.page) * self._page(self.page) * self.layers
        rows = round_up(window_tokens // self.page * self.fine_ring + self.fine_ring + 1, _FINE)
        pending = rows * (4 * self.latent + 4 * self.index_width) * _STATE_BYTES * self.fine
        return latents + index + windows + pending + self.rings(requests) + 8 * (tokens + self.page + 1)

    def _page(self, slots: int) -> int:
        return round_up(slots * (self.latent - _ROPE + 2 * _ROPE + 8), _ALIGN)

    def _paged(self, slots: int) -> float:
        return self._page(slots) / slots


def compression(spec: ModelSpec, settings: Settings, stage: int) -> Compression:
    """The pools of a stage. Raises NotModelled for compression ratios that the engine's newer layouts keep."""
    first, end = stage_layers(spec.num_layers, settings.parallel.pp, stage)
    mixers = [m for i in spec.layer_of[first:end] for m in spec.layers[i].mixers if isinstance(m, Compressed)]
    ratios = [m.ratio for m in mixers]
    if not mixers or not set(ratios) <= {0, _FINE, _COARSE}:
        raise NotModelled("compression ratios other than 4 and 128 are not known here", "config.json: compress_ratios",
                          "Plan it with another engine")  # fmt: skip
    speculative = bool(settings.speculation.algorithm)
    return Compression(
        layers=len(mixers),
        fine=ratios.count(_FINE),
        coarse=ratios.count(_COARSE),
        latent=mixers[0].head_size,
        index_width=next((m.indexer.head_size for m in mixers if m.indexer is not None), 0),
        page=settings.cache.page_size,
        window=mixers[0].window,
        fine_ring=16 if speculative else 8,
        coarse_ring=256 if speculative else 128,
        inflation=(len(mixers) + 1) / len(mixers) if speculative else 1.0,
    )


def _index_bytes(width: int) -> int:
    return width + width // 128 * 4
