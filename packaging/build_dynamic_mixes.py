"""Write resources/models/dynamic_mixes.json: how published files of dynamic mixes compare with llama.cpp's recipes.

python packaging/build_dynamic_mixes.py: dynamic_sizes.json has the sizes and where they come from. Each size is set
against the size of the nearest recipe, as the planner counts it, scaled by the repository's own BF16 file where that is
known (a file may leave out layers that predict further tokens). A band holds every ratio seen, with a margin; small
models and others have one each, and that of all where fewer than two files are known.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from kvplanner.catalog import models
from kvplanner.model import whatif
from kvplanner.model.dynamic import LIKE, SMALL

FACTS = Path(__file__).parent / "dynamic_sizes.json"
OUT = Path(__file__).parents[1] / "resources" / "models" / "dynamic_mixes.json"
MARGIN, FEWEST = 0.015, 2


def ratios() -> dict[str, list[tuple[bool, float]]]:
    """By mix, the ratio of each published file, and whether its model is small."""
    found: dict[str, list[tuple[bool, float]]] = {mix: [] for mix in LIKE}
    for name, files in json.loads(FACTS.read_text())["models"].items():
        model = models.load(name.partition("#")[0])
        assert model.inventory is not None
        sizes = {kind: whatif.text_bytes(model.inventory, model.spec, kind) for kind in {*LIKE.values(), "BF16"}}
        scale = files["BF16"] / sizes["BF16"] if "BF16" in files else 1
        for mix, kind in LIKE.items():
            if mix.removeprefix("UD-") in files:
                small = model.inventory.parameters() < SMALL
                found[mix].append((small, files[mix.removeprefix("UD-")] / sizes[kind] / scale))
    return found


def band(seen: list[float]) -> list[float]:
    """Low, usual, high, and of how many. The margin is what one more of as many may lie beyond them."""
    margin = max(MARGIN, (max(seen) - min(seen)) / len(seen))
    return [round(min(seen) - margin, 3), round(median(seen), 3), round(max(seen) + margin, 3), len(seen)]


def main() -> None:
    """Write them."""
    rows = []
    for mix, seen in ratios().items():
        each = {name: [ratio for small, ratio in seen if small == (name == "small")] for name in ("small", "large")}
        every = [ratio for _, ratio in seen]
        row = {name: band(found if len(found) >= FEWEST else every) for name, found in each.items()}
        rows.append(f"{json.dumps(mix)}: {json.dumps(row)}")
    source = json.dumps("packaging/dynamic_sizes.json by packaging/build_dynamic_mixes.py: low, usual, high, files")
    OUT.write_text(f'{{\n"source": {source},\n"mixes": {{\n' + ",\n".join(rows) + "\n}\n}\n")


if __name__ == "__main__":
    main()
