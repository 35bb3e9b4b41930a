"""What of a log is whose business: names of models without the folders they lie in, texts without paths and keys.

Calibrations, reports and the plans that a log becomes pass through here; what is shown on the screen need not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kvplanner.engine.option import OptionValue
from kvplanner.reading import is_there

# The Hub's cache: .../models--ORG--NAME/snapshots/HASH
_CACHED: Final = re.compile(r"models--([\w.-]+?)--([\w.-]+)")
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
_PATH: Final = re.compile(r"(?<![\w.])(?:[A-Za-z]:[\\/]|~?/|\.{1,2}/)[^\s'\",;()\[\]{}]+")
_URL: Final = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\",;)\]}]+")
_ADDRESS: Final = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_HOST: Final = re.compile(r"\b[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.(?:internal|local|lan|corp|intranet|com|net|org|io)\b")
_MAIL: Final = re.compile(r"[\w.+-]+@[\w.-]+")
_SECRET: Final = re.compile(
    r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[bap]-|AKIA|AIza|nvapi-|Bearer )[\w.-]{6,}|\b[0-9a-fA-F]{32,}\b"
)


def looks_like_path(name: str) -> bool:
    """Whether a model's name is a place on a machine rather than a name on the Hub."""
    return name.startswith(("/", ".", "~", "\\")) or _DRIVE.match(name) is not None or name.count("/") > 1


def public_name(name: str) -> str:
    """A model's name without where it lies: an id stays, of a path its last part, of the Hub's cache its id."""
    cached = _CACHED.search(name)
    if cached is not None:
        return f"{cached[1]}/{cached[2]}"
    if not looks_like_path(name):
        return name
    parts = [part for part in re.split(r"[\\/]+", name) if part not in ("", ".", "..", "~")]
    return parts[-1] if parts else ""


def planned_name(name: str) -> str:
    """A model's name for a plan that is made here: a path that is there stays one, another is as good as a name."""
    return name if looks_like_path(name) and is_there(Path(name)) else public_name(name)


def public_options(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Options without paths in their values."""
    return {k: public_name(v) if isinstance(v, str) and looks_like_path(v) else scrubbed(v) if isinstance(v, str) else v
            for k, v in options.items()}  # fmt: skip


def scrubbed(text: str) -> str:
    """A text without keys, addresses, hosts, and the folders of paths."""
    text = _SECRET.sub("***", _MAIL.sub("***", _URL.sub("<address>", text)))
    text = _PATH.sub(lambda found: f"…/{public_name(found[0])}", text)
    return _HOST.sub("<host>", _ADDRESS.sub("<address>", text))
