"""What llama.cpp's builds do otherwise, as data: a build is a number, b9500 being about June 2026.

Where each rule changed is read from public start-up logs (the builds named beside each) and, for the newest, from the
source of 0.5.0-dev (October 2026, project commit 0c1e57098).
"""

from __future__ import annotations

import re
from typing import Final

from kvplanner.errors import BadInput
from kvplanner.record import NamedTuple


class Build(NamedTuple):
    """The rules of a build.

    name: of the rule era. first: the first build of it. limited_outputs: logits are reserved for the slots' rows, not
    for a whole micro-batch (pull request 23861). wide_mask: masks are 32-bit on the host. copies_reserved: the compute
    buffer holds flash attention's 16-bit copies. rotated: heads are rotated before they are quantised.
    output_first: the output layer counts first among -ngl layers. row_split, tensor_split: -sm row and
    -sm tensor exist (the latter since pull request 19378, 9 April 2026).
    padding, plain_padding: cells are a multiple of it with and without flash attention (pull requests 7257 and, which
    ended it, 16812 of October 2025). pads_whole: a context is rounded up before slots divide it (pull request 17046,
    November 2025). windows: sliding-window layers keep a window only. flash_auto: flash attention is on where it can
    be. both_inputs: the graph takes embeddings as well as tokens. late_rows: the last layer of
    architectures that draft computes every token.
    row_inputs: the graph reads where keys and values go as inputs (pull request 14959 of 2 August 2025).
    fused_gates: gate, activation and product of a feed-forward block are one operation (pull request 14158 of 30 June
    2025); before, the activation and the product take the place of what they read.
    copied_heads, copied_values: queries and keys, and values, are copied out of one joined product (pull requests 14568
    of 8 July and 15662 of 8 September 2025 ended it).
    xielu: GPUs have Apertus' activation; without it the host computes it, and each layer's is a split input (issue
    16725 shows it of b6816). latent: latent attention keeps its latent vector; before, full heads (pull request 12801
    of April 2025).
    retries: a compute buffer that fails is tried again without a pipeline (pull request 16748 of 23 October 2025).
    fit_projector, fit_draft: --fit keeps room for a projector (pull request 21489, 5 April 2026) and for what drafts
    (b9305: pull request 23485), the latter at the whole context that it was trained for where none is given.
    own_graph: another program than llama.cpp builds the graph. real_kernels: GPUs have flash attention for the heads
    that CUDA has it for; imitated ones have it for all.
    slots, unified, all_layers, fit, drafted (tokens at once): the server's defaults.
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
    late_rows: bool = True
    latent: bool = True
    row_inputs: bool = True
    fused_gates: bool = True
    copied_heads: bool = False
    copied_values: bool = False
    xielu: bool = True
    retries: bool = True
    own_graph: bool = False
    real_kernels: bool = True
    slots: int = 4
    unified: bool = True
    all_layers: bool = True
    fit: bool = True
    fit_projector: bool = True
    fit_draft: bool = True
    drafted: int = 3


_2026_JUNE: Final = Build("2026-06", 9500)
_2026_APRIL: Final = _2026_JUNE._replace(
    name="2026-04",
    first=8800,
    limited_outputs=False,
    wide_mask=True,
    copies_reserved=False,
    row_split=True,
    late_rows=False,
    drafted=16,
    fit_draft=False,
)
_2026_FEBRUARY: Final = _2026_APRIL._replace(
    name="2026-02", first=8200, rotated=False, tensor_split=False, fit_projector=False
)
_2025_DECEMBER: Final = _2026_FEBRUARY._replace(name="2025-12", first=7400, output_first=False, both_inputs=False)
_2025_NOVEMBER: Final = _2025_DECEMBER._replace(
    name="2025-11", first=6860, slots=1, unified=False, all_layers=False, fit=False
)
_2025_SEPTEMBER: Final = _2025_NOVEMBER._replace(
    name="2025-09", first=6300, xielu=False, retries=False, pads_whole=False, plain_padding=32, copied_values=True
)
_2025_AUGUST: Final = _2025_SEPTEMBER._replace(name="2025-08", first=6075, flash_auto=False)
_2025_MID_JULY: Final = _2025_AUGUST._replace(name="2025-07-08", first=5850, row_inputs=False)
_2025_JULY: Final = _2025_MID_JULY._replace(name="2025-07", first=5790, copied_heads=True)
_2025_JUNE: Final = _2025_JULY._replace(name="2025-06", first=5430, fused_gates=False)
_2025_MAY: Final = _2025_JUNE._replace(name="2025-05", first=5135, windows=False)
_2024: Final = _2025_MAY._replace(name="2024", first=0, latent=False)

# Newest first.
BUILDS: Final[tuple[Build, ...]] = (
    _2026_JUNE, _2026_APRIL, _2026_FEBRUARY, _2025_DECEMBER, _2025_NOVEMBER, _2025_SEPTEMBER, _2025_AUGUST,
    _2025_MID_JULY, _2025_JULY, _2025_JUNE, _2025_MAY, _2024,
)  # fmt: skip
NEWEST: Final = "b11400"
VERSIONS: Final[tuple[str, ...]] = (
    NEWEST, "b9500", "b8829", "b8200", "b7400", "b6860", "b6300", "b6100", "b5900", "b5800",
    "b5450", "b5200", "b3000",
)  # fmt: skip
_BUILD: Final = re.compile(r"b?(\d{1,6})(?:\b.*)?")


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
