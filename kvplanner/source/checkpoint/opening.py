"""Makes a Model of a folder, a config.json or a safetensors file on this machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kvplanner import jsonfile
from kvplanner.catalog.stored import logical
from kvplanner.errors import BadInput, NotModelled
from kvplanner.estimate import Estimate, Input, exact
from kvplanner.model.families import read_config
from kvplanner.model.formats import DTYPE_BYTES
from kvplanner.model.model import Model
from kvplanner.model.spec import LayerSpec, ModelSpec
from kvplanner.model.tensors import Inventory
from kvplanner.reading import file_size, is_file
from kvplanner.record import NamedTuple
from kvplanner.source.checkpoint import inventory as inventories
from kvplanner.source.checkpoint import layouts, settings
from kvplanner.source.checkpoint.folder import FolderFiles, list_files, missing_words, read_headers
from kvplanner.source.checkpoint.modules import dtype_name, gather
from kvplanner.source.checkpoint.pooling import with_lengths
from kvplanner.source.checkpoint.safetensors import DTYPE_BITS, Tensor, read_header
from kvplanner.source.checkpoint.stated import Stated, as_stated
from kvplanner.source.gguf.header import split_parts
from kvplanner.source.gguf.model import open_gguf

_SNAPSHOT: Final = re.compile(r"models--([^/\\]+?)--([^/\\]+)[/\\]snapshots[/\\][0-9a-f]{7,40}$")


_INDEX: Final = "model.safetensors.index.json"
_SHARDS: Final = (".safetensors", ".bin")
# The header of a weight file is no longer than this but in the largest models.
_HEADER: Final = 2_000_000
# Methods whose tools save a model anew with transformers: a tied head twice, and no MTP block.
_SAVED_ANEW: Final = ("compressed-tensors", "awq")


class Config(NamedTuple):
    """A config as read: the architecture and what tensors it implies, or why it could not be understood."""

    architecture: str
    known: tuple[ModelSpec, Inventory] | None
    reason: str = ""


def open_config(path: Path) -> Model:
    """A config.json without weights: sizes by rule. Raises BadInput, NotModelled."""
    layouts.refuse_pointer(path)
    config, said = settings.completed(jsonfile.read_config(path), path.parent)
    spec, implied = read_config(config, where=str(path), side_quant=settings.modelopt(path.parent))
    if is_file(path.parent / _INDEX) and path.name in ("config.json", "params.json"):
        return _without_tensors(list_files(path.parent), _id_of(path.parent))
    return from_config(_config_name(path, config, spec, implied), spec, implied, "config", str(path), said)


def _config_name(path: Path, config: Mapping[str, object], spec: ModelSpec, implied: Inventory) -> str:
    """The Hub's name for a config in its cache, else one by its content or its place."""
    if _SNAPSHOT.search(str(path.absolute().parent)):
        return _id_of(path.parent)
    return layouts.name_of(path, config, spec.architecture, implied.parameters())


def from_config(
    id_: str,
    spec: ModelSpec,
    implied: Inventory,
    kind: str,
    detail: str,
    problems: Iterable[str] = (),
    *,
    stored: Estimate | None = None,
) -> Model:
    """A model whose tensors are what its config implies; stored: what is known of the files' size."""
    bytes_ = implied.stored_bytes()
    size = stored or exact(bytes_, "{tensors}", Input("tensors", bytes_, "B", "config.json, by rule"))
    return Model(
        id_, spec, implied, kind, detail, spec.quantization or spec.dtype, logical(implied), size,
        (*problems, *(() if stored else _unsaid(spec, implied))),
    )  # fmt: skip


def _unsaid(spec: ModelSpec, implied: Inventory) -> Iterator[str]:
    """What the config of a checkpoint that a quantiser saved anew leaves open about its files."""
    if spec.quantization not in _SAVED_ANEW:
        return
    if spec.tied_embeddings:
        copy = spec.vocab_size * spec.hidden_size * DTYPE_BYTES.get(spec.dtype, 2)
        yield f"The files may hold the tied head once more, as quantisers often save it: {copy:,} bytes on disk only"
    if spec.mtp_layers:
        size = sum(group.stored_bytes for group in implied.outside if group.place == "mtp")
        yield f"The files may lack the multi-token-prediction block that the config counts ({size:,} bytes)"


def open_folder(path: Path) -> Model:
    """A model folder, read from its headers; of a cached repository or a training run, the model in it.

    Raises BadInput for a broken folder, one without a model or one with several.
    """
    path, said = layouts.inside(path)
    model = with_lengths(_open_folder(path), path)
    if not said:
        return model
    return model._replace(id=f"{path.parent.name}, {path.name}", problems=(said, *model.problems))


