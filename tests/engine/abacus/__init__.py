"""A made-up engine, to show that an engine is a package: two options, two segments, cells, stages of its own."""

from typing import Final

TITLE: Final = "Abacus"
