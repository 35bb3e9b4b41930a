"""A model folder as an engine would load it: which files count, which are missing, and which nobody names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kvplanner import jsonfile
from kvplanner.errors import BadInput
from kvplanner.reading import file_size, unreadable
from kvplanner.record import NamedTuple
from kvplanner.source.checkpoint.layouts import GET_THEM, pointer_size, refuse_pointer
from kvplanner.source.checkpoint.safetensors import Header, Tensor, read_header
from kvplanner.units import counted

# A model of the largest kind has some 200 files; more entries than this are no model folder.
MAX_ENTRIES: Final = 20_000
MAX_TENSORS: Final = 2_000_000

# Weights in formats that can run code when loaded, or that no header describes: sized, never opened.
UNOPENED: Final = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".pkl")
_WEIGHTS: Final = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
_SHARD: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")


class FolderFiles(NamedTuple):
    """The files of a model folder that say something about its size.

    shards: the safetensors files that an engine loads, sorted; unnamed: those it does not load, with bytes.
    missing: names that the index or the numbering asks for. unopened: .bin, .pt ... with bytes. gguf: with bytes.
    index_total: total_size of the index, None without one (it can be wrong). index_tensors: the tensors that it names.
    pointers: Git LFS pointers in place of weight files, with the bytes that they stand for.
    adapter: the folder is a LoRA adapter.
    """

    path: Path
    config: Path | None
    shards: tuple[Path, ...]
    missing: tuple[str, ...] = ()
    unnamed: tuple[tuple[str, int], ...] = ()
    unopened: tuple[tuple[str, int], ...] = ()
    gguf: tuple[tuple[str, int], ...] = ()
    index: str = ""  # type: ignore[assignment]  # hides a tuple's method, which nobody asks a value for
    index_total: int | None = None
    adapter: bool = False
    pointers: tuple[tuple[str, int], ...] = ()
    index_tensors: frozenset[str] = frozenset()


class Headers(NamedTuple):
    """All headers of a folder's shards: tensors without their duplicates, and what is odd."""

    tensors: tuple[Tensor, ...]
    problems: tuple[str, ...]
    complete: bool
    metadata: Mapping[str, str] = {}

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tensors, each counted once."""
        return sum(tensor.bytes for tensor in self.tensors)


def list_files(path: Path) -> FolderFiles:
    """What a model folder holds, from names and sizes alone and the index. Raises BadInput for an unreadable one."""
    sizes = _sizes(path)
    config = next((path / name for name in ("config.json", "params.json") if name in sizes), None)
    pointers = _pointers(path, sizes)
    for name, _ in pointers:
        del sizes[name]
    tensors_files = sorted(name for name in sizes if name.endswith(".safetensors"))
    adapter = "adapter_config.json" in sizes and config is None
    unopened = tuple((n, sizes[n]) for n in sorted(sizes) if n.endswith(UNOPENED) and not n.startswith("training_args"))
    gguf = tuple((name, sizes[name]) for name in sorted(sizes) if name.lower().endswith(".gguf"))
    named, index, total, tensors = _index(path, sizes)
    if named is None:
        shards, missing = numbered_set(tensors_files)
    else:
        shards = [name for name in tensors_files if name in named]
        missing = sorted(named - set(tensors_files))
    missing = [name for name in missing if name not in dict(pointers)]
    unnamed = tuple((name, sizes[name]) for name in tensors_files if name not in shards)
    return FolderFiles(
        path,
        config,
        tuple(path / name for name in shards),
        tuple(missing),
        unnamed,
        unopened,
        gguf,
        index,
        total,
        adapter,
        pointers,
        tensors,
    )


def _pointers(path: Path, sizes: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """Git LFS pointers among the weight files, with the sizes that they stand for."""
    found = ((name, pointer_size(path / name)) for name in sorted(sizes) if name.endswith(_WEIGHTS))
    return tuple((name, size) for name, size in found if size is not None)


def _sizes(path: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    try:
        with os.scandir(path) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_ENTRIES:
                    raise BadInput(f"more than {MAX_ENTRIES:,} entries", str(path), "Name the model's own folder")
                size = file_size(Path(entry.path))
                if size is not None:
                    sizes[entry.name] = size
    except OSError as error:
        raise unreadable(str(path), error) from error
    return sizes


def _index(path: Path, sizes: dict[str, int]) -> tuple[set[str] | None, str, int | None, frozenset[str]]:
    """File names that the index asks for (None without one), the index's name, its total_size and its tensors."""
    indexes = sorted(name for name in sizes if name.endswith(".safetensors.index.json"))
    if not indexes:
        return None, "", None, frozenset()
    name = "model.safetensors.index.json" if "model.safetensors.index.json" in indexes else indexes[0]
    where = str(path / name)
    refuse_pointer(path / name)
    index = jsonfile.read_object(path / name, jsonfile.INDEX_LIMIT_BYTES)
    weight_map = index.get("weight_map")
    tensors = frozenset(weight_map) if isinstance(weight_map, dict) else frozenset()
    return index_files(index, where), name, index_total(index), tensors


