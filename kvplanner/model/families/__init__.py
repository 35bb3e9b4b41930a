"""One small module per family of architectures: a config.json becomes a ModelSpec and an Inventory.

A model of a known architecture needs no code: any config.json of it can be read, and packaging/build_catalogue.py
takes it into the bundled catalogue from a file of facts (config, published counts, provenance).

A new architecture is one entry in a family module's READERS. Most decoders differ from a known one in a few traits,
and then the entry is one call. This one has experts from its third layer on, a shared expert, query and key norms
over each head, and sliding layers with full attention in each fourth:

    from kvplanner.model.families import READERS
    from kvplanner.model.config.decoder import Decoder
    from kvplanner.model.config.moe import Experts
    from kvplanner.model.config.patterns import after_first, every
    from kvplanner.model.config.read import read_with
from kvplanner.model.config.reading import Reader

    brook = Decoder(
        qk_norm="head",
        pattern=every(4),
        window=2048,
        mlp_pattern=after_first(2),
        experts=Experts(count=("n_routed_experts",), shared_count=("n_shared_experts",)),
    )
    config = {
        "architectures": ["BrookForCausalLM"], "torch_dtype": "bfloat16", "num_hidden_layers": 8,
        "hidden_size": 1024, "vocab_size": 32000, "num_attention_heads": 16, "num_key_value_heads": 4,
        "head_dim": 64, "intermediate_size": 4096, "moe_intermediate_size": 512, "n_routed_experts": 32,
        "num_experts_per_tok": 4, "n_shared_experts": 1, "max_position_embeddings": 32768,
    }
    spec, inventory = read_with({**READERS, "BrookForCausalLM": brook}, config, "config.json")

Anything else is a function from a Reading to a Draft: see latent.py for attention of another kind, statespace.py
for layers that keep a state, towers.py for encoders. Three rules keep a reader honest: every field goes through
Fields (which checks it and remembers that it was read), a default is taken only where the architecture's own class
has one (Fields records it), and a field that may matter and that nothing read is an error. A reader is believed when
its element count equals a published one: add the model to the catalogue and tests/model/test_families_counts.py
compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kvplanner.model.config.read import read_with
from kvplanner.model.config.reading import Reader
from kvplanner.model.spec import ModelSpec
from kvplanner.model.tensors import Inventory


def _families() -> Iterator[Mapping[str, Reader]]:
    """Each family module's readers, the most used first; a module is loaded when it is reached."""
    from kvplanner.model.families import dense

    yield dense.READERS
    from kvplanner.model.families import sparse

    yield sparse.READERS
    from kvplanner.model.families import latent

    yield latent.READERS
    from kvplanner.model.families import gated, kda, multimodal

    yield gated.READERS
    yield kda.READERS
    yield multimodal.READERS
    from kvplanner.model.families import (
        audio,
        classic,
        compressed,
        documents,
        drafts,
        encoders,
        gemma3n,
        gemma4,
        llamalike,
        mixed,
        mixtures,
        nemotron,
        seeing,
        speech,
        statespace,
        vision,
        zamba,
    )

    rest = (gemma4, nemotron, statespace, mixed, llamalike, mixtures, compressed, encoders, classic, drafts)
    for module in (*rest, gemma3n, zamba, vision, audio, documents, speech, seeing):
        yield module.READERS


class Readers(Mapping[str, Reader]):
    """Architecture → reader. Looking one up loads no more modules than it takes to find it."""

    def __getitem__(self, architecture: str) -> Reader:
        reader = self.find(architecture)
        if reader is None:
            raise KeyError(architecture)
        return reader

    def find(self, architecture: str) -> Reader | None:
        """The reader of an architecture, or of the one that vLLM maps it to; None when there is none."""
        own = self._own(architecture)
        if own is not None:
            return own
        from kvplanner.model.families.conversions import converted

        return converted(architecture, self._own)

    def why_unread(self, architecture: str) -> str:
        """What is known of an architecture without a reader, "" where nothing is."""
        from kvplanner.model.families import unread

        return unread.why(architecture)

    def _own(self, architecture: str) -> Reader | None:
        return next((readers[architecture] for readers in _families() if architecture in readers), None)

    def __iter__(self) -> Iterator[str]:
        for readers in _families():
            yield from readers

    def __len__(self) -> int:
        return sum(len(readers) for readers in _families())


READERS: Final = Readers()


def read_config(
    config: Mapping[str, object], *, where: str = "config.json", side_quant: Mapping[str, object] | None = None
) -> tuple[ModelSpec, Inventory]:
    """Read a config.json; side_quant is the content of hf_quant_config.json.

    Raises BadInput or NotModelled, each naming the field and what was expected.
    """
    return read_with(READERS, config, where, side_quant)


def architectures() -> tuple[str, ...]:
    """The architectures that have a reader, sorted."""
    return tuple(sorted(READERS))
