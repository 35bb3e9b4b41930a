"""What of a log is whose business: names of models without the folders they lie in, texts without paths and keys.

Calibrations, reports and the plans that a log becomes pass through here; what is shown on the screen need not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kvplanner.diagnose.diagnosis import Diagnosis
from kvplanner.engine.option import OptionValue

# The Hub's cache: .../models--ORG--NAME/snapshots/HASH
_CACHED: Final = re.compile(r"models--([\w.-]+?)--([\w.-]+)")
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
_PATH: Final = re.compile(r"(?<![\w.])(?:[A-Za-z]:[\\/]|~?/|\.{1,2}/)[^\s'\",;()\[\]{}]+")
_URL: Final = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\",;)\]}]+")
_ADDRESS: Final = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_HOST: Final = re.compile(r"\b[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.(?:internal|local|lan|corp|intranet|com|net|org|io)\b")
# What NVML names a GPU by, and a part of one.
_IDENTITY: Final = re.compile(r"\b(?:MIG-)?(?:GPU|MIG)-[0-9a-fA-F-]{8,}(?:/\d+)*")
_MAIL: Final = re.compile(r"[\w.+-]+@[\w.-]+")
# What a key is called, with the key behind it.
_NAMED: Final = re.compile(
    r"((?:--[\w-]*(?:key|token|password|secret)[= ]|\b[\w-]*(?:key|token|password|secret)['\"]?\s*[:=])\s*['\"\[]*)"
    r"(?!None\b|null\b)[^\s'\",}\]]+", re.IGNORECASE)  # fmt: skip
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


def public_options(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Options without paths, keys and hosts in their values."""
    return {name: _public_text(value) if isinstance(value, str) else value for name, value in options.items()}


def scrubbed(text: str) -> str:
    """A text without keys, addresses, hosts, identities of GPUs, and the folders of paths."""
    text = _IDENTITY.sub("a GPU", text)
    text = _SECRET.sub("***", _MAIL.sub("***", _URL.sub("<address>", _NAMED.sub(r"\1***", text))))
    return _HOST.sub("<host>", _ADDRESS.sub("<address>", _pathless(text)))


def _pathless(text: str) -> str:
    return _PATH.sub(lambda found: public_name(found[0]), text)


def _public_text(text: str) -> str:
    return public_name(text) if looks_like_path(text) and " " not in text else scrubbed(text)


def public(found: Diagnosis) -> Diagnosis:
    """What may be handed on of a diagnosis: figures, options and causes, without what tells whose machine it was."""
    reading = found.reading
    stated = tuple(
        s._replace(value=_public_text(s.value) if isinstance(s.value, str) else s.value, process=scrubbed(s.process))
        for s in reading.stated
    )
    ended = reading.ended
    if ended is not None:
        figures = {k: _public_text(v) if isinstance(v, str) else v for k, v in ended.figures.items()}
        ended = ended._replace(text="", process=scrubbed(ended.process), figures=figures)
    return found._replace(
        model=found.model and _public_text(found.model),
        version=found.version and scrubbed(found.version),
        options=public_options(found.options),
        problems=tuple(map(scrubbed, found.problems)),
        reading=reading._replace(stated=stated, ended=ended, arguments={}, command=""),
    )


def public_document(value: object) -> object:
    """A document of a plan without the folders of paths, and without keys."""
    if isinstance(value, str):
        return public_name(value) if _is_place(value) else _SECRET.sub("***", _pathless(value))
    if isinstance(value, dict):
        return {name: public_document(inner) for name, inner in value.items()}
    return [public_document(inner) for inner in value] if isinstance(value, list | tuple) else value


def _is_place(text: str) -> bool:
    return " " not in text and (text.startswith(("/", "~/", "./", "../", "\\")) or _DRIVE.match(text) is not None)