def _open_folder(path: Path) -> Model:
    files = list_files(path)
    if files.adapter:
        raise _is_adapter(files)
    id_ = _id_of(path)
    if not files.shards:
        return _without_tensors(files, id_)
    headers = read_headers(files)
    config, said = _read_folder_config(files)
    return from_headers(
        id_, headers.tensors, config, "safetensors", str(path), (*headers.problems, *said), complete=headers.complete,
        total=_stated(files).total,
    )  # fmt: skip


def from_headers(
    id_: str,
    tensors: tuple[Tensor, ...],
    config: Config,
    kind: str,
    detail: str,
    problems: Iterable[str] = (),
    *,
    complete: bool = True,
    total: int | None = None,
) -> Model:
    """A model of which the headers are known, with its config or without.

    total: bytes of all files' tensors as an index states them, for a model of which some files are missing.
    """
    if config.known is None:
        stored = gather(tensors, 0, detail)
        built = inventories.build(stored, None, complete=complete)
        spec = _unknown_spec(config, tensors, len(built.inventory.block_of))
    else:
        spec, implied = config.known
        stored = gather(tensors, spec.num_layers, detail, spec.mtp_layers)
        built = inventories.build(stored, implied, complete=complete)
        spec = spec._replace(not_modelled=(*spec.not_modelled, *built.contradictions))
    bytes_ = sum(tensor.bytes for tensor in tensors)
    if not complete and config.known is not None:
        bytes_ = max(bytes_, built.inventory.stored_bytes() + built.left_out_bytes)
    stored_estimate = exact(bytes_, "{tensors}", Input("tensors", bytes_, "B", "file headers"))
    if not complete and total is not None and _is_plausible(total, bytes_):
        stored_estimate = exact(total, "{tensors}", Input("tensors", total, "B", "stated by the index or the pointers"))
    elif not complete:
        stored_estimate = Estimate(bytes_, bytes_, bytes_, "assumed", "{tensors}", (
            Input("tensors", bytes_, "B", "file headers, and the config for the missing files"),
        ))  # fmt: skip
    return Model(
        id_, spec, built.inventory, kind, detail, _weight_format(spec, tensors), built.inventory.parameters(),
        stored_estimate, (*problems, *built.problems),
    )  # fmt: skip


def _is_plausible(total: int, counted: int) -> bool:
    """Whether a stated total is not that of another count (an index may count two bytes for each element)."""
    return 0.9 * counted <= total <= 1.2 * counted


def open_safetensors(path: Path) -> Model:
    """A safetensors file: the folder's model when it belongs to one, else what its own header tells."""
    if any(is_file(path.parent / name) for name in ("config.json", "params.json")):
        files = list_files(path.parent)
        if path.name in {shard.name for shard in files.shards} | {name for name, _ in files.pointers}:
            return open_folder(path.parent)
    layouts.refuse_pointer(path)
    header = read_header(path)
    if _looks_like_adapter(header.tensors):
        raise BadInput(
            f"a LoRA adapter of {len(header.tensors):,} tensors ({header.data_bytes:,} bytes), not a model",
            str(path),
            "Open its base model",
        )
    config = Config("unknown", None, "no config.json lies beside the file: layers, heads and cache are not known")
    return from_headers(path.stem, header.tensors, config, "safetensors", str(path))


def _read_folder_config(files: FolderFiles) -> tuple[Config, tuple[str, ...]]:
    """The config of a folder with weights, and what to say of it."""
    if files.config is None:
        return Config("unknown", None, "the folder has no config.json: layers, heads and cache are not known"), ()
    layouts.refuse_pointer(files.config)
    config, said = settings.completed(jsonfile.read_config(files.config), files.path)
    return understand(config, str(files.config), settings.modelopt(files.path)), said


def understand(config: Mapping[str, object], where: str, side_quant: Mapping[str, object] | None) -> Config:
    """A config as read; an architecture that is not modelled is a reason, not an error."""
    names = config.get("architectures")
    architecture = (
        str(names[0])[:200] if isinstance(names, list) and names else str(config.get("model_type", "unknown"))[:200]
    )
    try:
        return Config(architecture, read_config(config, where=where, side_quant=side_quant))
    except NotModelled as error:
        return Config(architecture, None, str(error))


def _without_tensors(files: FolderFiles, id_: str) -> Model:
    """A folder with GGUF files, with a config alone, or beside weights that are not opened."""
    if files.gguf:
        return _only_gguf(files)
    if files.config is None and files.pointers:
        layouts.refuse_pointer(files.path / files.pointers[0][0])
    if files.config is None:
        empty = next(files.path.iterdir(), None) is None
        what = "the folder is empty" if empty else "holds no config.json and no safetensors or GGUF file"
        raise BadInput(what, str(files.path), "Name a model's folder")
    layouts.refuse_pointer(files.config)
    config, said = settings.completed(jsonfile.read_config(files.config), files.path)
    spec, implied = read_config(config, where=str(files.config), side_quant=settings.modelopt(files.path))
    problems = [*missing_words(files), *said]
    stated = _stated(files)
    if stated.total is not None or stated.tensors:
        held = as_stated(spec, implied, stated)
        return from_config(
            id_, held.spec, held.inventory, "config", str(files.config), (*problems, *held.problems), stored=held.stored
        )
    unopened = sum(size for _, size in files.unopened)
    if unopened and abs(unopened - implied.stored_bytes()) > implied.stored_bytes() // 50:
        problems.append(f"those files hold {unopened:,} bytes, the config implies {implied.stored_bytes():,}")
    if not files.missing and not files.unopened:
        problems.append("The folder holds no weights: sizes follow from config.json")
    return from_config(id_, spec, implied, "config", str(files.config), problems)


