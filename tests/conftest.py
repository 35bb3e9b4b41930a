"""For all tests: speed is measured by benchmarks, so that no slow machine fails a property."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kvplanner", deadline=None)
settings.load_profile("kvplanner")
