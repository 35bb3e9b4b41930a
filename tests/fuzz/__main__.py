"""Coverage-guided fuzzing: `python -m tests.fuzz TARGET [CORPUS] [-max_total_time=SECONDS] [libFuzzer options]`.

Needs atheris, which is not among the project's dependencies. New inputs go to CORPUS (a temporary folder when it is
not given); the kept seeds are read from tests/fuzz/seeds/TARGET. A crash leaves its input as crash-… in the current
folder: give it a name, keep it among the seeds, and mend what it found. `python -m tests.fuzz.until_quiet` runs target
after target for as long as they find new branches.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path

import atheris

# Readers that are imported when their engine or family is first met: counted only if they are imported here.
_LATE = ("kvplanner.model.", "kvplanner.source.", "kvplanner.request.", "kvplanner.diagnose.", "kvplanner.observe.")
_ENGINES = ("log", "metrics", "signature", "options", "torch_log")

with atheris.instrument_imports(include=["kvplanner"]):
    import kvplanner
    from tests.fuzz.targets import FOLDER, TARGETS

    for module in pkgutil.walk_packages(kvplanner.__path__, "kvplanner.", onerror=lambda name: None):
        engine = module.name.startswith("kvplanner.engine.") and set(module.name.split(".")) & set(_ENGINES)
        if engine or module.name.startswith(_LATE):
            importlib.import_module(module.name)


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"name one of {', '.join(TARGETS)}")
    rest = sys.argv[2:]
    corpus = rest.pop(0) if rest and not rest[0].startswith("-") else tempfile.mkdtemp(prefix=f"fuzz-{name}-")
    Path(corpus).mkdir(exist_ok=True)
    limits = ["-timeout=5", "-rss_limit_mb=1024", "-max_len=65536"]
    atheris.Setup([sys.argv[0], corpus, str(FOLDER / "seeds" / name), *limits, *rest], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
