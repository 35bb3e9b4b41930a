"""What llama.cpp's builds do otherwise, as data: a build is a number, b9500 being about June 2026.

Where each rule changed is read from public start-up logs (the builds named beside each) and, for the newest, from the
source of 0.5.0-dev (October 2026, project commit 0c1e57098).
"""

from __future__ import annotations

import re
from typing import Final

from kvplanner.errors import BadInput
from kvplanner.record import NamedTuple

# Architectures whose last layer still computes every token, because the drafting layers may need it
# (embeddings_nextn_masked of their graphs); those of Qwen3.5 came first.
_EARLY_LATE_ROWS: Final = frozenset({"qwen35", "qwen35moe"})
LATE_ROWS: Final = _EARLY_LATE_ROWS | {
    "gpt-oss", "qwen3next", "gemma4", "nemotron_h", "nemotron_h_moe", "step35", "cohere2moe", "hy_v3", "bailingmoe3"
}  # fmt: skip


class Build(NamedTuple):
    """The rules of a build.

    name: of the rule era. first: the first build of it. limited_outputs: logits are reserved for the slots' rows, not
    for a whole micro-batch (pull request 23861). wide_mask: masks are 32-bit on the host (until pull request 23764 of
    27 May 2026). copies_reserved: the compute buffer holds flash attention's 16-bit copies. rotated: heads are rotated
    before they are quantised.
    output_first: the output layer counts first among -ngl layers. row_split, tensor_split: -sm row and
    -sm tensor exist (the latter since pull request 19378, 9 April 2026).
    padding, plain_padding: cells are a multiple of it with and without flash attention (pull requests 7257 and, which
    ended it, 16812 of October 2025). pads_whole: a context is rounded up before slots divide it (pull request 17046,
    November 2025). windows: sliding-window layers keep a window only. flash_auto: flash attention is on where it can
    be. both_inputs: the graph takes embeddings as well as tokens. late_rows: architectures whose last layer computes
    every token, because the layers that draft may need them.
    spare_copies: with a pipeline, an input that no operation reads is kept as often as the others (issue 26873 of
    September 2026 says what it mends; the build of pull request 23764 keeps it once).
    logits_beside: the host keeps room for logits beside embeddings, which only embeddings of single tokens had before
    (pull request 14208 of 18 June 2025).
    row_inputs: the graph reads where keys and values go as inputs (pull request 14959 of 2 August 2025).
    fused_gates: gate, activation and product of a feed-forward block are one operation (pull request 14158 of 30 June
    2025); before, the activation and the product take the place of what they read.
    copied_heads, copied_values: queries and keys, and values, are copied out of one joined product (pull requests 14568
    of 8 July and 15662 of 8 September 2025 ended it).
    xielu: GPUs have Apertus' activation; without it the host computes it, and each layer's is a split input (issue
    16725 shows it of b6816). latent: latent attention keeps its latent vector; before, full heads (pull request 12801
    of April 2025).
    latent_values: beside it, its values are kept once more (until pull request 19067 of 25 January 2026).
    retries: a compute buffer that fails is tried again without a pipeline (pull request 16748 of 23 October 2025).
    fit_projector, fit_draft: --fit keeps room for a projector (pull request 21489, 5 April 2026) and for what drafts
    (b9305: pull request 23485), the latter at the whole context that it was trained for where none is given.
    mixed_types: CUDA has flash attention for keys and values of any two types but iq4_nl. Builds from September 2025
    (pull request 15454) to September 2026 (28079) have it for two of one type out of `SAME_TYPES` only, unless built
    with GGML_CUDA_FA_ALL_QUANTS; issue 28455 shows it of b10819.
    forces_flash: quantised values turn flash attention on where it was left at auto, so that without a kernel it runs
    on the host; and latent attention refuses keys and values of two types (pull request 25871 of 18 July 2026: issue
    26382 shows it of b10216, b9200 still lacks it).
    fused_sums: CUDA weighs and adds the experts' results in one kernel (pull requests 27301 and 25952 of August and
    September 2026). reordered: Vulkan puts a graph in an order of its own (17475 of November 2025).
    blocks: of MiniMax-M3's block-sparse attention, what its blocks are of: "positions" (since pull request 26338, from
    about 8 August 2026), before it "cells" of the cache (26297, from about 2 August), and those chosen on the "host".
    own_graph: another program than llama.cpp builds the graph. real_kernels: GPUs have flash attention for the heads
    that CUDA has it for; imitated ones have it for all.
    slots, unified, all_layers, fit, drafted (tokens at once), context (None: the model's own): the server's defaults.
    All layers came with flash attention's auto (pull request 15434 of 30 August 2025); the context was 4,096 tokens
    from pull request 10136 of November 2024 to 16653 of December 2025, which brought --fit.
    one_is_all: one slot, the default then, stands for four that share the cache, unless -kvu is given or a draft model
    (pull request 16736 of November 2025; 17997 of 15 December told the two apart).
    """

    name: str
    first: int
    limited_outputs: bool = True
    wide_mask: bool = False
    copies_reserved: bool = True
    rotated: bool = True
    output_first: bool = True
    row_split: bool = False
    tensor_split: bool = True
    padding: int = 256
    plain_padding: int = 256
    pads_whole: bool = True
    windows: bool = True
    flash_auto: bool = True
    both_inputs: bool = True
    late_rows: frozenset[str] = LATE_ROWS
    spare_copies: bool = True
    latent: bool = True
    logits_beside: bool = True
    row_inputs: bool = True
    fused_gates: bool = True
    copied_heads: bool = False
    copied_values: bool = False
    latent_values: bool = False
    xielu: bool = True
    retries: bool = True
    mixed_types: bool = True
    forces_flash: bool = True
    fused_sums: bool = True
    reordered: bool = True
    blocks: str = "positions"
    own_graph: bool = False
    real_kernels: bool = True
    slots: int = 4
    unified: bool = True
    all_layers: bool = True
    fit: bool = True
    fit_projector: bool = True
    fit_draft: bool = True
    drafted: int = 3
    context: int | None = None
    one_is_all: bool = False


