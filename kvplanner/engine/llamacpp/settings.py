"""llama-server's settings, resolved: what the user gave, the build's defaults, and what follows from both."""

from __future__ import annotations

from kvplanner.engine.llamacpp.builds import Build
from kvplanner.record import NamedTuple


class ContextSettings(NamedTuple):
    """The context: tokens asked for in all, slots, and whether they share one pool of cells.

    reducible: the context was not given, so that --fit may shorten it. draft_rows: rows of recurrent state for
    drafted tokens. full_window: windows are kept at full length. outputs: rows of every token's output, None where
    the slots' are enough. embeddings: those are vectors, not logits.
    """

    tokens: int
    slots: int
    unified: bool
    batch: int = 2048
    ubatch: int = 512
    key_type: str = "f16"
    value_type: str = "f16"
    flash: str = "auto"
    full_window: bool = False
    draft_rows: int = 0
    outputs: int | None = None
    embeddings: bool = False
    reducible: bool = False
    draft_key_type: str = "f16"
    draft_value_type: str = "f16"


class PlaceSettings(NamedTuple):
    """Where things go. gpu_layers None: all. shares: --tensor-split, empty for the devices' free memory.

    asked_layers: as --n-gpu-layers was given, which may be more than there are.
    overrides: --override-tensor as given. cpu_experts None: of no layer, 0: of all, N: of the first N.
    """

    gpu_layers: int | None = None
    split_mode: str = "layer"
    main_gpu: int = 0
    shares: tuple[float, ...] = ()
    overrides: str = ""
    cpu_experts: int | None = None
    kv_offload: bool = True
    op_offload: bool = True
    mmap: bool = True
    mlock: bool = False
    repack: bool = True
    asked_layers: int | None = None


class FitSettings(NamedTuple):
    """--fit: whether it runs, what must stay free on each device, and the shortest context that it may choose."""

    on: bool = False
    target_bytes: tuple[int, ...] = (1 << 30,)
    shortest: int = 4096


class Settings(NamedTuple):
    """Everything that sizes depend on besides the model and the devices."""

    build: Build
    context: ContextSettings
    place: PlaceSettings = PlaceSettings()
    fit: FitSettings = FitSettings()
