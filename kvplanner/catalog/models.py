"""The bundled model catalogue: a small index at start, a record parsed when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kvplanner.catalog import preread
from kvplanner.catalog.stored import as_stored, logical, stored_size
from kvplanner.errors import UnknownName
from kvplanner.files import has_packs, shipped
from kvplanner.model.model import Model
from kvplanner.model.spec import ModelSpec, Moe
from kvplanner.model.tensors import Inventory
from kvplanner.record import NamedTuple

if TYPE_CHECKING:
    from kvplanner.packfile import Pack

_FOLDER: Final = shipped("models")
_MOST_NEAR: Final = 6
_FEW_NEAR: Final = 2
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
def _shipped() -> list[list[Any]]:
    rows: list[list[Any]] = json.loads((_FOLDER / "index.json").read_bytes())["models"]
    return rows


def _rows() -> list[list[Any]]:
    return _with_packs(_shipped()) if has_packs() else _shipped()


def shipped_count() -> int:
    """How many models came with the program."""
    return len(_shipped())


def _with_packs(rows: list[list[Any]]) -> list[list[Any]]:
    """The rows with those that data packs bring, which replace others of their ids; new ones stand first."""
    from kvplanner import packfile

    brought = {row[0]: row for pack in packfile.installed().packs for row in pack.rows}
    return [*brought.values(), *(row for row in rows if row[0] not in brought)]


def _entry(row: list[Any]) -> ModelEntry:
    return ModelEntry._make((*row[:9], bool(row[9]), *row[10:]))


@cache
def index() -> tuple[ModelEntry, ...]:
    """All models: those with a record by family and name, then those of the same shape."""
    return tuple(map(_entry, _rows()))


@cache
def _whole() -> dict[str, list[Any]]:
    """Rows by id."""
    return {row[0]: row for row in _rows()}


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

    Of several with one last part, that of the model's own publisher is meant, else the only one with a record of its
    own that is no copy of another's.
    Raises UnknownName with near ones when nothing, or more than one model, has that name.
    """
    name = text.strip()
    whole = _whole().get(name)
    if whole is not None:
        return _entry(whole)  # the usual case, without an entry for every model
    if len(name) > _LONGEST:
        raise UnknownName(f"{text[:60]!r}… is longer than any model's name", "model catalogue", (), _LISTED)
    key = name.lower()
    entries = _names().get(key, ())
    renamed = _renamed(name)
    if len(entries) != 1 and renamed.lower() != key and renamed.lower() in _names():
        return find(renamed)
    meant = _meant(entries)
    if meant is not None:
        return meant
    if entries:
        near = tuple(e.id for e in entries)
        raise UnknownName(
            f"{text!r} is the name of {len(entries)} models", "model catalogue", near, "Write one in full"
        )
    raise UnknownName(f"no model is called {text!r}", "model catalogue", _near(key), _LISTED)


_LISTED: Final = "kvplanner models lists them"
# Of a name or a query: looking for what resembles it takes the square of its length.
_LONGEST: Final = 400


# Who publishes others' models again, converted or quantised.
_REPUBLISHERS: Final = frozenset({"redhatai", "unsloth", "nousresearch", "mlx-community", "cyankiwi", "hugging-quants"})


def _meant(entries: tuple[ModelEntry, ...]) -> ModelEntry | None:
    """The one of several entries of a name that is meant, None when two are as likely."""
    ranked = sorted((_copied(entry), at, entry) for at, entry in enumerate(entries))
    if len(ranked) > 1 and ranked[0][0] == ranked[1][0]:
        return None
    return ranked[0][2] if ranked else None


def _copied(entry: ModelEntry) -> tuple[bool, bool, bool]:
    """How far an entry is from its model's own publisher."""
    publisher = entry.id.partition("/")[0].lower()
    return bool(entry.like), publisher in _REPUBLISHERS, entry.lower_confidence


