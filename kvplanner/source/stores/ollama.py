"""Ollama's store: names and tags from its manifests, weights from its blobs.

Layout (Ollama 0.30): manifests/HOST/NAMESPACE/MODEL/TAG is JSON with layers of mediaType, digest and size; a blob
lies at blobs/sha256-HEX. The model layer is a GGUF file; newer stores may hold tensors one by one instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kvplanner import jsonfile
from kvplanner.errors import BadInput, PlannerError, UnknownName
from kvplanner.model.model import Model
from kvplanner.reading import expanded, file_size
from kvplanner.record import NamedTuple
from kvplanner.source.gguf import model as gguf_model
from kvplanner.source.stores.found import Candidate, Control, Fingerprint, fingerprint

_TYPE: Final = "application/vnd.ollama.image."
_DIGEST: Final = re.compile(r"sha256[:-]([0-9a-f]{64})")
_DEFAULT_HOST: Final = "registry.ollama.ai"
_DEFAULT_NAMESPACE: Final = "library"
_MANIFEST_BYTES: Final = 4_000_000
MAX_MODELS: Final = 50_000


class Layer(NamedTuple):
    """One layer of a manifest: what it is ("model", "projector", "adapter", "params" ...), where, and its size."""

    kind: str
    blob: Path
    bytes: int


class Manifest(NamedTuple):
    """A model of the store."""

    name: str
    path: Path
    config: Path | None
    layers: tuple[Layer, ...]

    def of_kind(self, kind: str) -> tuple[Layer, ...]:
        """The layers of one kind."""
        return tuple(layer for layer in self.layers if layer.kind == kind)


def roots(environment: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Where stores may be: OLLAMA_MODELS alone when it is set, else the user's and the Linux service's."""
    env = os.environ if environment is None else environment
    if env.get("OLLAMA_MODELS"):
        return (expanded(env["OLLAMA_MODELS"]),)
    return (
        Path.home() / ".ollama" / "models",
        Path("/usr/share/ollama/.ollama/models"),
        Path("/var/lib/ollama/.ollama/models"),
    )


def candidates(root: Path, control: Control) -> Iterator[Candidate]:
    """The models of a store; broken manifests are shown with their problem."""
    for number, path in enumerate(_manifests(root)):
        control.check()
        if number >= MAX_MODELS:
            return
        name = name_of(path, root)
        try:
            manifest = read_manifest(path, root)
        except BadInput as error:
            mark, _ = fingerprint([path])
            yield Candidate(f"ollama:{name}", name, "Ollama", "ollama", path, mark, str(error))
            continue
        models = [layer for layer in manifest.layers if layer.kind in ("model", "tensor")]
        mark, _ = fingerprint([path])
        size = sum(layer.bytes for layer in models)
        problem = _incomplete(models) if models else "holds no model"
        yield Candidate(
            f"ollama:{name}", name, "Ollama", "ollama", path, Fingerprint(len(models), size, mark.newest_ns), problem
        )


def _manifests(root: Path) -> list[Path]:
    """HOST/NAMESPACE/MODEL/TAG, exactly four levels deep."""
    level = [root / "manifests"]
    for _ in range(4):
        below: list[Path] = []
        for folder in level:
            try:
                with os.scandir(folder) as entries:
                    below += [Path(entry.path) for entry in entries if not entry.name.startswith(".")]
            except OSError:
                continue
        level = sorted(below)[: MAX_MODELS + 1]
    return level


def name_of(path: Path, root: Path) -> str:
    """The name that Ollama shows: default host and namespace left out."""
    host, namespace, model, tag = path.relative_to(root / "manifests").parts
    if host != _DEFAULT_HOST:
        return f"{host}/{namespace}/{model}:{tag}"
    return f"{model}:{tag}" if namespace == _DEFAULT_NAMESPACE else f"{namespace}/{model}:{tag}"


def read_manifest(path: Path, root: Path) -> Manifest:
    """A manifest. Raises BadInput for a broken one."""
    content = jsonfile.read_object(path, _MANIFEST_BYTES)
    raw = content.get("layers")
    if not isinstance(raw, list):
        raise BadInput("is missing or not a list", f"{path}: layers", "Pull the model again")
    layers = tuple(_layer(item, root, f"{path}: layers[{number}]") for number, item in enumerate(raw))
    config = content.get("config")
    config_layer = _layer(config, root, f"{path}: config") if isinstance(config, dict) else None
    return Manifest(name_of(path, root), path, config_layer.blob if config_layer else None, layers)