def index_files(index: dict[str, object], where: str) -> set[str]:
    """The file names of an index's weight_map; raises BadInput for one that could leave the folder."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict):
        raise BadInput("is missing or not an object", f"{where}: weight_map", "Download the index again")
    files: set[str] = set()
    for tensor, file in weight_map.items():
        if isinstance(file, str) and file in files:
            continue
        if not isinstance(file, str) or not file or file in (".", "..") or set(file) & set("/\\\0") or len(file) > 255:
            raise BadInput(
                f"{str(file)[:80]!r} is not the name of a file in this folder",
                f"{where}: weight_map.{tensor[:80]}",
                "Download the index again",
            )
        files.add(file)
    return files


def index_total(index: dict[str, object]) -> int | None:
    """total_size of an index (it may be a float), None when it states none."""
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return int(total) if isinstance(total, int | float) and not isinstance(total, bool) and 0 <= total < 1e18 else None


def numbered_set(names: list[str]) -> tuple[list[str], list[str]]:
    """Without an index: the set that an engine loads, and the numbers that are missing from it.

    "consolidated" files hold the same model again in its publisher's own format, and "adapter" files none of it.
    """
    own = [name for name in names if not name.startswith(("consolidated", "adapter_", "optimizer"))]
    shards = own or [name for name in names if name.startswith("consolidated")]
    missing: list[str] = []
    for stem, count in {(match[1], match[3]) for name in shards if (match := _SHARD.fullmatch(name))}:
        if int(count) <= MAX_ENTRIES:
            wanted = {f"{stem}-{number:05d}-of-{count}.safetensors" for number in range(1, int(count) + 1)}
            missing += sorted(wanted - set(shards))
    return shards, missing


def read_headers(files: FolderFiles) -> Headers:
    """The headers of all shards. Raises BadInput for a broken one; missing and truncated ones are problems."""
    seen: set[str] = set()
    tensors: list[Tensor] = []
    problems = missing_words(files)
    doubles: list[str] = []
    complete = not files.missing and not files.pointers
    metadata: dict[str, str] = {}
    for shard in files.shards:
        header = read_header(shard, allow_truncated=True)
        if header.missing_bytes:
            complete = False
            problems.append(f"{shard.name} is {header.missing_bytes:,} bytes short of what its header says")
        metadata.update({key: value for key, value in header.metadata.items() if len(value) <= 1000})
        _add(header, seen, tensors, doubles)
        if len(tensors) > MAX_TENSORS:
            raise BadInput(f"more than {MAX_TENSORS:,} tensors", str(files.path), "Not a model's folder")
    if doubles:
        problems.append(f"{counted(len(doubles), 'tensor is', 'tensors are')} stored more than once, "
                        f"for example {doubles[0]} (counted once)")  # fmt: skip
    total = sum(tensor.bytes for tensor in tensors)
    if complete and files.index_total is not None and files.index_total != total:
        problems.append(
            f"{files.index} says {files.index_total:,} bytes in all, the headers {total:,} (the headers are used)"
        )
    return Headers(tuple(tensors), tuple(problems), complete, metadata)


def missing_words(files: FolderFiles) -> list[str]:
    """What is odd about a folder's files, in words."""
    problems: list[str] = []
    if files.pointers:
        size = sum(bytes_ for _, bytes_ in files.pointers)
        problems.append(
            f"{counted(len(files.pointers), 'weight file is a Git LFS pointer', 'weight files are Git LFS pointers')}, "
            f"which state {size:,} bytes. {GET_THEM}"
        )
    if files.missing:
        more = f" and {len(files.missing) - 3} more" if len(files.missing) > 3 else ""
        problems.append(f"{counted(len(files.missing), 'weight file is', 'weight files are')} missing: "
                        f"{', '.join(files.missing[:3])}{more}")  # fmt: skip
    if files.unnamed and files.shards:
        size = sum(bytes_ for _, bytes_ in files.unnamed)
        reason = f"{files.index} does not name them" if files.index else "they repeat the model or belong to an adapter"
        names = ", ".join(name for name, _ in files.unnamed[:3])
        problems.append(
            f"{counted(len(files.unnamed), 'safetensors file', 'safetensors files')} ({size:,} bytes) not counted, "
            f"since {reason}: {names}"
        )
    if files.unopened:
        size = sum(bytes_ for _, bytes_ in files.unopened)
        names = ", ".join(name for name, _ in files.unopened[:3])
        problems.append(
            f"{counted(len(files.unopened), 'file', 'files')} in pickle or other formats ({size:,} bytes) not opened: "
            f"{names}"
        )
    return problems


def _add(header: Header, seen: set[str], tensors: list[Tensor], doubles: list[str]) -> None:
    before = len(seen)
    seen.update(tensor.name for tensor in header.tensors)
    if len(seen) - before == len(header.tensors):
        tensors.extend(header.tensors)
        return
    known = {tensor.name for tensor in tensors}
    for tensor in header.tensors:
        if tensor.name in known:
            doubles.append(tensor.name)
        else:
            tensors.append(tensor)
