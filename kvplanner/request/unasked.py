"""What a server loads with a repository's model unasked: its projector, as the size that a plan counts."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from kvplanner.engine.beside import encoder_bytes
from kvplanner.engine.option import FlagRule, OptionValue
from kvplanner.model.model import Model
from kvplanner.reading import file_size
from kvplanner.units import format_bytes


def with_projector(
    rules: Mapping[str, FlagRule], given: Collection[str], options: Mapping[str, OptionValue], model: Model
) -> tuple[dict[str, OptionValue], tuple[str, ...]]:
    """The options with the size of the projector that comes with a repository's model, and what to say of it.

    rules: the engine's; given: flags and variables, one of which may leave it out. Its size is that of the file beside
    the model's, else that of the model's own encoder; where neither is at hand, the plan says that it counts none.
    """
    found, said = dict(options), []
    for rule in {rule for rule in rules.values() if rule.encoders and rule.unless}:
        if rule.sizes in found or any(flag in given for flag in rule.unless):
            continue
        leaves = f"{rule.unless[0]} leaves it out"
        file = projector_near(Path(model.source_detail)) if model.source_kind == "gguf" else None
        if file is not None:
            found[rule.sizes] = file[1]
            said.append(f"The repository's projector is loaded with its model: {file[0]}, {format_bytes(file[1])}; "
                        f"{leaves}")  # fmt: skip
        elif size := encoder_bytes(model):
            found[rule.sizes] = size
            said.append(f"The repository's projector is loaded with its model: counted as the model's own encoder in "
                        f"16 bits, {format_bytes(size)}; {leaves}")  # fmt: skip
        elif model.spec.model_type in rule.seeing:
            said.append(f"Where the repository has a projector, it is loaded with its model, and is not counted here: "
                        f"give its size as --{rule.sizes.replace('_', '-')}; {leaves}")  # fmt: skip
    return found, tuple(said)


def projector_near(model: Path) -> tuple[str, int] | None:
    """Name and bytes of the projector that lies in a cache beside a repository's model file, None where none does.

    Of several the first whose name's bits are nearest to the model's (find_best_sibling of common/download.cpp). In
    llama.cpp's own cache files of all repositories lie together, and each begins with its own.
    """
    owned = re.match(r"[^_]+_.+?-GGUF_", model.name, re.IGNORECASE)
    begin = owned[0].lower() if owned is not None else ""
    try:
        names = sorted(entry.name for entry in os.scandir(model.parent))
    except OSError:
        return None
    found = (
        (name, size) for name in names
        if "mmproj" in name.lower() and name.lower().endswith(".gguf") and name.lower().startswith(begin)
        and (size := file_size(model.with_name(name)))
    )  # fmt: skip
    bits = _bits(model.name)
    return min(found, key=lambda one: abs(_bits(one[0]) - bits), default=None)


def _bits(name: str) -> int:
    """4 of "…-Q4_K_M.gguf", 16 of "…-F16-00001-of-00002.gguf", 0 of a name without a type (extract_quant_bits)."""
    whole = re.sub(r"-\d{5}-of-\d{5}$", "", name[: -len(".gguf")])
    type_ = re.search(r"[-.]([A-Za-z0-9_]+)$", whole)
    found = re.search(r"\d+", type_[1]) if type_ is not None else None
    return int(found[0]) if found is not None else 0
