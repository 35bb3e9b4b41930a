"""Adding and removing data packs: the signature is checked, then every record, and only then is anything kept.

A key that signed nothing here before is trusted by whoever names its fingerprint; publishers tell theirs elsewhere.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kvplanner import packfile
from kvplanner.catalog import gpus
from kvplanner.catalog.rows import index_row
from kvplanner.engine import registry
from kvplanner.errors import BadInput, PlannerError
from kvplanner.files import packs_folder, write_whole
from kvplanner.packfile import Pack
from kvplanner.reading import file_size, read_whole
from kvplanner.record import NamedTuple

_KEYS: Final = "keys.json"
_MOST_KEYS: Final = 200
_KINDS: Final = ("copy", "sibling", "reconstructed")
# What a record of a model may say beside its config, as the shipped ones do.
_MODEL_TEXTS: Final = ("id", "family", "source", "license", "released", "agreement", "params_source", "bytes_source",
                       "confirmed", "amended")  # fmt: skip
_MODEL_FIELDS: Final = frozenset({
    *_MODEL_TEXTS, "config", "kind", "params", "bytes", "size", "extra", "defaults", "derived", "side_quant", "notes",
    "absent", "gated",
})  # fmt: skip


class Unverified(BadInput):
    """A pack whose key is not trusted here yet; key_fingerprint and by say whose it is."""

    def __init__(self, pack: Pack, where: str) -> None:
        self.pack = pack
        self.key_fingerprint = packfile.fingerprint(pack.key)
        super().__init__(
            f"signed by a key that is not trusted here, {self.key_fingerprint}, which calls itself {pack.by!r}",
            where,
            f"If its publisher names this fingerprint, add the pack with --trust {self.key_fingerprint}",
        )


class Added(NamedTuple):
    """What a pack brought. replaced: whether a pack of this name was there before."""

    pack: Pack
    replaced: bool


def checked(path: Path) -> tuple[Pack, bytes, list[list[Any]]]:
    """A pack whose signature and records are right, its file's bytes, and its models' index rows.

    Raises BadInput naming the record that cannot be used.
    """
    data = read_whole(path, packfile.MOST_BYTES)
    where = path.name
    signed = packfile.split(data, where)
    _verify(signed, where)
    pack = packfile.read(signed, where)
    rows = [_model_row(record, f"{where}: {name}") for name, record in pack.models.items()]
    for name, record in pack.gpus.items():
        _check_gpu(record, f"{where}: {name}")
    for engine, entries in pack.constants.items():
        registry.check_constants(engine, dict(entries), f"{where}: constants.{engine}")
    return pack, data, rows


def add(path: Path, trust: str = "") -> Added:
    """Keep a pack for the next start. trust: the fingerprint of a key that may sign packs from now on.

    Raises Unverified for a key that is not trusted, BadInput for a pack that is broken or older than the one of its
    name that is here.
    """
    pack, data, rows = checked(path)
    mark = packfile.fingerprint(pack.key)
    if trust and trust != mark:
        raise BadInput(f"the pack is signed by {mark}, not by {trust[:60]}", "--trust", "Ask its publisher which holds")
    keys = trusted()
    if pack.key not in keys and not trust:
        raise Unverified(pack, path.name)
    before = next((known for known in packfile.installed().packs if known.name == pack.name), None)
    if before is not None and before.key != pack.key:
        raise BadInput(f"a pack called {pack.name} of another key is here", path.name, "Remove that one first")
    if before is not None and before.made > pack.made:
        raise BadInput(f"older than the pack of this name that is here, of {before.made}", path.name,
                       "Remove that one first, if the older one is wanted")  # fmt: skip
    if before is None and len(packfile.installed().packs) >= packfile.MOST_PACKS:
        raise BadInput(f"{packfile.MOST_PACKS} packs are here", path.name, "Remove one first")
    _keep(pack, data, rows, keys if pack.key in keys else {**keys, pack.key: pack.by}, new=before is None)
    packfile.forget()
    return Added(pack, before is not None)


def _keep(pack: Pack, data: bytes, rows: list[list[Any]], keys: dict[str, str], *, new: bool) -> None:
    """The pack with its rows, and then its key: of what cannot be kept whole nothing is, and what was there stays."""
    folder = packs_folder()
    target = folder / f"{pack.name}{packfile.SUFFIX}"
    beside = packfile.rows_path(target, packfile.split(data, target.name))
    text = json.dumps({"schema": packfile.ROWS_SCHEMA, "rows": rows}, ensure_ascii=False, separators=(",", ":"))
    kept, indexed = False, file_size(beside) is not None  # the very pack that is here, once more
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(beside, text.encode())
        write_whole(target, data)
        kept = True
        if keys != trusted():
            write_whole(folder / _KEYS, json.dumps(keys, ensure_ascii=False).encode())
    except OSError as error:
        with suppress(OSError):
            if new:
                target.unlink(missing_ok=True)
            if new or not (kept or indexed):
                beside.unlink(missing_ok=True)
        raise BadInput(f"cannot be kept ({error.strerror or error})", str(folder), "Make room, or name another folder"
                       " as KVPLANNER_DATA_DIR") from error  # fmt: skip
    packfile.forget_rows(target, keep=beside)


def remove(name: str) -> None:
    """Take a pack away. Raises BadInput where none is called so."""
    target = packs_folder() / f"{name}{packfile.SUFFIX}"
    if not packfile.NAME.fullmatch(name) or file_size(target) is None:
        known = ", ".join(pack.name for pack in packfile.installed().packs)
        raise BadInput(f"no pack is called {name[:60]!r}", "data", f"Here are: {known}" if known else "None is here")
    try:
        target.unlink()
    except OSError as error:
        raise BadInput(
            f"cannot be removed ({error.strerror or error})", str(target), "Change its permissions"
        ) from error
    packfile.forget_rows(target)
    packfile.forget()


def trusted() -> dict[str, str]:
    """Keys that may sign packs here, each with what its owner calls itself."""
    path = packs_folder() / _KEYS
    if file_size(path) is None:
        return {}
    from kvplanner.jsonfile import read_object

    with suppress(BadInput):
        return {key: str(by) for key, by in list(read_object(path).items())[:_MOST_KEYS]}
    return {}


def unchanged(pack: Pack) -> bool:
    """Whether the file of a pack that was added still is what its publisher signed."""
    path = packs_folder() / f"{pack.name}{packfile.SUFFIX}"
    try:
        _verify(packfile.split(read_whole(path, packfile.MOST_BYTES), path.name), path.name)
    except BadInput:
        return False
    return True


def _verify(signed: packfile.Signed, where: str) -> None:
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(bytes.fromhex(signed.key)).verify(signed.body, bytes.fromhex(signed.signature))
    except BadSignatureError as error:
        raise BadInput("its signature does not fit what it holds: it was changed, or broke on the way", where,
                       "Get the pack again from where it was published") from error  # fmt: skip


def _model_row(record: dict[str, Any], where: str) -> list[Any]:
    unknown = sorted(record.keys() - _MODEL_FIELDS)
    if unknown:
        raise BadInput(f"the field {unknown[0][:60]!r} is not known", where, "Leave it out")
    for key in ("family", "source"):
        if not record.get(key):
            raise BadInput(f"{key} is missing", where, "Say where the config comes from, and its family")
    for key in _MODEL_TEXTS:
        if not isinstance(record.get(key) or "", str):
            raise BadInput("not a text", f"{where}.{key}", "Write a text, or leave it out")
    if not isinstance(record.get("config"), dict) or record.get("kind") not in _KINDS:
        raise BadInput("config is none, or kind is not one of " + ", ".join(_KINDS), where, "Give both")
    try:
        family, licence, released = record["family"], record.get("license"), record.get("released")
        return index_row(dict(record), family=family, licence=licence, released=released)
    except PlannerError as error:
        raise BadInput(f"its config cannot be read: {error.what}", where, "A newer version of kvplanner may read it") \
            from error  # fmt: skip
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise BadInput("a published figure is not of the form that records have", where, "Leave it out") from error


def _check_gpu(record: dict[str, Any], where: str) -> None:
    try:
        spec = gpus.spec_of(record, gpus.entry_of(record))
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        needed = "vendor, class, aliases, memory_gb and the totals in MiB are what a plan needs"
        raise BadInput("a field is missing or not of the form that records of GPUs have", where, needed) from error
    texts: tuple[object, ...] = (spec.vendor, spec.name, spec.arch, spec.memory_type, spec.gpu_class, *spec.aliases)
    if not all(isinstance(text, str) and len(text) <= 200 and text.isprintable() for text in texts):
        raise BadInput("a name is no text of one line", where, "Write texts")
    if spec.vendor not in ("nvidia", "amd", "apple", "intel") or spec.total is None or spec.total.value <= 0:
        raise BadInput("its maker or its memory is not known", where, "Give vendor, and memory_gb or the totals")