def _stated(files: FolderFiles) -> Stated:
    """What the index says of the tensors, or the pointers of the files' sizes."""
    if files.index and files.index_total is not None:
        return Stated(files.index, files.index_tensors, files.index_total)
    pointed = [(name, size) for name, size in files.pointers if name.endswith(_SHARDS)]
    best = [(n, s) for n, s in pointed if n.endswith(".safetensors")]
    # Of a model that is stored twice, as safetensors and pickled, engines load the former.
    best = pointed if not best and not files.shards else best
    best = [(n, s) for n, s in best if not n.startswith("consolidated")] or best
    if not best:
        return Stated(files.index or "the index", files.index_tensors)
    held = sum(file_size(shard) or 0 for shard in files.shards)
    total = held + sum(size for _, size in best)
    return Stated("Git LFS", files.index_tensors, total, (len(best) + len(files.shards)) * _HEADER)


def _only_gguf(files: FolderFiles) -> Model:
    """The one GGUF model of a folder, all parts of a split one counting as one; projectors do not count."""
    models = {
        (split_parts(files.path / name) or (files.path / name,))[0]: size
        for name, size in files.gguf
        if "mmproj" not in name.lower()
    }
    if len(models) != 1:
        names = ", ".join(path.name for path in list(models)[:8])
        raise BadInput(f"holds {len(models)} GGUF models", str(files.path), f"Name one of them: {names}")
    return open_gguf(next(iter(models)))


def _is_adapter(files: FolderFiles) -> BadInput:
    adapter = jsonfile.read_object(files.path / "adapter_config.json")
    base = adapter.get("base_model_name_or_path")
    rank = adapter.get("r")
    size = sum(file_size(shard) or 0 for shard in files.shards) or sum(
        size for _, size in (*files.unnamed, *files.unopened)
    )
    words = f" of rank {rank}" if isinstance(rank, int) else ""
    return BadInput(
        f"a LoRA adapter{words} ({size:,} bytes), not a model",
        str(files.path),
        f"Open its base model: {str(base)[:200]}" if isinstance(base, str) and base else "Open its base model",
    )


def _looks_like_adapter(tensors: tuple[Tensor, ...]) -> bool:
    return bool(tensors) and all(".lora_" in tensor.name or "lora_magnitude" in tensor.name for tensor in tensors)


def _unknown_spec(config: Config, tensors: tuple[Tensor, ...], layers: int) -> ModelSpec:
    """What the headers alone tell of a model; the cache is not modelled."""
    embedding = next(
        (t.shape for t in tensors if t.name.endswith(("embed_tokens.weight", "wte.weight")) and len(t.shape) == 2),
        (0, 0),
    )
    return ModelSpec(
        architecture=config.architecture,
        model_type="unknown",
        hidden_size=embedding[1],
        vocab_size=embedding[0],
        layers=(LayerSpec(()),),
        layer_of=(0,) * layers,
        context_length=None,
        dtype=_main_dtype(tensors),
        tied_embeddings=not any("lm_head" in tensor.name for tensor in tensors),
        not_modelled=(config.reason,),
    )


def _bytes_by_dtype(tensors: tuple[Tensor, ...]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for tensor in tensors:
        counted[tensor.dtype] += tensor.bytes
    return counted


def _main_dtype(tensors: tuple[Tensor, ...]) -> str:
    """The float dtype of at least 16 bits that holds the most bytes."""
    counted = _bytes_by_dtype(tensors)
    floats = [dtype for dtype in ("BF16", "F16", "F32", "F64") if counted[dtype]]
    return dtype_name(max(floats, key=lambda dtype: counted[dtype])) if floats else "bfloat16"


def _weight_format(spec: ModelSpec, tensors: tuple[Tensor, ...]) -> str:
    if spec.quantization:
        return spec.quantization
    counted = _bytes_by_dtype(tensors)
    most = max(counted, key=lambda dtype: counted[dtype], default="")
    return dtype_name(most) if most and DTYPE_BITS[most] else spec.dtype


def _id_of(path: Path) -> str:
    """A folder's name, or the Hub's name for a snapshot of the Hub cache."""
    absolute = path.absolute()
    match = _SNAPSHOT.search(str(absolute))
    return f"{match[1]}/{match[2]}" if match else absolute.name
