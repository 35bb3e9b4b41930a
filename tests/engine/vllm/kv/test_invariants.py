"""What must hold for any cache: more memory never buys less, and a suggested length is the largest that fits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvplanner.engine.vllm.kv import groups as kv_groups
from kvplanner.engine.vllm.kv import sizing as kv_sizing
from kvplanner.engine.vllm.kv.layout import CacheLayout
from kvplanner.model.spec import Attention, Indexer, Mixer, Mla, ModelSpec, State
from kvplanner.units import GIB
from tests.engine.vllm.kv.models import A100, B200, H100, RTX4090, full, laid_out, spec

WINDOWS = st.sampled_from([None, 128, 1024, 4096])
SIZES = st.sampled_from([64, 128, 256])


@st.composite
def mixers(draw: st.DrawFn) -> tuple[Mixer, ...]:
    kind = draw(st.sampled_from(["attention", "attention", "latent", "state"]))
    if kind == "latent":
        index = draw(st.sampled_from([None, Indexer(64, 128, 2048)]))
        return (Mla(64, 512, 128, 64, 128, 1536, index),)
    if kind == "state":
        heads = draw(st.sampled_from([16, 32, 64]))
        return (draw(st.sampled_from([
            State("gated_delta", 4, heads, 128, 16, 128), State("mamba2", 4, heads, 64, state_size=128, groups=8),
            State("kda", 4, heads, 128), State("short_conv", 3, channels=heads * 64),
        ])),)  # fmt: skip
    return (full(32, draw(st.sampled_from([1, 2, 8, 32])), draw(SIZES), window=draw(WINDOWS)),)


@st.composite
def specs(draw: st.DrawFn) -> ModelSpec:
    """Models whose caches the engine can lay out: at most one kind of attention beside the states."""
    kinds = draw(st.lists(mixers(), min_size=1, max_size=3, unique=True))
    latent = [k for k in kinds if isinstance(k[0], Mla)]
    if latent:
        indexed = any(isinstance(m, Mla) and m.indexer for m in latent[0])
        kinds = latent[:1] + [k for k in kinds if isinstance(k[0], State) and not indexed][:1]
    else:
        states = [k for k in kinds if isinstance(k[0], State)]
        kinds = [k for k in kinds if isinstance(k[0], Attention)] + states[:1]
    order = draw(st.lists(st.sampled_from(kinds), min_size=len(kinds), max_size=40))
    return spec([*kinds, *order], context_length=draw(st.sampled_from([4096, 32768, 131072])))


@st.composite
def layouts(draw: st.DrawFn) -> CacheLayout:
    model = draw(specs())
    options: dict[str, int | str | bool] = {
        "tensor_parallel_size": draw(st.sampled_from([1, 2, 4])),
        "pipeline_parallel_size": draw(st.sampled_from([1, min(2, model.num_layers)])),
        "max_num_batched_tokens": draw(st.sampled_from([2048, 8192])),
    }
    gpu = draw(st.sampled_from([H100, A100, RTX4090, B200]))
    if any(isinstance(m, Mla) and m.indexer for layer in model.layers for m in layer.mixers):
        gpu = H100
    if gpu is not A100:
        options["kv_cache_dtype"] = draw(st.sampled_from(["auto", "fp8"]))
    version = draw(st.sampled_from([None, "0.28.0", "0.19.0", "0.11.2"]))
    return laid_out(model, options, gpu, version)


def memory(layout: CacheLayout, amount: int) -> tuple[int, ...]:
    return (amount,) * len(layout.bytes_per_block)


@settings(max_examples=150, deadline=None)
@given(layouts(), st.integers(0, 80 * GIB), st.integers(0, 8 * GIB))
def test_more_memory_never_gives_less(layout: CacheLayout, amount: int, extra: int) -> None:
    less, more = (kv_sizing.size(layout, memory(layout, m)) for m in (amount, amount + extra))
    assert more.num_blocks >= less.num_blocks
    assert more.tokens >= less.tokens
    assert more.max_concurrency >= less.max_concurrency
    assert (more.error is None) >= (less.error is None)
    used = [less.num_blocks * b for b in layout.bytes_per_block]
    assert all(u <= amount for u in used)


@settings(max_examples=150, deadline=None)
@given(layouts(), st.integers(1, 131072), st.integers(0, 5000))
def test_longer_requests_never_hold_less(layout: CacheLayout, length: int, extra: int) -> None:
    assert layout.blocks_at(length + extra) >= layout.blocks_at(length)
    assert layout.blocks_at(length) == sum(kv_groups.blocks_of(t, layout.settings, length) for t in layout.tables)


@settings(max_examples=150, deadline=None)
@given(layouts())
def test_pages_make_up_the_block(layout: CacheLayout) -> None:
    for stage, total in enumerate(layout.bytes_per_block):
        pages = [t.page_bytes[stage] for t in layout.tables]
        assert total == max(pages)
        for table in layout.tables:
            assert table.spec.page_bytes >= table.spec.real_bytes
            if not table.mixed:
                assert table.page_bytes[stage] == table.layers[stage] * table.spec.page_bytes
    if len(layout.tables) > 1:
        assert len({t.spec.page_bytes for t in layout.tables}) == 1


@settings(max_examples=150, deadline=None)
@given(layouts(), st.integers(0, 4 * GIB))
def test_suggested_length_is_the_largest_that_fits(layout: CacheLayout, amount: int) -> None:
    sizing = kv_sizing.size(layout, memory(layout, amount))
    longest = sizing.estimated_max_model_len
    if longest is None:
        return
    per_block = layout.bytes_per_block
    fits = [all(layout.blocks_at(n) * b <= amount for b in per_block) for n in (longest, longest + 1)]
    null = sizing.usable_bytes < amount
    if null:
        fits = [all((layout.blocks_at(n) + 1) * b <= amount for b in per_block) for n in (longest, longest + 1)]
    if len(per_block) == 1:
        assert fits == [True, False]
    fitted = layout._replace(settings=layout.settings._replace(model=layout.settings.model._replace(auto_fit=True)))
    again = kv_sizing.size(fitted, memory(layout, amount))
    if len(per_block) > 1 and again.error is not None:
        # The suggestion is the first short stage's own; another stage may not hold a single token.
        assert any(kv_sizing.longest(layout, sizing.usable_bytes // b, longest) < 1 for b in per_block)
        return
    assert again.error is None
    assert again.max_model_len <= longest
    if null:
        assert kv_sizing.max_context(layout, sizing) >= again.max_model_len


@settings(max_examples=60, deadline=None)
@given(specs())
def test_every_layer_is_in_one_group(model: ModelSpec) -> None:
    layout = laid_out(model)
    owners = sum(
        n * sum(2 if isinstance(m, Mla) and m.indexer else 1 for m in layer.mixers)
        for layer, n in zip(model.layers, model.counts(), strict=True)
    )
    assert sum(t.total_layers for t in layout.tables) == owners
