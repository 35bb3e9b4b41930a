"""Mixture-of-experts blocks: how each family names its experts, router and shared experts."""

from __future__ import annotations

from kvplanner.errors import BadInput
from kvplanner.model.config.fields import Fields
from kvplanner.model.config.parts import Parts
from kvplanner.model.config.reading import MlpPart, Reading
from kvplanner.model.spec import Moe
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple

GATED = ("gate_proj", "up_proj", "down_proj")
MIXTRAL = ("w1", "w3", "w2")


class Experts(NamedTuple):
    """Traits of a family's sparse block.

    count, top_k, width: field names, first hit wins. shared_count: shared experts of the experts' width each;
    shared_width: a width stated as such (0 or null: none). path: of the block below the layer; router, experts,
    shared: below it. correction: path of the fp32 selection bias, read only if `correction_if` is true.
    shared_gate: path of a 1-row gate on the shared expert. names equal in the first two: one stored matrix.
    """

    count: tuple[str, ...] = ("num_experts",)  # type: ignore[assignment]  # hides a tuple's method, which nobody asks a value for
    top_k: tuple[str, ...] = ("num_experts_per_tok",)
    width: tuple[str, ...] = ("moe_intermediate_size",)
    shared_count: tuple[str, ...] = ()
    shared_default: int = 0
    shared_width: tuple[str, ...] = ()
    path: str = "mlp"
    router: str = "gate"
    router_bias: bool = False
    experts: str = "experts"
    shared: str = "shared_experts"
    shared_gate: str = ""
    correction: str = ""
    correction_if: tuple[str, bool] | None = None
    matrices: int = 3
    bias: bool = False
    names: tuple[str, str, str] = GATED
    shared_names: tuple[str, str, str] = GATED
    ignore: tuple[str, ...] = ()

    def __call__(self, reading: Reading, hidden: int) -> MlpPart:
        """Read the block of one layer. Raises BadInput where the counts contradict each other."""
        text, parts = reading.text, reading.parts
        text.skip(*self.ignore)
        count, top_k, width = expert_sizes(text, self.count, self.top_k, self.width)
        shared = self._shared_width(text, width)
        groups = parts.router(f"{self.path}.{self.router}", count, hidden, bias=self.router_bias)
        if self.correction and (
            self.correction_if is None or text.flag(self.correction_if[0], default=self.correction_if[1])
        ):
            groups.append(parts.correction(f"{self.path}.{self.correction}", count))
        base = f"{self.path}.{self.experts}" if self.experts else self.path
        groups += parts.experts(base, count, hidden, width, matrices=self.matrices, bias=self.bias, names=self.names)
        groups += self._shared_tensors(parts, hidden, shared)
        return MlpPart(Moe(count, top_k, width, shared, self.matrices), groups)

    def _shared_width(self, text: Fields, width: int) -> int:
        if self.shared_width:
            text.noted(self.shared_width[0])
            return text.maybe(*self.shared_width, low=0) or 0
        if not self.shared_count:
            return 0
        if not any(text.has(name) for name in self.shared_count):
            text.took_default(self.shared_count[0])
            return self.shared_default * width
        return uniform(text, self.shared_count, 1 << 16, low=0) * width

    def _shared_tensors(self, parts: Parts, hidden: int, shared: int) -> list[TensorGroup]:
        if not shared:
            return []
        path = f"{self.path}.{self.shared}" if not self.shared.startswith("/") else self.shared[1:]
        groups = parts.mlp(path, hidden, shared, matrices=self.matrices, bias=self.bias, names=self.shared_names)
        if self.shared_gate:
            groups += parts.linear(f"{self.path}.{self.shared_gate}", "router", 1, hidden)
        return groups


def expert_sizes(
    text: Fields, count: tuple[str, ...], top_k: tuple[str, ...], width: tuple[str, ...]
) -> tuple[int, int, int]:
    """Experts, experts per token and expert width; lists (Hunyuan) must hold one value."""
    n = uniform(text, count, 1 << 16)
    k = uniform(text, top_k, 1 << 16)
    if k > n:
        raise BadInput(
            f"is {k}, expected at most the number of experts, {n}", text.named(top_k[0]),
            "Check that the file is the model's own config.json",
        )  # fmt: skip
    return n, k, uniform(text, width, 1 << 24)


def uniform(text: Fields, names: tuple[str, ...], high: int, low: int = 1) -> int:
    """A number, or a list of equal numbers. Raises BadInput for a list that varies by layer."""
    name, value = text.raw(*names)
    if isinstance(value, list | tuple):
        values = text.ints(name, low=low, high=high) or ()
        if len(set(values)) != 1:
            raise text.bad(name, "one value for all layers")
        return values[0]
    return text.need(*names, low=low, high=high)
