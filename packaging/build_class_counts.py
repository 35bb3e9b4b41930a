"""Write tests/model/class_counts.jsonl: small configs as transformers saves them, with the elements of their classes.

Each class is built on the meta device, so nothing is computed. A tied head counts once; buffers that a file holds
(selection biases) are counted apart. Run it in an environment with the transformers release of the newest engine:

    python packaging/build_class_counts.py
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "tests" / "model" / "class_counts.jsonl"
# Architecture and the fields that make it small: one object a line, kept beside the result.
WANTED: Final = ROOT / "tests" / "model" / "class_wanted.jsonl"
_UNSAVED: Final = re.compile(r"^(transformers_version|_|label2id)|token|dropout|_prob$")


def saved(config: Any) -> dict[str, Any]:
    """The config as it is saved, without what no reader needs."""

    def trimmed(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: trimmed(v) for k, v in value.items() if not _UNSAVED.search(str(k))}
        return value

    return dict(trimmed(json.loads(config.to_json_string(use_diff=True))))


def counted(architecture: str, fields: dict[str, Any], read_as: str = "") -> dict[str, Any]:
    """One row of the result; read_as: the architecture that files of the class state, where it is another."""
    torch, transformers = import_module("torch"), import_module("transformers")

    class_ = getattr(transformers, architecture)
    config = class_.config_class(**fields)
    with torch.device("meta"):
        model = class_(config)
    elements = sum(p.numel() for p in model.parameters())
    name = read_as or architecture
    return {"architecture": name, "elements": elements, "config": saved(config) | {"architectures": [name]}}


def main() -> None:
    """Write the file anew."""
    rows = [json.loads(line) for line in WANTED.read_text(encoding="utf-8").splitlines()]
    # A row at a time, so that a class without its own requirements is named.
    made = [counted(row["architecture"], row["fields"], row.get("read_as", "")) for row in rows]
    TARGET.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in made), encoding="utf-8")


if __name__ == "__main__":
    main()
