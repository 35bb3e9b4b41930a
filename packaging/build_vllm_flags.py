"""Build tests/engine/vllm/data/flags.json: which releases of vLLM's `vllm serve` take which flag.

    python packaging/build_vllm_flags.py FOLDER

FOLDER holds one folder per release, named by it (0.33.0), each somewhere with vllm/engine/arg_utils.py, a cli_args.py
of the server and, where there is one, entrypoints/cli/serve.py, as the source distributions have them. Kept is one
letter a flag and release: s for a switch, v where a value follows, a dot where the release has no such flag. No code
is kept. A flag whose field of a class is a bool has a --no- form too, as argparse makes it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).resolve().parent.parent / "tests" / "engine" / "vllm" / "data" / "flags.json"
_FILES: Final = ("vllm/engine/arg_utils.py", "vllm/entrypoints/**/cli_args.py", "vllm/entrypoints/cli/serve.py")
_SERVER: Final = ("BaseFrontendArgs", "FrontendArgs")
# Switches of classes' fields have had a --no- form since these releases: the engine's, the server's.
_ENGINE_WITH_NO: Final = (0, 9)
_SERVER_WITH_NO: Final = (0, 10)
_BOOL: Final = re.compile(r"bool( \| None)?|Optional\[bool\]")
Release = tuple[int, ...]


def release_of(text: str) -> Release:
    """0.6.6.post1 → (0, 6, 6)."""
    return tuple(int(part) for part in re.findall(r"\d+", text.partition(".post")[0]))


def _fields(tree: ast.Module) -> dict[str, dict[str, str]]:
    """The annotated fields of every class by its name, with their types."""
    return {
        node.name: {
            field.target.id: ast.unparse(field.annotation)
            for field in node.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _added(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """The long flags of every add_argument: the flag, the field whose type it has, its action; "" for none."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        action = next((ast.unparse(k.value) for k in node.keywords if k.arg == "action"), "")
        spread = [part for k in node.keywords if k.arg is None for part in ast.walk(k.value)]
        keys = [s.slice.value for s in spread if isinstance(s, ast.Subscript) and isinstance(s.slice, ast.Constant)]
        for word in node.args:
            if isinstance(word, ast.Constant) and str(word.value).startswith("--"):
                yield str(word.value).replace("_", "-"), str(keys[0]) if keys else "", action


def flags_of(files: list[Path], release: Release) -> dict[str, str]:
    """Every long flag of a release, with its letter."""
    found: dict[str, str] = {}
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes = _fields(tree)
        types = {name: kind for fields in classes.values() for name, kind in fields.items()}
        server = [(f"--{f.replace('_', '-')}", f, "") for name in _SERVER for f in classes.get(name, {})]
        for flag, field, action in (*_added(tree), *server):
            kind = types.get(field) or types.get(flag[2:].replace("-", "_"), "")
            plain = not action and _BOOL.fullmatch(kind)
            switch = plain or "store_true" in action or "Boolean" in action or "StoreBoolean" in action
            found[flag] = "s" if switch else "v"
            since = _SERVER_WITH_NO if (flag, field, "") in server else _ENGINE_WITH_NO
            if (plain and release >= since) or "BooleanOptional" in action:
                found[f"--no-{flag[2:]}"] = "s"
    return found


def main(arguments: list[str]) -> int:
    """Write the file anew."""
    folders = sorted(Path(arguments[0]).glob("0.*"), key=lambda p: release_of(p.name)) if len(arguments) == 1 else []
    if not folders:
        print("usage: python packaging/build_vllm_flags.py FOLDER", file=sys.stderr)
        return 2
    by_release: list[dict[str, str]] = []
    for folder in folders:
        files = [path for pattern in _FILES for path in sorted(folder.glob(pattern))]
        by_release.append(flags_of(files, release_of(folder.name)))
    head = {
        "source": "engine/arg_utils.py and the server's cli_args.py of vLLM's source distributions (Apache-2.0)",
        "made_by": "packaging/build_vllm_flags.py",
        "releases": [folder.name for folder in folders],
    }
    names = sorted({flag for taken in by_release for flag in taken})
    flags = [f'  "{flag}": "{"".join(taken.get(flag, ".") for taken in by_release)}"' for flag in names]
    text = json.dumps(head, ensure_ascii=False, indent=1)[:-2]
    TARGET.write_text(text + ',\n "flags": {\n' + ",\n".join(flags) + "\n }\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
