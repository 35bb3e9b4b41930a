"""A model and what drafts for it, sized under settings that change; what does not change is kept for the same model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvplanner.engine.llamacpp import drafting, figures
from kvplanner.engine.llamacpp.architectures import as_gguf
from kvplanner.engine.llamacpp.settings import ContextSettings, Settings
from kvplanner.engine.llamacpp.sizes import Cards, Sizer, Sizes
from kvplanner.engine.llamacpp.tensors import tensors_of
from kvplanner.engine.shared.identity import by_identity, make_room, remembered
from kvplanner.errors import BadInput
from kvplanner.gpu.spec import Device
from kvplanner.model.model import Model


class Trial:
    """Sizes one model, and the one that drafts for it, under settings that change."""

    def __init__(self, model: Model, draft: Model | None, gpus: Sequence[Device], *, predicts: bool = False) -> None:
        self.free = tuple(figures.free_at_load(device) for device in gpus)
        cards = Cards(self.free, tuple(figures.totals(d)[0] for d in gpus), tuple(_tile(d) for d in gpus))
        self.own = _sizer(model, cards)
        self.draft = _sizer(draft, cards) if draft is not None else None
        self.predicts = predicts
        self.tensors = self.own.tensors

    def sizes(self, settings: Settings, *, can_pipeline: bool = True) -> Sizes:
        """The model's own sizes. Raises BadInput for overrides that name no buffer."""
        try:
            return self.own.sizes(settings, can_pipeline=can_pipeline)
        except ValueError as error:
            raise BadInput(str(error), "--override-tensor", 'Example: --override-tensor "ffn_.*_exps=CPU"') from None

    def _predicted(self, settings: Settings) -> Sizes:
        """The second context over the model's own prediction layers."""
        assert self.draft is not None
        other = settings._replace(context=_drafting(settings.context))
        found = self.draft.sizes(drafting.beside(other, self.sizes(settings)))
        return drafting.layers_alone(found, self.draft.tensors)

    def reserved(self, settings: Settings) -> tuple[int, ...]:
        """What --fit keeps for what drafts, by GPU: at its own whole context where none is given."""
        own = self.draft.model.spec.trained_context_length if self.draft is not None else None
        if settings.context.reducible and own:
            settings = settings._replace(context=settings.context._replace(tokens=own))
        found = self.drafted(settings)
        if found is None:
            return (0,) * len(settings.fit.target_bytes)
        # The prediction layers' own weights are the model's.
        weights = (0,) * len(self.free) if self.predicts else found.placed.device_bytes
        return tuple(
            held + found.context(gpu) + found.compute.gpus[gpu]
            for gpu, held in zip(range(len(self.free)), weights, strict=True)
        )

    def drafted(self, settings: Settings) -> Sizes | None:
        """The draft model's sizes: all its layers on the GPUs, with the same context."""
        if self.draft is None:
            return None
        if self.predicts:
            return self._predicted(settings)
        return self.draft.sizes(
            settings._replace(
                context=_drafting(settings.context),
                place=settings.place._replace(gpu_layers=None, shares=(), overrides="", cpu_experts=None),
            )
        )


def _drafting(context: ContextSettings) -> ContextSettings:
    """The context of what drafts: of the same length, in its own types, with logits for the slots alone."""
    return context._replace(
        key_type=context.draft_key_type, value_type=context.draft_value_type, draft_rows=0,
        outputs=None if context.outputs is None else context.slots, embeddings=False,
    )  # fmt: skip


# The last sizers, by the model's identity: a model is a large value, and the same object while its plan changes.
_SIZERS: dict[tuple[int, Cards], Sizer] = remembered({})
KEPT: Final = 8


def _tile(device: Device) -> int:
    """Rows at whose multiples -sm row cuts: what the GPU's kernels for quantised matrices take at once."""
    return 128 if (device.gpu.compute_capability or (8, 9)) >= (7, 0) else 64


def _sizer(model: Model, cards: Cards) -> Sizer:
    found = _SIZERS.get((id(model), cards))
    if found is None or found.model is not model:
        make_room(_SIZERS, KEPT)
        found = _SIZERS[id(model), cards] = Sizer(model, tensors_of(model), cards)
    return found


@by_identity(KEPT, lambda _: None)
def predictor(model: Model) -> Model:
    """The model of the prediction layers, once for each model."""
    return drafting.prediction_layers(model)


@by_identity(KEPT, lambda _: None)
def as_loaded(model: Model) -> tuple[Model, str]:
    """as_gguf, once for each model."""
    return as_gguf(model)
