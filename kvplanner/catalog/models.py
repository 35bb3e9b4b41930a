"""The bundled model catalogue: a small index at start, a record parsed when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from kvplanner.catalog.stored import as_stored, logical, stored_size
from kvplanner.errors import UnknownName
from kvplanner.files import shipped
from kvplanner.model.model import Model

_FOLDER: Final = shipped("models")
_MOST_NEAR: Final = 6
# Where a config says how it is quantised: the one part that a record keeps to itself when it shares another's config.
QUANTISATION: Final = ("quantization_config", "compression_config", "quantization")
_NOT_IN_SHAPE: Final = ("max_position_embeddings", "rope_scaling", "sliding_window")


class ModelEntry(NamedTuple):
    """One model of the index.

    parameters: logical elements of the main model, a tied head once. stored_bytes: of the repository's tensors,
    published or by rule. quantization: method, None for unquantised.
    lower_confidence: some fields come from class defaults or from a model of the same shape (`like`).
    """

    id: str
    family: str
    architecture: str
    parameters: int | None
    stored_bytes: int | None
    quantization: str | None
    context_length: int | None
    licence: str | None
    released: str | None
    lower_confidence: bool
    like: str = ""
    offset: int = -1

    @property
    def name(self) -> str:
        """The id's last part."""
        return self.id.rpartition("/")[2]


@cache
def _rows() -> list[list[Any]]:
    rows: list[list[Any]] = json.loads((_FOLDER / "index.json").read_bytes())["models"]
    return rows


def _entry(row: list[Any]) -> ModelEntry:
    return ModelEntry._make((*row[:9], bool(row[9]), *row[10:]))


@cache
def index() -> tuple[ModelEntry, ...]:
    """All models: those with a record by family and name, then those of the same shape."""
    return tuple(map(_entry, _rows()))


@cache
def _names() -> dict[str, tuple[ModelEntry, ...]]:
    """Entries by lower-case id and by lower-case last part."""
    found: dict[str, list[ModelEntry]] = {}
    for entry in index():
        for key in {entry.id.lower(), entry.name.lower()}:
            found.setdefault(key, []).append(entry)
    return {key: tuple(entries) for key, entries in found.items()}


def find(text: str) -> ModelEntry:
    """The model with this id; case does not matter, and a last part that is unique is enough.

    Of several with one last part, the only one with a record of its own is meant.
    Raises UnknownName with near ones when nothing, or more than one model, has that name.
    """
    name = text.strip()
    whole = next((row for row in _rows() if row[0] == name), None)
    if whole is not None:
        return _entry(whole)  # the usual case, without an entry for every model
    key = name.lower()
    entries = _names().get(key, ())
    own = [e for e in entries if not e.like] if len(entries) > 1 else entries
    if len(own) == 1:
        return own[0]
    if entries:
        near = tuple(e.id for e in entries)
        raise UnknownName(
            f"{text!r} is the name of {len(entries)} models", "model catalogue", near, "Write one in full"
        )
    renamed = _renamed(name)
    if renamed.lower() != key and renamed.lower() in _names():
        return find(renamed)
    raise UnknownName(f"no model is called {text!r}", "model catalogue", _near(key), "kvplanner models lists them")


# Organisations and repositories that the Hub forwards to another name.
_RENAMED_ORGANISATIONS: Final = {
    "neuralmagic": "RedHatAI", "thudm": "zai-org", "cohereforai": "CohereLabs",
}  # fmt: skip
_RENAMED: Final = (
    (r"^meta-llama/Meta-Llama-3\.(\d)", r"meta-llama/Llama-3.\1"), (r"^(nvidia/.*)-FP4$", r"\1-NVFP4"),
    (r"^ai21labs/AI21-Jamba-(1\.\d)-(Mini|Large)", r"ai21labs/AI21-Jamba-\2-\1"),
)  # fmt: skip


def _renamed(name: str) -> str:
    """A repository's name as it is now."""
    import re

    publisher, slash, last = name.partition("/")
    if slash:
        name = f"{_RENAMED_ORGANISATIONS.get(publisher.lower(), publisher)}/{last}"
    for old, new in _RENAMED:
        name = re.sub(old, new, name, flags=re.IGNORECASE)
    return name