# Organisations and repositories that the Hub forwards to another name.
_RENAMED_ORGANISATIONS: Final = {
    "neuralmagic": "RedHatAI", "thudm": "zai-org", "cohereforai": "CohereLabs",
}  # fmt: skip
_RENAMED: Final = (
    (r"^(meta-llama/)?Meta-Llama-3\.(\d)", r"\1Llama-3.\2"), (r"^(nvidia/.*)-FP4$", r"\1-NVFP4"),
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

    # Mirrors resemble what they mirror, and would crowd out the rest.
    found = [e.id for e in search(key) if not e.like][:_MOST_NEAR] if key else []
    parts = " ".join(re.findall(r"[a-z]+(?=\d)|[^\s/:_-]+", key))
    if parts:
        last = {e.name.lower(): e.id for e in reversed(index())}  # those with a record of their own come last
        alike = get_close_matches(key.rpartition("/")[2], last, _MOST_NEAR, 0.6)
        own = [e.id for e in search(parts) if not e.like][: _MOST_NEAR // 2]
        spelled = [last[name] for name in alike]
        found = found[:_FEW_NEAR] + spelled[:_FEW_NEAR] + own + spelled + found
    return tuple(dict.fromkeys(found))[:_MOST_NEAR]


@cache
def _haystacks() -> tuple[str, ...]:
    kinds = _kinds()
    return tuple(
        " ".join(
            str(part).lower()
            for part in (
                e.id, e.family, e.architecture, e.quantization or "", e.licence or "", e.released or "",
                _size_words(e.parameters), *(_KIND_WORDS[kind] for kind in kinds.get(e.id, ())),
            )
        )
        for e in index()
    )  # fmt: skip


# Kinds of models, with the words by which people look for them.
_KIND_WORDS: Final = {
    "experts": "moe mixture experts", "vision": "vision image multimodal", "audio": "audio speech multimodal",
    "states": "hybrid recurrent states", "embedding": "embedding encoder pooling",
}  # fmt: skip


@cache
def _kinds() -> dict[str, list[str]]:
    """What each model is beside a plain decoder, by its id; nothing of those that packs bring."""
    found: dict[str, list[str]] = json.loads((_FOLDER / "kinds.json").read_bytes())
    return found


def kinds_of(spec: ModelSpec) -> tuple[str, ...]:
    """The kinds of a model, of _KIND_WORDS."""
    layers, towers = spec.layers, {tower.kind for tower in spec.towers}
    found = {
        "experts": any(isinstance(mlp, Moe) for layer in layers for mlp in layer.mlps),
        "vision": "vision" in towers,
        "audio": "audio" in towers,
        "states": spec.has_states,
        "embedding": spec.task != "generate",
    }
    return tuple(kind for kind, holds in found.items() if holds)


def _size_words(parameters: int | None) -> str:
    if parameters is None:
        return ""
    if parameters < 10**9:
        return f"{round(parameters / 10**6)}m"
    trillions = f" {parameters / 10**12:.3g}t {parameters / 10**12:.2g}t" if parameters >= 10**12 else ""
    return f"{round(parameters / 10**9)}b{trillions}"


def search(text: str) -> tuple[ModelEntry, ...]:
    """Models that hold every word of `text`, in any order, over id, family, size, kind ("vision", "moe", "hybrid",
    "embedding", "audio"), quantisation, licence and release.

    Words are as people write them: "qwen32b" is "qwen" and "32b", "gptoss" and "gpt oss" are "gpt-oss"; a size is a
    whole one ("8b" is not in "38b"). Best first: the name itself, names that begin with it, words in the name, words
    elsewhere; models with a record of their own before those of the same shape, and what was not quantised before
    what was, unless a word asks for it. All models for an empty text.
    """
    if len(text) > _LONGEST:
        return ()
    words = text.lower().replace(",", " ").split()
    if not words:
        return index()
    tests = [_test_of(word) for word in words]
    scored = [
        (_score(entry, words, tests), at, entry)
        for at, (entry, hay) in enumerate(zip(index(), _haystacks(), strict=True))
        if all(test(hay) for test in tests)
    ]
    scored.sort(key=lambda item: (item[0], item[1]))
    return tuple(entry for _, _, entry in scored)


def _squeezed(text: str) -> str:
    """A text without what people leave out or put elsewhere."""
    return text.translate(_PUNCTUATION)


_PUNCTUATION: Final = {ord(sign): None for sign in "-_ /:"}
_Test = Callable[[str], bool]


def _test_of(word: str) -> _Test:
    """Whether a text holds a word of a query, however its parts are joined."""
    import re

    size = re.fullmatch(r"\d+(?:\.\d+)?[bmt]", word)
    if size:
        whole = re.compile(rf"(?<![\d.]){re.escape(word)}(?![a-z0-9])")
        return lambda text: whole.search(text) is not None
    short = _squeezed(word)
    # From a word's start on: "r1" is no part of "coder-1.5".
    spread = (
        re.compile(r"(?<![a-z0-9])" + "[-_ /:]*".join(map(re.escape, short))) if short and not short.isdigit() else None
    )
    joined = re.fullmatch(r"(.*[a-z].*?)[-_]?(\d+(?:\.\d+)?[bmt])", word)
    parts = [_test_of(part) for part in joined.groups()] if joined else []

    def test(text: str) -> bool:
        return (
            word in text
            or (spread is not None and spread.search(text) is not None)
            or (bool(parts) and all(part(text) for part in parts))
        )

    return test


def _score(entry: ModelEntry, words: list[str], tests: list[_Test]) -> tuple[int, ...]:
    name, whole = entry.name.lower(), "-".join(words)
    inside = [test(name) for test in tests]
    if name == whole or entry.id.lower() == whole or _squeezed(name) == _squeezed(whole):
        rank = 0
    elif name.startswith((whole, words[0])) or _squeezed(name).startswith(_squeezed(words[0])):
        rank = 1
    else:
        rank = 2 if all(inside) else 3
    outside = inside.count(False)
    asked = any(word in _FORMAT_WORDS for word in words)
    quantised = int(entry.quantization is not None and not asked)
    return rank, outside, int(bool(entry.like)), quantised, len(name), int(entry.lower_confidence)


# Words of a query that ask for a quantised repository.
_FORMAT_WORDS: Final = frozenset({
    "fp8", "awq", "gptq", "int4", "int8", "nvfp4", "mxfp4", "fp4", "w4a16", "w8a8", "4bit", "8bit", "bnb", "mlx",
    "quantized", "quantised", "bitsandbytes", "compressed-tensors", "modelopt",
})  # fmt: skip


@cache
def record(model_id: str) -> dict[str, Any]:
    """The facts of one model with their provenance; of the model that it is shaped like, for a same-shape id.

    Raises UnknownName.
    """
    entry = find(model_id)
    if pack := _pack_of(entry.like or entry.id):
        return dict(pack.models[entry.like or entry.id])
    offset = entry.offset if not entry.like else find(entry.like).offset
    with (_FOLDER / "records.jsonl").open("rb") as file:
        file.seek(offset)
        facts: dict[str, Any] = json.loads(file.readline())
    if base := facts.pop("config_of", None):
        shared = {key: value for key, value in record(base)["config"].items() if key not in QUANTISATION}
        facts["config"] = shared | facts["config"]
    return facts


def _pack_of(record_id: str) -> Pack | None:
    """The data pack that a record comes from, None for those that come with the program."""
    if not has_packs():
        return None
    from kvplanner import packfile

    found = packfile.models().get(record_id)
    return found[1] if found else None


@cache
def _read(record_id: str) -> tuple[ModelSpec, Inventory, tuple[str, ...]]:
    """What a record's config says, read once for all ids of its shape."""
    from kvplanner.model.families import read_config

    facts = record(record_id)
    read = read_config(facts["config"], where=f"catalogue: {facts['id']}", side_quant=facts.get("side_quant"))
    return as_stored(facts, *read)


@cache
def load(model_id: str) -> Model:
    """The model with an id, ready to plan.

    An id that only shares another one's shape takes that one's config and says so. Raises UnknownName, or NotModelled
    for an architecture that has no reader.
    """
    known = None if _pack_of(model_id) else preread.model(model_id, model_id)
    if known is not None:
        return known  # the usual case, without the index of all models
    entry = find(model_id)
    record_id = entry.like or entry.id
    return (None if _pack_of(record_id) else preread.model(entry.id, record_id)) or read(entry)


def read(entry: ModelEntry) -> Model:
    """The model of an entry, read from its record. Raises NotModelled for an architecture that has no reader."""
    facts = record(entry.id)
    spec, inventory, odd = _read(facts["id"])
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
    if pack := _pack_of(facts["id"]):
        how = f"data pack {pack.name} of {pack.made}, {how}"
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