_2026_SEPTEMBER: Final = Build("2026-09", 11000)
_2026_AUGUST: Final = _2026_SEPTEMBER._replace(
    name="2026-08", first=10300, mixed_types=False, fused_sums=False, spare_copies=False
)
_2026_EARLY_AUGUST: Final = _2026_AUGUST._replace(name="2026-08-02", first=10210, blocks="cells")
_2026_JULY: Final = _2026_EARLY_AUGUST._replace(name="2026-07", first=10060, blocks="host")
_2026_JUNE: Final = _2026_JULY._replace(name="2026-06", first=9500, forces_flash=False)
_2026_MAY: Final = _2026_JUNE._replace(
    name="2026-05-28",
    first=9388,
    limited_outputs=False,
    copies_reserved=False,
    row_split=True,
    late_rows=_EARLY_LATE_ROWS,
    drafted=16,
)
_2026_APRIL: Final = _2026_MAY._replace(
    name="2026-04", first=8800, wide_mask=True, late_rows=frozenset(), fit_draft=False
)
_2026_FEBRUARY: Final = _2026_APRIL._replace(
    name="2026-02", first=8200, rotated=False, tensor_split=False, fit_projector=False
)
_2026_JANUARY: Final = _2026_FEBRUARY._replace(name="2026-01", first=7830, output_first=False, both_inputs=False)
_2025_DECEMBER: Final = _2026_JANUARY._replace(name="2025-12", first=7400, latent_values=True)
_2025_NOVEMBER: Final = _2025_DECEMBER._replace(
    name="2025-11", first=6980, context=4096, fit=False, one_is_all=True, reordered=False
)
_2025_EARLY_NOVEMBER: Final = _2025_NOVEMBER._replace(name="2025-11-02", first=6935, pads_whole=False)
_2025_OCTOBER: Final = _2025_EARLY_NOVEMBER._replace(
    name="2025-10", first=6860, slots=1, unified=False, one_is_all=False
)
_2025_SEPTEMBER: Final = _2025_OCTOBER._replace(
    name="2025-09", first=6325, xielu=False, retries=False, plain_padding=32, copied_values=True
)
_2025_AUGUST: Final = _2025_SEPTEMBER._replace(
    name="2025-08", first=6075, flash_auto=False, all_layers=False, mixed_types=True
)
_2025_MID_JULY: Final = _2025_AUGUST._replace(name="2025-07-08", first=5850, row_inputs=False)
_2025_JULY: Final = _2025_MID_JULY._replace(name="2025-07", first=5790, copied_heads=True)
_2025_JUNE: Final = _2025_JULY._replace(name="2025-06", first=5430, fused_gates=False, logits_beside=False)
_2025_MAY: Final = _2025_JUNE._replace(name="2025-05", first=5135, windows=False)
_2025: Final = _2025_MAY._replace(name="2025-01", first=4010, latent=False)
_2024: Final = _2025._replace(name="2024", first=0, context=None)

# Newest first.
BUILDS: Final[tuple[Build, ...]] = (
    _2026_SEPTEMBER, _2026_AUGUST, _2026_EARLY_AUGUST, _2026_JULY, _2026_JUNE, _2026_MAY, _2026_APRIL, _2026_FEBRUARY,
    _2026_JANUARY, _2025_DECEMBER, _2025_NOVEMBER, _2025_EARLY_NOVEMBER, _2025_OCTOBER, _2025_SEPTEMBER, _2025_AUGUST,
    _2025_MID_JULY, _2025_JULY, _2025_JUNE, _2025_MAY, _2025, _2024,
)  # fmt: skip
NEWEST: Final = "b11400"
VERSIONS: Final[tuple[str, ...]] = (
    NEWEST, "b9500", "b8829", "b8200", "b7900", "b7400", "b7000", "b6900", "b6400", "b6100", "b5900", "b5800",
    "b5450", "b5200", "b4500", "b3000",
)  # fmt: skip
_BUILD: Final = re.compile(r"b?(\d{1,6})(?:\b.*)?")


# Of the cache: those that are no quantisation, and those that builds without mixed types have kernels for.
PLAIN_TYPES: Final = frozenset({"f16", "bf16", "f32"})
SAME_TYPES: Final = PLAIN_TYPES | {"q4_0", "q8_0"}
_NO_KERNEL: Final = "iq4_nl"
# Architectures that llama.cpp runs without flash attention whatever is asked (llama_init_from_model).
NO_FLASH: Final = frozenset({"grok"})


def has_kernel(build: Build, keys: str, values: str) -> bool:
    """Whether CUDA has flash attention for these types of keys and values (ggml_cuda_get_best_fattn_kernel)."""
    if build.mixed_types or not build.real_kernels:
        return _NO_KERNEL not in (keys, values)
    return keys == values and keys in SAME_TYPES


def build_of(version: str | None) -> Build:
    """The rules of a build such as "b9500" (None: the newest). Raises BadInput for anything else."""
    match = _BUILD.fullmatch(version or NEWEST)
    if match is None:
        raise BadInput(
            f"{(version or '')[:40]!r} is not a build of llama.cpp",
            "--engine-version",
            "Write it as llama-server --version does: b9500",
        )
    return next(build for build in BUILDS if int(match[1]) >= build.first)


def spelled(version: str | None) -> str:
    """A build's name as people write it."""
    match = _BUILD.fullmatch(version or NEWEST)
    return f"b{match[1]}" if match else (version or NEWEST)