def _layer(item: object, root: Path, where: str) -> Layer:
    if not isinstance(item, dict):
        raise BadInput("is not an object", where, "Pull the model again")
    kind, digest, size = item.get("mediaType"), item.get("digest"), item.get("size")
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None or not isinstance(kind, str) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise BadInput("needs a mediaType, a sha256 digest and a size", where, "Pull the model again")
    return Layer(kind.removeprefix(_TYPE), root / "blobs" / f"sha256-{match[1]}", size)


def _incomplete(layers: list[Layer]) -> str:
    for layer in layers:
        held = file_size(layer.blob)
        if held is None:
            return f"the blob {layer.blob.name[:19]}… is missing or may not be read: pull the model again"
        if held != layer.bytes:
            return f"the blob {layer.blob.name[:19]}… has {held:,} of {layer.bytes:,} bytes: pull the model again"
    return ""


def find(name: str, environment: Mapping[str, str] | None = None) -> Manifest:
    """The manifest of a name such as "qwen3:8b" (tag "latest" when none). Raises UnknownName, BadInput."""
    wanted = _manifest_parts(name)
    for root in roots(environment):
        path = root.joinpath("manifests", *wanted)
        if file_size(path) is not None:
            return read_manifest(path, root)
    names = sorted(name_of(path, root) for root in roots(environment) for path in _manifests(root))
    model = wanted[2].lower()
    near = [held for held in names if model in held.lower()] or names
    remedy = (
        f"ollama pull {name} gets it" if near else "Set OLLAMA_MODELS to the store's folder, or pull it with Ollama"
    )
    raise UnknownName("is not in Ollama's store on this machine", f"ollama:{name}", tuple(near[:8]), remedy)


def _manifest_parts(name: str) -> tuple[str, str, str, str]:
    stem, colon, tag = name.strip().rpartition(":")
    if not colon or "/" in tag:
        stem, tag = name.strip(), "latest"
    parts = stem.split("/")
    if len(parts) > 3 or not all(p and p not in (".", "..") and "\\" not in p for p in (*parts, tag)):
        raise BadInput("is not a name of Ollama's", f"ollama:{name[:200]}", "Write for example ollama:qwen3:8b")
    defaults = (_DEFAULT_HOST, _DEFAULT_NAMESPACE)
    host, namespace, model = (*defaults[: 3 - len(parts)], *parts)
    return host, namespace, model, tag


def open_model(name: str, environment: Mapping[str, str] | None = None) -> Model:
    """The model that Ollama knows by `name`. Raises UnknownName, BadInput, NotModelled."""
    manifest = find(name, environment)
    models = manifest.of_kind("model")
    where = f"ollama:{manifest.name}"
    if len(models) != 1:
        kinds = ", ".join(sorted({layer.kind for layer in manifest.layers})) or "nothing"
        raise BadInput(f"holds no single GGUF model, but {kinds}", where, "Open its source from a folder or the Hub")
    trouble = _incomplete(list(models))
    if trouble:
        raise BadInput(trouble.partition(": ")[0], where, "Pull the model again")
    model = gguf_model.open_gguf(models[0].blob, id_=manifest.name, kind="ollama", detail=where)
    extra = [
        f"Ollama loads a {words} of {sum(layer.bytes for layer in manifest.of_kind(kind)):,} bytes beside it"
        for kind, words in (("projector", "projector"), ("adapter", "LoRA adapter"), ("draft", "draft model"))
        if manifest.of_kind(kind)
    ]
    return model._replace(problems=(*model.problems, *extra), asks=_asks(manifest))


# Parameters of a model that size something; a blob of them is small.
_SIZING: Final = ("num_ctx", "num_batch", "num_gpu")
_MOST_PARAMETERS: Final = 1 << 16


def _asks(manifest: Manifest) -> tuple[tuple[str, int], ...]:
    """What the model's own parameters set, () where they cannot be read: Ollama would say so, not a plan."""
    found: dict[str, int] = {}
    for layer in manifest.of_kind("params"):
        try:
            parameters = jsonfile.read_object(layer.blob, _MOST_PARAMETERS)
        except PlannerError:
            continue
        for name in _SIZING:
            value = parameters.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
                found[name] = value
    for kind, option in (("projector", "mmproj_size"), ("adapter", "lora_size")):
        size = sum(layer.bytes for layer in manifest.of_kind(kind))
        if size:
            found[option] = size
    return tuple(found.items())
