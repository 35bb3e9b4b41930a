"""Dynamic mixes ("UD-Q4_K_XL"): their publisher chooses each tensor's type by measuring it, model by model.

No rule gives their sizes. Published files do, as a ratio to the nearest of llama.cpp's own recipes:
resources/models/dynamic_mixes.json, written by packaging/build_dynamic_mixes.py.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Final

from kvplanner.files import shipped
from kvplanner.record import NamedTuple

_PREFIX: Final = "GGUF UD-"
# Models under so many parameters are small.
SMALL: Final = 3_000_000_000
# By mix, the recipe whose sizes its files follow. A mix of which one file alone is known is left out.
LIKE: Final[dict[str, str]] = {
    "UD-Q8_K_XL": "Q8_0", "UD-Q6_K_XL": "Q6_K", "UD-Q6_K": "Q6_K", "UD-Q5_K_XL": "Q5_K_M", "UD-Q5_K_M": "Q5_K_M",
    "UD-Q5_K_S": "Q5_K_S", "UD-Q4_K_XL": "Q4_K_M", "UD-Q4_K_M": "Q4_K_M", "UD-Q4_K_S": "Q4_K_S",
    "UD-IQ4_NL": "IQ4_NL", "UD-IQ4_XS": "IQ4_XS", "UD-Q3_K_XL": "Q3_K_M", "UD-IQ3_S": "IQ3_S",
    "UD-IQ3_XXS": "IQ3_XXS", "UD-Q2_K_XL": "Q2_K", "UD-IQ2_M": "IQ2_M", "UD-IQ2_XXS": "IQ2_XXS", "UD-IQ1_M": "IQ1_M",
    "UD-IQ1_S": "IQ1_S",
}  # fmt: skip


class Ratio(NamedTuple):
    """How a mix's files compare with a recipe's: low and high hold what was seen and a margin. files: how many."""

    low: float
    usual: float
    high: float
    files: int


def is_dynamic(format_name: str) -> bool:
    """Whether a weight format ("GGUF UD-Q4_K_XL") is a dynamic mix."""
    return format_name.startswith(_PREFIX)


def ratio(mix: str, parameters: int) -> Ratio:
    """How much a mix of LIKE takes against its recipe, in a model of so many parameters.

    In small models the embedding, which no mix cuts far down, is a large part: they have a row of their own.
    """
    small, large = _ratios()[mix]
    return small if parameters < SMALL else large


def cannot_make(mix: str, quantization: str | None) -> str:
    """Why the sizes of such a mix are not known for a model as it is published, "" where they are."""
    if mix in LIKE and quantization == "mxfp4":
        return "its experts are published in MXFP4, which dynamic mixes keep, so other models' files say nothing of it"
    return ""


@cache
def _ratios() -> dict[str, tuple[Ratio, Ratio]]:
    rows = json.loads(shipped("models", "dynamic_mixes.json").read_bytes())["mixes"]
    return {mix: (Ratio(*row["small"]), Ratio(*row["large"])) for mix, row in rows.items()}
