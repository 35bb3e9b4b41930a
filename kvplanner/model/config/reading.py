"""One reading of a config: its dictionaries, the tensor factory, and the draft that a family makes of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from kvplanner.errors import BadInput, NotModelled
from kvplanner.model.config.fields import MAX_LAYERS, Fields, need_divides
from kvplanner.model.config.parts import Parts
from kvplanner.model.spec import LayerSpec, Mixer, Mlp, Moe, Task, Tower
from kvplanner.model.tensors import TensorGroup
from kvplanner.record import NamedTuple


class Body(NamedTuple):
    """One distinct decoder layer: what it is, and its tensors in the checkpoint's own precision."""

    spec: LayerSpec
    tensors: tuple[TensorGroup, ...]


class MixerPart(NamedTuple):
    """A mixer with its tensors."""

    mixer: Mixer
    tensors: list[TensorGroup]


class MlpPart(NamedTuple):
    """A feed-forward block or experts, with their tensors."""

    mlp: Mlp | Moe
    tensors: list[TensorGroup]


class Heads(NamedTuple):
    """Sizes of grouped-query attention."""

    heads: int
    kv_heads: int
    head_size: int


class Mtp(NamedTuple):
    """Multi-token-prediction blocks as the file holds them.

    body: tensors of one block's decoder layer (paths below a layer); extra: the other tensors of one block;
    blocks: how many; names: how checkpoints name block i, for skip lists ("layers.{index}" counts on after the
    decoder's layers, "mtp.layers.{i}" starts anew).
    """

    body: tuple[TensorGroup, ...]
    extra: tuple[TensorGroup, ...]
    blocks: int = 1
    names: tuple[str, ...] = ("layers.{index}", "mtp.layers.{i}")


