"""A candidate described for a list: format, architecture and size from a few kilobytes, never from all headers."""

from __future__ import annotations

from kvplanner import jsonfile
from kvplanner.errors import PlannerError
from kvplanner.model.families import read_config
from kvplanner.model.ggml import RECIPES
from kvplanner.printable import printable
from kvplanner.reading import file_size
from kvplanner.source.gguf.header import read_metadata
from kvplanner.source.gguf.model import kind_of
from kvplanner.source.stores import ollama
from kvplanner.source.stores.found import Candidate, Found


def describe(candidate: Candidate) -> Found | None:
    """What a list shows of a candidate, in printable words; None when it is no model (a projector, an adapter)."""
    found = _described(candidate)
    shown = ("name", "format", "architecture", "problem")
    return _with(found, **{name: printable(getattr(found, name)) for name in shown}) if found else None


def _described(candidate: Candidate) -> Found | None:
    plain = Found(
        candidate.key, candidate.name, candidate.store, str(candidate.path), candidate.fingerprint.bytes,
        modified_ns=candidate.fingerprint.newest_ns, problem=candidate.problem,
    )  # fmt: skip
    try:
        if candidate.kind == "folder":
            return _folder(candidate, plain)
        if candidate.kind == "gguf":
            return _gguf(candidate, plain)
        return _ollama(candidate, plain)
    except PlannerError as error:
        return _with(plain, problem=candidate.problem or str(error))


def _with(found: Found, **changes: object) -> Found:
    values = {name: getattr(found, name) for name in Found._fields}
    return Found(**{**values, **changes})


def _folder(candidate: Candidate, plain: Found) -> Found:
    path = candidate.path / "config.json"
    config = jsonfile.read_config(path)
    names = config.get("architectures")
    architecture = str(names[0])[:200] if isinstance(names, list) and names else str(config.get("model_type", ""))[:200]
    side_path = candidate.path / "hf_quant_config.json"
    side = jsonfile.read_object(side_path) if file_size(side_path) is not None else None
    try:
        spec, inventory = read_config(config, where=str(path), side_quant=side)
    except PlannerError as error:
        return _with(plain, architecture=architecture, problem=candidate.problem or str(error))
    return _with(
        plain, architecture=architecture, format=spec.quantization or spec.dtype, parameters=inventory.parameters(),
        context_length=spec.context_length,
    )  # fmt: skip


def _gguf(candidate: Candidate, plain: Found) -> Found | None:
    header = read_metadata(candidate.path)
    if kind_of(header) not in ("model", "vocabulary"):
        return None
    architecture = header.metadata.get("general.architecture")
    recipe = header.metadata.get("general.file_type")
    context = header.metadata.get(f"{architecture}.context_length")
    count = header.metadata.get("general.parameter_count")
    return _with(
        plain, architecture=architecture if isinstance(architecture, str) else "",
        format=RECIPES.get(recipe, "") if isinstance(recipe, int) else "",
        parameters=count if isinstance(count, int) else None,
        context_length=context if isinstance(context, int) else None,
    )  # fmt: skip


def _ollama(candidate: Candidate, plain: Found) -> Found:
    # manifests/HOST/NAMESPACE/MODEL/TAG lies four levels below the folder of manifests.
    manifest = ollama.read_manifest(candidate.path, candidate.path.parents[4])
    if manifest.config is None:
        return plain
    config = jsonfile.read_object(manifest.config)
    return _with(plain, format=_text(config.get("file_type")), architecture=_text(config.get("model_family")))


def _text(value: object) -> str:
    return value[:100] if isinstance(value, str) else ""
