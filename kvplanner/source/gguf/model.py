"""A Model of a GGUF file, all parts of a split one included; projectors, adapters and matrices told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from kvplanner.errors import BadInput
from kvplanner.estimate import Input, exact
from kvplanner.model.ggml import RECIPES
from kvplanner.model.model import Model
from kvplanner.reading import is_file
from kvplanner.source.gguf import inventory as gguf_inventory
from kvplanner.source.gguf.header import GgufHeader, GgufTensor, read_header, split_parts
from kvplanner.source.gguf.spec import Reader, read_spec
from kvplanner.units import counted

FileKind = Literal["model", "projector", "adapter", "imatrix", "vocabulary"]


def open_gguf(path: Path, *, id_: str = "", kind: str = "gguf", detail: str = "") -> Model:
    """The model in a GGUF file; any part of a split one names the whole.

    Raises BadInput for a broken file, a missing part, or a file that is not a model; NotModelled for unknown types.
    """
    parts = split_parts(path) or (path,)
    headers = [_part(part, len(parts)) for part in parts]
    return from_headers(headers, [part.name for part in parts], id_ or _stem(path), kind, detail or str(path))


def _part(path: Path, count: int) -> GgufHeader:
    if count > 1 and not is_file(path):
        raise BadInput(
            f"is missing; the model has {count} parts and cannot be loaded without it", str(path), "Download it"
        )
    return read_header(path)


def from_headers(headers: Sequence[GgufHeader], names: Sequence[str], id_: str, kind: str, detail: str) -> Model:
    """A model of which all parts' headers are known; names: of the parts, for messages. Raises BadInput."""
    first, name = headers[0], names[0]
    _refuse_other_kinds(first, detail or name)
    _check_split(headers, names)
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    reader = Reader(first, tensors, name)
    spec = read_spec(reader)._replace(dtype=_plain_dtype(tensors))
    inventory = gguf_inventory.build(tensors, spec)
    bytes_ = sum(tensor.bytes for tensor in tensors)
    return Model(
        id_, spec, inventory, kind, detail, weight_format(first, tensors), inventory.parameters(),
        exact(bytes_, "{tensors}", Input("tensors", bytes_, "B", "GGUF header")), tuple(_problems(reader, tensors)),
    )  # fmt: skip


def kind_of(header: GgufHeader) -> FileKind:
    """What a GGUF file is."""
    architecture = header.metadata.get("general.architecture")
    stated = header.metadata.get("general.type")
    if architecture == "clip" or stated in ("mmproj", "projector", "clip-vision"):
        return "projector"
    if stated == "adapter" or any(tensor.name.endswith(".lora_a") for tensor in header.tensors[:8]):
        return "adapter"
    if stated == "imatrix" or (architecture is None and any(t.name.endswith(".in_sum2") for t in header.tensors[:8])):
        return "imatrix"
    # The first part of a split file may hold metadata alone.
    if not header.tensors and "split.count" not in header.metadata:
        return "vocabulary"
    return "model"


_WORDS: dict[FileKind, tuple[str, str]] = {
    "projector": ("an image or audio projector (mmproj)", "Open the model that it belongs to"),
    "adapter": ("a LoRA adapter", "Open its base model"),
    "imatrix": ("an importance matrix, used to make quantised files", "Open a model"),
    "vocabulary": ("a vocabulary without tensors", "Open a model"),
}


def _refuse_other_kinds(header: GgufHeader, where: str) -> None:
    kind = kind_of(header)
    if kind == "model":
        return
    words, remedy = _WORDS[kind]
    base = header.metadata.get("general.base_model.0.name")
    if kind == "adapter" and isinstance(base, str):
        remedy = f"Open its base model: {base[:200]}"
    raise BadInput(f"{words} of {header.tensor_bytes:,} bytes, not a model", where, remedy)


def _check_split(headers: Sequence[GgufHeader], names: Sequence[str]) -> None:
    count = headers[0].metadata.get("split.count")
    if isinstance(count, int) and count > 1 and count != len(headers):
        raise BadInput(
            f"is part of a model in {count} parts, and {len(headers)} are at hand", names[0],
            "Keep all parts in one folder, with their names ending in -00001-of-00005.gguf and so on",
        )  # fmt: skip
    seen: set[str] = set()
    for number, (header, name) in enumerate(zip(headers, names, strict=True)):
        stated = header.metadata.get("split.no", number)
        if len(headers) > 1 and stated != number:
            raise BadInput(f"says that it is part {stated} (from 0), its name says {number}", name, "Restore its name")
        for tensor in header.tensors:
            if tensor.name in seen:
                raise BadInput(f"the tensor {tensor.name[:100]!r} is in another part too", name, "Download it again")
            seen.add(tensor.name)
    total = headers[0].metadata.get("split.tensors.count")
    if isinstance(total, int) and len(headers) > 1 and total != len(seen):
        raise BadInput(
            f"the parts hold {len(seen):,} tensors, and should hold {total:,}", names[0], "Download them again"
        )


def weight_format(header: GgufHeader, tensors: tuple[GgufTensor, ...]) -> str:
    """The recipe that made a file ("Q4_K_M"), else the type that holds the most bytes."""
    recipe = header.metadata.get("general.file_type")
    if isinstance(recipe, int) and recipe in RECIPES:
        return RECIPES[recipe]
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.type.name] += tensor.bytes
    return max(sizes, key=lambda name: sizes[name], default="")


def _plain_dtype(tensors: tuple[GgufTensor, ...]) -> str:
    """What engines compute in: bfloat16 where the file holds it, else float16."""
    return "bfloat16" if any(tensor.type.name == "BF16" for tensor in tensors) else "float16"


def _problems(reader: Reader, tensors: tuple[GgufTensor, ...]) -> list[str]:
    problems: list[str] = []
    long_names = [tensor.name for tensor in tensors if len(tensor.name.encode()) >= 64]
    if long_names:
        problems.append(
            f"{counted(len(long_names), 'tensor name is', 'tensor names are')} longer than llama.cpp accepts, "
            f"for example {long_names[0][:80]}"
        )
    if reader.number("attention.kv_lora_rank") and not reader.number("attention.key_length_mla"):
        problems.append(
            "An old conversion without key_length_mla: llama.cpp keeps a full cache, tens of times the latent one"
        )
    stated = reader.number("vocab_size")
    held = reader.outside.get("token_embd", (0, 0))
    if stated and len(held) > 1 and held[1] != stated:
        problems.append(f"vocab_size is {stated:,}, the embedding has {held[1]:,} rows (used)")
    tokens = reader.lengths.get("tokenizer.ggml.tokens", 0)
    if tokens and len(held) > 1 and held[1] < tokens:
        problems.append(f"The tokenizer has {tokens:,} tokens, the embedding only {held[1]:,} rows")
    return problems


def _stem(path: Path) -> str:
    parts = split_parts(path)
    stem = path.stem
    return stem.rsplit("-", 3)[0] if parts else stem
