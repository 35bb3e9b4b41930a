"""The layout of a stage's pools: cells, states and windows."""

from __future__ import annotations

from collections.abc import Hashable

from kvplanner.engine.sglang.kv.cells import Cells, built_layers, cells, engine_window, layers_of
from kvplanner.engine.sglang.kv.deepseek_v4 import compression
from kvplanner.engine.sglang.kv.pools import Layout
from kvplanner.engine.sglang.kv.state import state_layout
from kvplanner.engine.sglang.settings import Settings
from kvplanner.engine.shared.identity import by_identity
from kvplanner.model.spec import Compressed, Mla, ModelSpec, State


def _read(spec: ModelSpec, settings: Settings, stage: int, draft: ModelSpec | None = None) -> Hashable:
    """All that a layout depends on; of a stage the layers that it builds."""
    built = spec.layer_of[slice(*built_layers(spec, settings.parallel.pp, stage))]
    return (settings.cache, settings.dtype, settings.parallel, settings.speculation, settings.states, settings.overlap,
            settings.era.charges_draft, built, draft)  # fmt: skip


@by_identity(256, _read)
def layout(spec: ModelSpec, settings: Settings, stage: int, draft: ModelSpec | None = None) -> Layout:
    """What the pools of a stage are made of. Raises NotModelled for kinds that are not known."""
    if any(isinstance(m, Compressed) for layer in spec.layers for m in layer.mixers):
        kind = compression(spec, settings, stage)
        window, layers = engine_window(spec), kind.fine + kind.coarse
        return Layout(Cells(0, 0, 0, 0, 0), None, kind, window, False, "compressed", layers, kind.layers)
    found = layers_of(spec, settings, stage)
    return Layout(
        cells=cells(spec, settings, stage, draft),
        state=state_layout(spec, settings, stage),
        compression=None,
        window=found.window_tokens if found.window else None,
        all_windows=bool(found.window) and not found.full,
        kind="mla" if any(isinstance(m, Mla) for m in found.full) else "full",
        full_layers=len(found.full),
        window_layers=len(found.window),
        state_layers=sum(isinstance(m, State) for i in spec.layer_of for m in spec.layers[i].mixers),
    )
