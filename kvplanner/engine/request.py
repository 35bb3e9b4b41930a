"""PlanRequest: everything that a plan depends on, and only what the user set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from kvplanner.engine.option import OptionValue
from kvplanner.engine.segment import SegmentKind
from kvplanner.gpu.spec import Machine
from kvplanner.model.model import Model
from kvplanner.record import NamedTuple

MOST_KINDS = 16  # of requests in a mix


class Part(NamedTuple):
    """Requests of one kind in a mix. share: of all users, the shares of a mix being 1 together."""

    share: float
    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """What one of them holds in the end."""
        return self.prompt_tokens + self.output_tokens


class Load(NamedTuple):
    """What the server should carry: users at once, each with a prompt and an answer, in tokens.

    mix: where users are of several kinds; then prompt and answer are those of the longest kind.
    """

    users: int
    prompt_tokens: int
    output_tokens: int
    mix: tuple[Part, ...] = ()

    @property
    def tokens_per_user(self) -> int:
        """Tokens that one user holds in the KV cache at the end of the answer; of a mix the longest kind's."""
        return self.prompt_tokens + self.output_tokens

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt of any kind."""
        return max((part.prompt_tokens for part in self.mix), default=self.prompt_tokens)


def mixed(users: int, mix: Sequence[Part]) -> Load:
    """The load of users of several kinds; of one kind a plain one."""
    longest = max(mix, key=lambda part: part.tokens)
    return Load(users, longest.prompt_tokens, longest.output_tokens, tuple(mix) if len(mix) > 1 else ())


# A part of a device's memory as runs measure it: graphs also as the engine estimates them before it sizes its cache.
MeasuredKind = SegmentKind | Literal["cuda_graphs_estimated"]


class Calibration(NamedTuple):
    """What a run measured, for plans of its neighbourhood.

    engine, era, gpu, family, ranks, driver: of the run, "" where any will do (ranks as shared.calibration.ranks writes
    them). release: runs of the plan's own release speak before others of its rules. law_bytes: what the rules said of
    that very run, None where that is not known. source: the run in words.
    """

    kind: MeasuredKind
    bytes: int
    era: str
    gpu: str
    family: str
    source: str
    engine: str = ""
    law_bytes: int | None = None
    ranks: str = ""
    driver: str = ""
    release: str = ""


class Ask(NamedTuple):
    """What a user asks of an engine, apart from model and machine: every field as in PlanRequest."""

    engine: str = "vllm"
    version: str | None = None
    options: Mapping[str, OptionValue] = MappingProxyType({})
    load: Load | None = None
    weight_format: str | None = None
    measured: Mapping[str, int] = MappingProxyType({})

    def request(self, model: Model, machine: Machine) -> PlanRequest:
        """The request for a model on a machine."""
        return PlanRequest(model, machine, *self)


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

    @property
    def ask(self) -> Ask:
        """All of it that a plan file or a window keeps as it is: the rest is named there in words."""
        return Ask(*self[2:8])
