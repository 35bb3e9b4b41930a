"""PlanRequest: everything that a plan depends on, and only what the user set."""

from collections.abc import Mapping
from typing import NamedTuple

from kvplanner.engine.option import OptionValue
from kvplanner.engine.segment import SegmentKind
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model


class Load(NamedTuple):
    """What the server should carry: users at once, each with a prompt and an answer, in tokens."""

    users: int
    prompt_tokens: int
    output_tokens: int

    @property
    def tokens_per_user(self) -> int:
        """Tokens that one user holds in the KV cache at the end of the answer."""
        return self.prompt_tokens + self.output_tokens


class Calibration(NamedTuple):
    """A measured value from a neighbouring run: kind as in Segment, era, gpu and model family it was seen with."""

    kind: SegmentKind
    bytes: int
    era: str
    gpu: str
    family: str
    source: str


class PlanRequest(NamedTuple):
    """Everything that a plan depends on. `options` holds only what the user set, by canonical name.

    version None: the engine's newest modelled one. measured: given bytes by segment kind. draft: the model that
    drafts tokens, for speculative decoding with one.
    """

    model: Model
    machine: Machine
    engine: str = "vllm"
    version: str | None = None
    options: Mapping[str, OptionValue] = {}
    load: Load | None = None
    weight_format: str | None = None
    measured: Mapping[str, int] = {}
    calibration: tuple[Calibration, ...] = ()
    draft: Model | None = None
