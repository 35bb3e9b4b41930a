"""Engine options, each declared once: for the form, the terminal, command lines, plan files and documentation."""

from __future__ import annotations

from typing import Literal

from kvplanner.record import NamedTuple

OptionValue = bool | int | float | str
Origin = Literal["user", "default", "derived"]
OptionType = Literal["bool", "int", "tokens", "float", "text", "choice", "bytes"]
# What an option means to those who know no engine: forms, sentences and solvers find it by its role.
Role = Literal[
    "", "context", "max_requests", "step_tokens", "tensor_parallel", "pipeline_parallel", "data_parallel",
    "expert_parallel", "budget_share", "kv_dtype", "kv_bytes", "eager", "draft", "draft_method", "caller",
    "sleep", "layer_count", "device_shares",
]  # fmt: skip


class Option(NamedTuple):
    """One engine option, declared once for the form, the terminal, command lines, plan files and documentation.

    name: the canonical long flag without dashes and with underscores. flags: every spelling, the canonical first.
    negation: the flag that turns a boolean off. env: an environment variable that sets it instead of a flag;
    env_also: one that sets it where the flag does not.
    json: "parent.key" where the value lives in a flag that takes JSON ("compilation_config.cudagraph_mode").
    json_also: further homes of that kind, read but never written. many: the flag takes one word or more, kept with
    commas. modelled False: understood, but nothing is planned by it. synonyms: (other spelling, choice) pairs.
    default: text of the default rule for people ("0.92", "from the GPU: 8192 or 2048").
    moves: the segment kinds (or "" for admission only) that it changes. everyday: shown without searching.
    low, high: the range that makes sense, None for open. above_low: the low end itself lies outside it.
    negation_also: its other spellings. env_negation: a variable whose presence turns a boolean off. clears: options
    that hide this one, which a form gives back as it sets it. label: what a form calls it, "" for the words of its
    flag. role: what it means in any engine. "caller": how the engine is called, which no command line says.
    """

    name: str
    flags: tuple[str, ...]
    type: OptionType
    section: str
    help: str
    default: str = ""
    negation: str = ""
    env: str = ""
    json: str = ""
    choices: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    everyday: bool = False
    low: float | None = None
    high: float | None = None
    since: str = ""
    until: str = ""
    modelled: bool = True
    json_also: tuple[str, ...] = ()
    many: bool = False
    above_low: bool = False
    env_also: str = ""
    synonyms: tuple[tuple[str, str], ...] = ()
    label: str = ""
    role: Role = ""
    negation_also: tuple[str, ...] = ()
    env_negation: str = ""
    clears: tuple[str, ...] = ()

    @property
    def spelled(self) -> str:
        """How a command line writes it: the flag, or the JSON flag with the key."""
        parent, dot, key = self.json.partition(".")
        return f"--{parent.replace('_', '-')}.{key}" if dot else self.flags[0]

    def over(self, ranks: int) -> OptionValue:
        """The value that spreads over all of a tensor's ranks: on, or their number."""
        return True if self.type == "bool" else ranks


class FlagRule(NamedTuple):
    """How to read a flag that is no option.

    words: that follow it: "", "1", or "+" for one or more. reason: why a plan cannot leave it out, "" when it can;
    remedy: what to do then; harmless: values that it may have all the same. same_as: the JSON flag that it stands for.
    modelled False: it may change memory, and a plan that leaves it out says so. sizes: the option that is given the
    size of the file that it names; the reason holds where that is not at hand. encoders: the file holds the model's
    own encoders; unless: flags without which it is loaded with a repository's model unasked; seeing: architectures
    whose repositories often have one.
    """

    words: Literal["", "1", "+"] = ""
    reason: str = ""
    remedy: str = ""
    harmless: tuple[str, ...] = ()
    same_as: str = ""
    modelled: bool = True
    sizes: str = ""
    encoders: bool = False
    unless: tuple[str, ...] = ()
    seeing: tuple[str, ...] = ()


class Resolved(NamedTuple):
    """An option's value in a plan, who set it, and why the default is what it is."""

    value: OptionValue | None
    origin: Origin
    reason: str = ""
