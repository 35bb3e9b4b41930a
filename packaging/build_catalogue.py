"""Build the bundled catalogues from a folder of facts: python packaging/build_catalogue.py FOLDER.

FOLDER holds gpus.json, and models/ and models-2/ with one JSON file per model, same-shape.tsv and published sizes;
more_models/ beside this file holds further models in the same form, with the public source of each. The result goes
to resources/ and is committed; the application reads nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path

import catalogue_gpus
import catalogue_models
import catalogue_recipes

RESOURCES = Path(__file__).resolve().parent.parent / "resources"


def main(arguments: list[str]) -> int:
    """Build both catalogues."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python packaging/build_catalogue.py FOLDER", file=sys.stderr)
        return 2
    facts = Path(arguments[0])
    print(catalogue_gpus.build(facts / "gpus.json", RESOURCES / "gpus"), "GPUs")
    models = (facts / "models", facts / "models-2", Path(__file__).resolve().parent / "more_models")
    print(catalogue_models.build(models, RESOURCES / "models"), "models")
    print(catalogue_recipes.build(models, RESOURCES / "models"), "recipes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
