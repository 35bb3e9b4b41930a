"""Coverage-guided fuzzing: `python -m tests.fuzz TARGET [CORPUS] [-max_total_time=SECONDS] [libFuzzer options]`.

Needs atheris, which is not among the project's dependencies. New inputs go to CORPUS (a temporary folder when it is
not given); the kept seeds are read from tests/fuzz/seeds/TARGET. A crash leaves its input as crash-… in the current
folder: give it a name, keep it among the seeds, and mend what it found. `python -m tests.fuzz.until_quiet` runs target
after target for as long as they find new branches.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

import atheris

PACKAGE = Path(__file__).parents[2] / "kvplanner"
# What reads, whose branches are counted. A plan is made of what was read, so that a crash of it is found too; its
# branches are not the reader's, and there are so many that a reader would never be called known.
_READERS = ("source", "model", "request", "diagnose", "observe", "jsonfile", "sized_text", "printable", "reading")
_OF_ENGINES = {"log", "metrics", "signature", "options", "torch_log", "command", "whatif"}


def _modules() -> dict[str, bool]:
    """Every module of the package by its full name, and whether it is a reader."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        reads = bool(parts) and (parts[0] in _READERS or (parts[0] == "engine" and bool(_OF_ENGINES & set(parts))))
        found[".".join(("kvplanner", *parts))] = reads
    return found


_MODULES = _modules()

with atheris.instrument_imports(include=["kvplanner"], exclude=[name for name, reads in _MODULES.items() if not reads]):
    from tests.fuzz import mutate
    from tests.fuzz.targets import FOLDER, TARGETS

    for name, reads in _MODULES.items():
        if reads:
            importlib.import_module(name)  # many are imported when first met: counted only if they are imported here


def _plain(data: bytes, longest: int) -> bytes:
    """libFuzzer's own change of bytes; atheris has another function of this name until it fuzzes."""
    changed: bytes = atheris.Mutate(data, longest)
    return changed


def _mutators(target: str) -> dict[str, mutate.Mutator]:
    """What changes the inputs of a target, where bytes at random would hardly ever be of its form."""
    match target:
        case "json" | "plan":
            return {"custom_mutator": mutate.json_of(target, _plain)}
        case "safetensors":
            return {"custom_mutator": mutate.header_of(mutate.json_of(target, _plain))}
        case "command":
            return {"custom_mutator": mutate.words_of(_plain)}
    return {}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"name one of {', '.join(TARGETS)}")
    rest = sys.argv[2:]
    corpus = rest.pop(0) if rest and not rest[0].startswith("-") else tempfile.mkdtemp(prefix=f"fuzz-{name}-")
    Path(corpus).mkdir(exist_ok=True)
    limits = ["-timeout=30", "-rss_limit_mb=1024", "-max_len=65536"]
    arguments = [sys.argv[0], corpus, str(FOLDER / "seeds" / name), *limits, *rest]
    atheris.Setup(arguments, TARGETS[name], **_mutators(name))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