class Draft(NamedTuple):
    """What a family reader found. Tensors are unquantised; `bodies` are distinct, body_of says which layer is which."""

    hidden: int
    vocab: int
    bodies: tuple[Body, ...]
    body_of: tuple[int, ...]
    outside: list[TensorGroup]
    tied: bool
    towers: tuple[Tower, ...] = ()
    mtp: Mtp | None = None
    task: Task = "generate"
    not_modelled: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class Reading:
    """A config being read. `text` holds the language model's fields: a nested dictionary or the top itself.

    readers: of every architecture, for a model that has another one inside. within: the architectures around it.
    """

    __slots__ = ("architecture", "dtype", "parts", "readers", "text", "top", "within")

    def __init__(
        self,
        top: Fields,
        text: Fields,
        architecture: str,
        dtype: str,
        parts: Parts,
        *,
        readers: Mapping[str, Reader] = MappingProxyType({}),
        within: tuple[str, ...] = (),
    ) -> None:
        self.top = top
        self.text = text
        self.architecture = architecture
        self.dtype = dtype
        self.parts = parts
        self.readers = readers
        self.within = within

    def as_another(self, architecture: str, text: Fields | None = None) -> Draft:
        """The draft that another architecture's reader makes of these fields, or of a dictionary among them.

        Raises BadInput where a model would be inside itself.
        """
        fields = self.text if text is None else text
        within = (*self.within, self.architecture)
        if architecture in within:
            raise BadInput(f"names {architecture}, which would hold itself", fields.named("architectures"),
                           "Name the language model's own architecture or model_type")  # fmt: skip
        inner = Reading(self.top, fields, architecture, self.dtype, self.parts, readers=self.readers, within=within)
        return self.readers[architecture](inner)

    def layer_count(self, *names: str, default: int | None = None) -> int:
        """The number of decoder layers."""
        known = names or ("num_hidden_layers",)
        if default is not None:
            return self.text.get(*known, default=default, high=MAX_LAYERS)
        return self.text.need(*known, high=MAX_LAYERS)

    def hidden(self, *names: str, default: int | None = None) -> int:
        """The model's width."""
        known = names or ("hidden_size",)
        if default is not None:
            return self.text.get(*known, default=default, high=1 << 24)
        return self.text.need(*known, high=1 << 24)

    def vocab(self, *names: str, default: int | None = None) -> int:
        """The vocabulary's size."""
        if default is not None:
            return self.text.get(*(names or ("vocab_size",)), default=default, high=1 << 26)
        return self.text.need(*(names or ("vocab_size",)), high=1 << 26)

    def heads(
        self,
        hidden: int,
        *,
        heads: Sequence[str] = ("num_attention_heads",),
        kv_heads: Sequence[str] = ("num_key_value_heads",),
        head_size: Sequence[str] = ("head_dim",),
        default_heads: int | None = None,
        default_kv: int | None = None,
        default_size: int | None = None,
    ) -> Heads:
        """Query heads, key/value heads and head size.

        Absent key/value heads are default_kv, or as many as query heads; an absent head size is default_size, or
        hidden / heads where that divides exactly. Raises BadInput where they contradict each other.
        """
        text = self.text
        n = text.need(*heads, high=1 << 16) if default_heads is None else text.get(*heads, default=default_heads)
        kv = text.maybe(*kv_heads, high=1 << 16)
        if kv is None:
            text.took_default(kv_heads[0])
            kv = default_kv or n
        need_divides(text, kv_heads[0], kv, heads[0], n)
        size = text.maybe(*head_size, high=1 << 16)
        if size is None and default_size is not None:
            text.took_default(head_size[0])
            size = default_size
        if size is None:
            need_divides(text, heads[0], n, "the hidden size", hidden)
            text.took_default(head_size[0])
            size = hidden // n
        return Heads(n, kv, size)

    def tied(self, default: bool) -> bool:
        """Whether the head is the embedding.

        Where the top level and the text dictionary disagree it is not: Mistral-Small-3.1 says true above and false
        below, stores a head of its own, and loads it (element count, and a public start-up log).
        """
        name = "tie_word_embeddings"
        if self.top is not self.text and self.top.has(name):
            below = self.text.flag(name, default=True)
            self.text.skip(name)
            return self.top.flag(name, default=default) and below
        if self.top is not self.text:
            self.top.raw(name)
        return self.text.flag(name, "tie_embedding", default=default)

    def vocabulary(
        self,
        vocab: int,
        hidden: int,
        tied: bool,
        *,
        embed: str = "model.embed_tokens",
        norm: str = "model.norm",
        head: str = "lm_head",
        norm_bias: bool = False,
        head_bias: bool = False,
        with_head: bool = True,
    ) -> list[TensorGroup]:
        """Embedding, final norm ("" for none) and head; a tied head has no tensor of its own."""
        shared = tied and with_head
        first = self.parts.at("first+last" if shared else "first")
        last = self.parts.at("last")
        groups = [first.tensor(embed, "embedding", (vocab, hidden), "vocab")]
        if norm:
            groups += last.norm(norm, hidden, bias=norm_bias)
        if with_head and not tied:
            groups += last.linear(head, "head", vocab, hidden, "vocab")
        if with_head and head_bias:
            groups.append(last.tensor(f"{head}.bias", "head", (vocab,), "vocab"))
        return groups


def stack(keys: Iterable[Hashable], make: Callable[..., Body]) -> tuple[tuple[Body, ...], tuple[int, ...]]:
    """Distinct bodies and which one each layer is: `make` is called once for each distinct key."""
    index: dict[Hashable, int] = {}
    bodies: list[Body] = []
    body_of: list[int] = []
    for key in keys:
        at = index.get(key)
        if at is None:
            at = index[key] = len(bodies)
            bodies.append(make(key))
        body_of.append(at)
    return tuple(bodies), tuple(body_of)


def body(mixer: MixerPart | None, mlp: MlpPart | None, norms: Iterable[TensorGroup]) -> Body:
    """A layer of at most one mixer and at most one feed-forward block."""
    spec = LayerSpec((mixer.mixer,) if mixer else (), (mlp.mlp,) if mlp else ())
    tensors = [*(mixer.tensors if mixer else ()), *(mlp.tensors if mlp else ()), *norms]
    return Body(spec, tuple(tensors))


def refuse(reading: Reading, what: str, field_name: str) -> NotModelled:
    """The error for a variant that no reader understands."""
    return NotModelled(what, reading.text.named(field_name), "This variant of the architecture is not modelled")


class Reader(Protocol):
    """Reads the configs of one family: a function, or a family described by its traits."""

    def __call__(self, reading: Reading, /) -> Draft:
        """What the config says. Raises BadInput for a broken one, NotModelled for what the family lacks."""
        ...


class SparseReader(Protocol):
    """Reads the experts of a sparse block of a given width."""

    def __call__(self, reading: Reading, hidden: int, /) -> MlpPart:
        """The block's tensors and what it is. Raises BadInput for a broken config."""
        ...
