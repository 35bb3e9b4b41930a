"""ggml's allocator: best fit, merging, and what is reserved."""

from __future__ import annotations

from kvplanner.engine.llamacpp.compute.allocator import Pool
from kvplanner.engine.llamacpp.compute.graph import Deferred, Graph


def test_freed_neighbours_merge_and_the_smallest_hole_that_fits_is_taken() -> None:
    pool = Pool(128)
    first, second, third, fourth = (pool.take(size) for size in (256, 1024, 128, 512))
    pool.give(second, 1024)
    pool.give(fourth, 512)
    assert pool.take(512) == second  # the hole, not the end
    pool.give(first, 256)
    assert pool.take(200) == first
    assert pool.high == 256 + 1024 + 128 + 512
    pool.give(third, 128)
    assert pool.take(640) == second + 512  # two freed neighbours in one piece


def test_sizes_are_rounded_up_to_the_alignment() -> None:
    pool = Pool(128)
    pool.take(1)
    assert pool.high == 128


def test_an_operation_in_place_takes_no_memory() -> None:
    graph = Graph(1)
    first = graph.op(1024, on=0)
    second = graph.op(1024, first, inplace=True, on=0)
    graph.op(1024, second, on=0)
    assert graph.laid_out().reserve() == (2048, 0)


def test_a_weight_on_the_host_is_copied_for_a_large_batch_alone() -> None:
    for big, expected in ((True, 4096 + 1024 + 1024), (False, 0)):
        graph = Graph(1)
        source = graph.input(1024)
        graph.weighted(1024, (4096, graph.host), source, big=big)
        assert graph.laid_out().reserve()[0] == expected


def test_a_pipeline_keeps_four_copies_of_what_a_split_takes() -> None:
    sizes = []
    for copies in (1, 4):
        graph = Graph(2, copies=copies)
        source = graph.op(1 << 20, on=0)
        graph.op(1 << 20, source, on=1)
        sizes.append(graph.laid_out().reserve())
    assert sizes[0][1] == 2 << 20
    assert sizes[1][1] == 5 << 20


def test_an_empty_block_that_was_freed_leaves_holes_unused() -> None:
    """ggml-alloc.c puts it behind the endless block that it lies in, which then is no longer the last to be tried."""
    for empty, expected in ((True, 640), (False, 0)):
        pool = Pool(128)
        first, nothing = pool.take(256), pool.take(0)
        pool.give(first, 256)
        if empty:
            pool.give(nothing, 0)
        second, third = pool.take(256), pool.take(384)
        assert (second, third) == (0, 256)
        pool.give(second, 256)
        assert pool.take(256) == expected


def test_what_is_held_back_comes_when_something_needs_it_its_first_source_first() -> None:
    graph = Deferred(1)
    early, late = graph.op(128, on=0), graph.op(256, on=0)
    unused = graph.op(512, on=0)
    last = graph.op(1024, late, early, on=0)
    graph.expand(last)
    assert [node[0] for node in graph._nodes] == [late, early, last]
    stored = graph.op(0, graph.view(unused, 64), on=0, stored=True)
    assert [node[0] for node in graph._nodes[-2:]] == [unused, stored]


def test_copies_beside_a_result_count_on_a_gpu_and_not_on_the_host() -> None:
    sizes = []
    for at in (0, 1):
        graph = Graph(1)
        graph.with_extra(graph.op(1024, on=at), 4096)
        sizes.append(graph.laid_out().reserve())
    assert sizes == [(5120, 0), (0, 1024)]


def test_a_tensor_that_nothing_gives_has_its_place_from_the_start() -> None:
    graph = Graph(1)
    leaf = graph.leaf(2048)
    first = graph.op(1024, on=0)
    graph.op(1024, first, on=0)
    graph.op(2048, leaf, inplace=True, on=0)
    assert graph.laid_out().reserve() == (4096, 0)
