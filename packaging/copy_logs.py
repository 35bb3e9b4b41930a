"""Copies start-up logs with their expected values into the tests: python3 packaging/copy_logs.py FOLDER.

FOLDER holds one folder an engine, each with logs and an expected.json. The logs of vLLM are synthetic: made from the
format strings of its releases with invented figures that agree with one another; those of llama.cpp are what its own
unmodified server prints on imitated GPUs.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "tests" / "diagnose" / "logs"


def main() -> int:
    """Copies byte for byte, since line ends are part of what is tested."""
    for source in sorted(Path(sys.argv[1]).iterdir()):
        if source.is_dir():
            target = TARGET / source.name
            target.mkdir(parents=True, exist_ok=True)
            for file in sorted(source.iterdir()):
                if file.suffix in (".log", ".json", ".md"):
                    shutil.copyfile(file, target / file.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
