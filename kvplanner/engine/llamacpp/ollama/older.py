"""Ollama before 0.30: what it settles by a release's rules, and the flags with which llama.cpp does the same.

Models that its own engine runs are planned with llama.cpp's tensors and cells, by the engine's own counts of cells; its
graph is built by other code, so compute buffers carry a wide band.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kvplanner.engine.llamacpp import figures
from kvplanner.engine.llamacpp.builds import Build
from kvplanner.engine.llamacpp.ollama import estimate as estimates
from kvplanner.engine.llamacpp.ollama import rules
from kvplanner.engine.llamacpp.ollama.asked import Asked
from kvplanner.engine.llamacpp.ollama.eras import Era
from kvplanner.engine.llamacpp.ollama.estimate import Estimate, Graph, as_logged
from kvplanner.engine.llamacpp.ollama.layout import lay_out
from kvplanner.engine.option import OptionValue, Resolved
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.shared.identity import by_identity
from kvplanner.gpu.spec import Device
from kvplanner.model.model import Model
from kvplanner.model.spec import Attention, LayerSpec, State
from kvplanner.units import format_count

_BATCH: Final = 512
_SHORTEST_VISION: Final = 2048
# Architectures whose windows Ollama's engine keeps longer than the model sees, for its prompt cache.
_LONG_WINDOWS: Final = frozenset({"gpt-oss", "gemma4"})
_LONG_WINDOW: Final = 4096
_WITHOUT_FLASH: Final = ((7, 2),)
_OSS_FLASH: Final = (0, 11, 8)
# The first release that tries two GPUs of three, and so on, before it takes all.
_PACKS: Final = (0, 11, 11)


class Older(Asked):
    """What a release before 0.30 settles. measure: a graph's bytes on the first GPU, for its own engine's layout."""

    def __init__(
        self, request: PlanRequest, model: Model, era: Era, measure: Callable[[Older], int] | None = None
    ) -> None:
        super().__init__(request)
        self.request, self.era = request, era
        self.notes: list[str] = []
        spec = model.spec
        self.devices = request.machine.gpus
        self.projector = int(self.take("mmproj_size", None) or 0)
        self.own = spec.model_type in era.own and not self.projector
        self.model = _as_kept(model) if self.own else model
        self.vision = bool(self.projector) or (self.own and spec.multimodal)
        self.flash = self._flash()
        self.cache_type = self._cache_type()
        self.facts = estimates.facts_of(model, era, own=self.own)
        self.context = self._context(spec.trained_context_length)
        self.batch = min(int(self.take("num_batch", _BATCH) or _BATCH), self.context)
        self.wanted = -1 if (asked := self.take("num_gpu", None, "as many as fit")) is None else int(asked)
        self.overhead = int(self.take("gpu_overhead", 0) or 0)
        self.spread = bool(self.take("sched_spread", False))
        self.most = rules.at_once(int(self.take("max_loaded_models", 0, "three for each GPU") or 0), len(self.devices))
        self.free = tuple(_free(device) for device in self.devices)
        self.order = tuple(range(len(self.devices)))
        self.found: Estimate | None = None
        self.split: tuple[int, ...] = ()
        places = era.own_places if self.own else era.places
        self.slots = self._asked_slots()[-1]
        if self.wanted == 0 or not self.devices:
            self.split = (0,) * len(self.devices)
        elif places == "estimate":
            self._by_estimate()
        else:
            self._by_layout(measure if self.own else None)
        if "num_parallel" not in self.options:
            reason = f"auto: {era.slots[0]} where they fit" if len(era.slots) > 1 else ""
            self.resolved["num_parallel"] = Resolved(self.slots, "default", reason)
        else:
            self.take("num_parallel", self.slots)

    def _context(self, trained: int | None) -> int:
        totals = [figures.totals(device)[0] for device in self.devices]
        overhead = int(self.options.get("gpu_overhead") or 0)
        usual = self.era.context or rules.default_context(totals, overhead)
        asked = int(self.take("num_ctx", usual, "" if self.era.context else "by the memory of all GPUs") or usual)
        asked = max(asked, _SHORTEST_VISION) if self.vision else asked
        if trained and asked > trained:
            self.notes.append(f"Ollama shortens the context to the model's own {format_count(trained)} tokens")
            self.resolved["num_ctx"] = Resolved(trained, "derived", "the model's own")
            return trained
        return asked

    def _flash(self) -> str:
        """ "on", "off" or "auto": as was asked, else as the release does for the architecture."""
        given = self.options.get("flash_attention")
        usual = self._architecture in self.era.flash
        automatic = self.era.automatic and not self.own and given is None
        able = all(d.gpu.compute_capability not in _WITHOUT_FLASH for d in self.devices) and self._model_flash()
        wanted = usual if given is None else bool(given)
        self.resolved["flash_attention"] = (
            Resolved(given, "user") if given is not None
            else Resolved(usual or automatic, "default", "llama.cpp decides" if automatic else "by architecture")
        )  # fmt: skip
        if wanted and not able:
            self.notes.append("Flash attention was asked for, and Ollama leaves it out for this model or GPU")
        return "auto" if automatic else "on" if wanted and able else "off"

    @property
    def _architecture(self) -> str:
        """The architecture's name in GGUF."""
        return self.model.spec.model_type

    def _model_flash(self) -> bool:
        """SupportsFlashAttention: heads of keys and values alike, no soft caps of scores."""
        mixers = [m for layer in self.model.spec.layers for m in layer.mixers if not isinstance(m, State)]
        alike = all(isinstance(m, Attention) and m.head_size == m.head_size_v for m in mixers)
        if self._architecture == "gpt-oss" and self.era.first < _OSS_FLASH:
            return False
        return bool(mixers) and alike and self._architecture not in ("gemma2", "grok")

    def _cache_type(self) -> str:
        asked = str(self.take("kv_cache_type", "f16"))
        if asked != "f16" and self.flash != "on":
            self.notes.append(f"Without flash attention, Ollama keeps the cache in f16 and not in {asked}")
            return "f16"
        return asked

    def _asked_slots(self) -> tuple[int, ...]:
        """Numbers of requests at once, in the order in which they are tried."""
        given = int(self.options.get("num_parallel") or 0)
        if self.model.spec.model_type.startswith(self.era.one_slot):
            return (1,)
        return (given,) if given > 0 else self.era.slots

    def _graph(self, slots: int) -> Graph:
        return estimates.graph_of(
            self.facts, self.era, context=self.context * slots, batch=self.batch, slots=slots,
            cache_type=self.cache_type, flash=self.flash == "on",
        )  # fmt: skip

    def _estimate(self, gpus: Sequence[int], slots: int) -> Estimate:
        return estimates.place(
            self.facts, self._graph(slots), self.era, [self.free[index] for index in gpus], wanted=self.wanted,
            overhead=self.overhead, projector=self.projector,
        )  # fmt: skip

    def _by_estimate(self) -> None:
        """The fewest GPUs that hold all by the estimate, with the most requests at once that fit so; else all GPUs."""
        freest = sorted(range(len(self.free)), key=lambda index: -self.free[index])
        every = self.wanted if self.wanted >= 0 else len(self.facts.layers) + 1
        tried = self._asked_slots()
        singles = [] if self.spread else [[index] for index in freest]
        packs = [freest[:count] for count in range(2, len(freest))] if self.era.first >= _PACKS else []
        for groups in (singles, packs if not self.spread else [], [freest]):
            for slots in tried:
                for gpus in groups:
                    found = self._estimate(gpus, slots)
                    if 0 < every <= found.layers:
                        self._take_estimate(gpus, slots, found)
                        return
        slots, gpus = tried[-1], list(range(len(self.free)))
        self._take_estimate(gpus, slots, self._estimate(gpus, slots))

    def _take_estimate(self, gpus: Sequence[int], slots: int, found: Estimate) -> None:
        self.slots, self.found, self.order = slots, found, tuple(gpus)
        self.split = found.split

    def _by_layout(self, measure: Callable[[Older], int] | None) -> None:
        """In what is free beside a graph, the freest GPU first."""
        graph = self._graph(self.slots)
        layers = [weight + cells for weight, cells in zip(self.facts.layers, graph.cache, strict=True)]
        layers.append(self.facts.output + self.facts.projector)
        order = sorted(range(len(self.free)), key=lambda index: -self.free[index])
        beside, spare = max(graph.full, graph.partial), layers[0]
        if measure is not None:  # what its own engine says that the graph takes
            self.order, self.split = tuple(order), (len(layers), *(0,) * (len(order) - 1))
            beside, spare = measure(self) + self.facts.projector_graph, 0
        kept = estimates.MINIMUM + self.overhead + beside + spare
        room = [max(self.free[index] - kept, 0) for index in order]
        if self.projector and room:
            room[0] = max(room[0] - self.projector, 0)
        self.order = tuple(order)
        self.split = lay_out(layers, room, wanted=self.wanted, spread=self.spread)
        self.graph_bytes = beside

    @property
    def layers(self) -> int:
        """Layers on GPUs, the output layer among them."""
        return sum(self.split)

    def inner(self) -> dict[str, OptionValue]:
        """llama.cpp's options for the same."""
        out: dict[str, OptionValue] = {
            "ctx_size": self.context * self.slots, "parallel": self.slots, "kv_unified": self.era.unified or self.own,
            "batch_size": self.batch * self.slots,
            "ubatch_size": self.batch if self.era.batched or self.own else min(self.batch * self.slots, _BATCH),
            "flash_attn": self.flash, "cache_type_k": self.cache_type, "cache_type_v": self.cache_type,
            "fit": "off", "n_gpu_layers": str(self.layers),
        }  # fmt: skip
        used = [index for index, count in zip(self.order, self.split, strict=True) if count]
        if not used:
            out["device"] = "none"
        elif len(self.devices) > 1:
            out["device"] = ",".join(f"CUDA{index}" for index in used)
            out["tensor_split"] = ",".join(str(count) for count in self.split if count)
        beside = self.projector or (self.facts.projector if self.own else 0)
        if beside:
            out["mmproj_size"] = beside
        for name, default, reason in (
            ("host_memory", None, "not known: what stays on the host is not held against anything"), ("wddm", None, ""),
            ("sysmem_fallback", None, ""),
        ):  # fmt: skip
            if (given := self.take(name, default, reason)) is not None:
                out[name] = given
        return out

    def build(self) -> Build:
        """The rules of llama.cpp that stand for the engine that runs the model."""
        if not self.own:
            return self.era.build
        padding = 256 if self.flash == "on" else 32
        return self.era.build._replace(
            limited_outputs=True,
            padding=padding,
            plain_padding=padding,
            windows=True,
            latent=True,
            own_graph=True,
            both_inputs=False,
        )

    def told(self) -> tuple[str, ...]:
        """What its log says of the placing, and which engine runs the model."""
        engine = "Ollama's own engine" if self.own else "llama.cpp's runner"
        count = len(self.facts.layers) + 1
        said = [f"This release runs {self._architecture} in {engine}, with {self.layers} of {count} layers on GPUs"]
        found = self.found
        if found is not None:
            weights, _ = estimates.totals(found, self.era)
            split = f", split {','.join(map(str, found.split))}" if len(found.split) > 1 else ""
            said.append(
                f"Its log would say: layers.offload={found.layers}{split} memory.required.full="
                f"{as_logged(found.full)} partial={as_logged(found.required)} kv={as_logged(found.cache)} "
                f"memory.weights.total={as_logged(weights)} memory.graph.full={as_logged(found.graph_full)} "
                f"partial={as_logged(found.graph_partial)}: the rough estimate that decides how many layers fit"
            )
        return tuple(said)


def _free(device: Device) -> int:
    """What Ollama finds free when it looks for GPUs: its own context is gone by then."""
    _, seen = figures.totals(device)
    return max(seen - figures.other_of(device, seen).value, 0)


@by_identity(8, lambda _: None)
def _as_kept(model: Model) -> Model:
    """The model with windows as long as Ollama's engine keeps them."""
    if model.spec.model_type not in _LONG_WINDOWS:
        return model

    def kept(layer: LayerSpec) -> LayerSpec:
        mixers = tuple(
            m._replace(window=max(m.window, _LONG_WINDOW)) if isinstance(m, Attention) and m.window else m
            for m in layer.mixers
        )
        return layer._replace(mixers=mixers)

    return model._replace(spec=model.spec._replace(layers=tuple(kept(layer) for layer in model.spec.layers)))
