"""Build resources/architectures/vllm.json: which releases of vLLM list which architecture.

    python packaging/build_vllm_registry.py FOLDER

FOLDER holds vllm/model_executor/models/registry.py of several releases, each named by its release (0.33.0.py), as the
source distributions have them. Kept are names and releases; no code is. The newest file also says, under
_PREVIOUSLY_SUPPORTED_MODELS, which release was the last to run what it no longer lists.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).resolve().parent.parent / "resources" / "architectures" / "vllm.json"
_TABLES: Final = re.compile(r"_(?!PREVIOUSLY|OOT|VLLM)\w*MODELS")
Release = tuple[int, ...]


def tables(path: Path) -> dict[str, dict[str, object]]:
    """The dictionaries of a registry by their names; values are kept where they are plain text."""
    found: dict[str, dict[str, object]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Dict):
            pairs = zip(value.keys, value.values, strict=True)
            found[target.id] = {
                str(key.value): item.value if isinstance(item, ast.Constant) else None
                for key, item in pairs
                if isinstance(key, ast.Constant)
            }
    return found


def release_of(path: Path) -> Release:
    """0.6.6.post1.py → (0, 6, 6)."""
    return tuple(int(part) for part in re.findall(r"\d+", path.stem.partition(".post")[0]))


def spelled(release: Release) -> str:
    """(0, 6, 6) → "0.6.6"."""
    return ".".join(map(str, release))


def main(arguments: list[str]) -> int:
    """Write the file anew."""
    files = sorted(Path(arguments[0]).glob("0.*.py"), key=release_of) if len(arguments) == 1 else []
    if not files:
        print("usage: python packaging/build_vllm_registry.py FOLDER", file=sys.stderr)
        return 2
    listed = {release_of(path): tables(path) for path in files}
    names = {r: {n for t, part in found.items() if _TABLES.fullmatch(t) for n in part} for r, found in listed.items()}
    newest = max(listed)
    since: defaultdict[str, list[str]] = defaultdict(list)
    last: defaultdict[str, list[str]] = defaultdict(list)
    dropped = listed[newest].get("_PREVIOUSLY_SUPPORTED_MODELS", {})
    for name in sorted(set().union(*names.values())):
        having = [release for release in sorted(names) if name in names[release]]
        if having[-1] != newest and name not in dropped and name.endswith("ForSequenceClassification"):
            continue  # made of the decoder since then, as any other is
        since[spelled(having[0])].append(name)
        if having[-1] != newest:
            last[str(dropped.get(name) or spelled(having[-1]))].append(name)
    body = {
        "schema": "kvplanner.registry/1",
        "source": "vllm/model_executor/models/registry.py of each release read",
        "read": [spelled(release) for release in sorted(listed)], "since": since, "last": last,
    }  # fmt: skip
    TARGET.write_text(json.dumps(body, indent=0, sort_keys=False) + "\n", encoding="utf-8")
    print(sum(map(len, since.values())), "architectures of", len(listed), "releases")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
