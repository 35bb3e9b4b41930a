"""Coverage-guided fuzzing: `python -m tests.fuzz TARGET [CORPUS] [-max_total_time=SECONDS] [libFuzzer options]`.

Needs atheris, which is not among the project's dependencies. New inputs go to CORPUS (a temporary folder when it is
not given); the kept seeds are read from tests/fuzz/seeds/TARGET. A crash leaves its input as crash-… in the current
folder: give it a name, keep it among the seeds, and mend what it found.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kvplanner"]):
    from tests.fuzz.targets import FOLDER, TARGETS


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