def _near(key: str) -> tuple[str, ...]:
    """Ids that resemble a name: those that hold it, those with its parts ("llama3.1-8b"), those spelled alike."""
    import re
    from difflib import get_close_matches

    found = [e.id for e in search(key)[:_MOST_NEAR]] if key else []
    parts = " ".join(re.findall(r"[a-z]+(?=\d)|[^\s/:_-]+", key))
    if parts and len(found) < _MOST_NEAR:
        last = {e.name.lower(): e.id for e in reversed(index())}  # those with a record of their own come last
        alike = get_close_matches(key.rpartition("/")[2], last, _MOST_NEAR, 0.6)
        found += [e.id for e in search(parts)[: _MOST_NEAR // 2]] + [last[name] for name in alike]
    return tuple(dict.fromkeys(found))[:_MOST_NEAR]


@cache
def _haystacks() -> tuple[str, ...]:
    return tuple(
        " ".join(
            str(part).lower()
            for part in (
                e.id, e.family, e.architecture, e.quantization or "", e.licence or "", e.released or "",
                _size_words(e.parameters),
            )
        )
        for e in index()
    )  # fmt: skip


def _size_words(parameters: int | None) -> str:
    if parameters is None:
        return ""
    return f"{round(parameters / 10**9)}b" if parameters >= 10**9 else f"{round(parameters / 10**6)}m"


def search(text: str) -> tuple[ModelEntry, ...]:
    """Models that hold every word of `text`, in any order, over id, family, size, quantisation, licence and release.

    Best first: the name itself, names that begin with it, words in the name, words elsewhere; models with a record
    of their own before those of the same shape. All models for an empty text.
    """
    words = text.lower().split()
    if not words:
        return index()
    scored = [
        (_score(entry, words), at, entry)
        for at, (entry, hay) in enumerate(zip(index(), _haystacks(), strict=True))
        if all(word in hay for word in words)
    ]
    scored.sort(key=lambda item: (item[0], item[1]))
    return tuple(entry for _, _, entry in scored)


def _score(entry: ModelEntry, words: list[str]) -> tuple[int, int, int, int, int]:
    name, whole = entry.name.lower(), "-".join(words)
    if name == whole or entry.id.lower() == whole:
        rank = 0
    elif name.startswith((whole, words[0])):
        rank = 1
    else:
        rank = 2 if all(word in name for word in words) else 3
    outside = sum(word not in name for word in words)
    return rank, outside, int(bool(entry.like)), len(name), int(entry.lower_confidence)


@cache
def record(model_id: str) -> dict[str, Any]:
    """The facts of one model with their provenance; of the model that it is shaped like, for a same-shape id.

    Raises UnknownName.
    """
    entry = find(model_id)
    offset = entry.offset if not entry.like else find(entry.like).offset
    with (_FOLDER / "records.jsonl").open("rb") as file:
        file.seek(offset)
        facts: dict[str, Any] = json.loads(file.readline())
    if base := facts.pop("config_of", None):
        shared = {key: value for key, value in record(base)["config"].items() if key not in QUANTISATION}
        facts["config"] = shared | facts["config"]
    return facts


@cache
def load(model_id: str) -> Model:
    """The model with an id, ready to plan.

    An id that only shares another one's shape takes that one's config and says so. Raises UnknownName, or NotModelled
    for an architecture that has no reader.
    """
    from kvplanner.model.families import read_config

    entry = find(model_id)
    facts = record(entry.id)
    read = read_config(facts["config"], where=f"catalogue: {facts['id']}", side_quant=facts.get("side_quant"))
    spec, inventory, odd = as_stored(facts, *read)
    derived = ("quantization_config",) if facts.get("derived") else ()
    assumed = (*facts.get("defaults", ()), *derived, *(_NOT_IN_SHAPE if entry.like else ()))
    return Model(
        id=entry.id,
        spec=spec._replace(assumed_fields=assumed),
        inventory=inventory,
        source_kind="catalogue",
        source_detail=_source(entry, facts),
        weight_format=spec.quantization or spec.dtype,
        parameters=logical(inventory),
        stored=stored_size(facts, spec.quantization, inventory, own=not entry.like),
        problems=(*_problems(entry, facts), *odd),
    )


def _source(entry: ModelEntry, facts: dict[str, Any]) -> str:
    """Where the config came from, in words."""
    how = {
        "copy": "config from a public copy",
        "sibling": "config of the same architecture, dimensions confirmed",
        "reconstructed": "config rebuilt from class defaults, element count confirmed",
    }[facts["kind"]]
    return f"{how}: {facts['source']}" if not entry.like else f"shape of {entry.like} ({how}: {facts['source']})"


def _problems(entry: ModelEntry, facts: dict[str, Any]) -> Iterator[str]:
    """What a user should know about a record."""
    if entry.like:
        yield (f"Only the shape is known, from {entry.like}: context length, rope and window sizes may differ")
        return
    if facts.get("derived"):
        by = facts.get("confirmed")
        yield (
            "Its quantisation settings were not seen: those are its publisher's habit"
            + (f", and {by} agree{'' if ' and ' in by else 's'}" if by else "")
        )
    if str(facts.get("agreement", "")).startswith("differs"):
        yield f"The config does not explain the published element count: {facts['agreement']}"
    if "amended" in facts:
        yield f"The config was completed: {facts['amended']}"
    yield from facts.get("notes", ())
