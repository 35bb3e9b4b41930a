"""Writes the parts of README.md that the program itself knows: an example plan and how accurate plans are.

    python packaging/build_readme.py [example] [accuracy] [engines]

Run it when figures changed. A part lies between <!-- NAME:begin --> and <!-- NAME:end -->. The pictures in
resources/screenshots come from tests/ui/test_screenshots.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
EXAMPLE = ("plan", "Llama-3.1-8B-Instruct", "--gpu", "H100", "--load", "32@1500+500")
# What the example ends before: options and notes are longer than a first look needs.
ENOUGH = "\nOptions\n"
REPORTS = "tests/truth/vllm.jsonl"


def output(*command: str) -> str:
    """What a module prints. Raises CalledProcessError."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def example() -> str:
    """The example plan as a terminal shows it."""
    text = output("kvplanner", *EXAMPLE).split(ENOUGH)[0]
    return f"```\n$ kvplanner {' '.join(EXAMPLE)}\n{text.rstrip()}\n```"


def filled(text: str, name: str, content: str) -> str:
    """The text with a part replaced. Raises ValueError where the marks are missing."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"README.md has no part {name}")
    return f"{before}{begin}{content.strip()}\n{end}{after}"


def accuracy() -> str:
    """How far plans are from public start-up reports."""
    return output("tests.truth.score", REPORTS, "--markdown")


def engines() -> str:
    """The same of the engines beside the first, each by what its reports state."""
    return output("tests.truth.engines")


PARTS = {"example": example, "accuracy": accuracy, "engines": engines}


def main() -> int:
    """Returns 0. Fills the named parts, all when none is named."""
    text = README.read_text(encoding="utf-8")
    for name in sys.argv[1:] or PARTS:
        text = filled(text, name, PARTS[name]())
    README.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
