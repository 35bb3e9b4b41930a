"""Imports point one way, and heavy or Qt modules stay where they belong."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.patience import LONG_S
from tests.sources import PACKAGE, modules, name_of, source, used

pytestmark = pytest.mark.xdist_group("sources")

# Each room with the rooms that it may import; a room may always import itself.
GROUND = {
    "units", "sized_text", "errors", "estimate", "files", "jsonfile", "packfile", "printable", "reading", "deadline",
    "kept",
}  # fmt: skip
FACTS = {"model", "gpu"}
PLANS = GROUND | FACTS | {"engine", "catalog"}
ALLOWED: dict[str, set[str]] = {
    "units": set(),
    "record": set(),
    "sized_text": {"units"},
    "errors": set(),
    "estimate": {"units"},
    "files": set(),
    "deadline": set(),
    "reading": {"errors"},
    "jsonfile": {"errors", "reading"},
    "kept": {"errors", "files", "jsonfile"},
    "printable": set(),
    "packfile": {"errors", "files", "jsonfile", "reading"},
    "packs": PLANS,
    "model": GROUND,
    "gpu": GROUND,
    "engine": GROUND | FACTS,
    "catalog": GROUND | FACTS,
    "source": GROUND | FACTS | {"catalog"},
    "solve": GROUND | FACTS | {"engine", "catalog"},
    "diagnose": PLANS | {"solve"},
    "request": PLANS,
    "report": PLANS | {"solve", "diagnose"},
    "observe": PLANS,
    "cli": PLANS | {"packs", "request", "report", "solve", "diagnose", "source", "observe"},
    "app": PLANS | {"packs", "request", "report", "solve", "diagnose", "source", "observe"},
    "ui": PLANS | {"packs", "request", "report", "solve", "diagnose", "source", "observe", "app"},
    "__main__": GROUND | {"cli", "ui"},
}
ANY_ROOM = {"__init__", "resources", "record"}
# The rooms of engine/vllm likewise: a rank is put together in startup, from what the rooms before it say.
_RULES = {"settings", "gpu", "releases", "rules", "quirks", "dtypes", "constants", "backends"}
VLLM: dict[str, set[str]] = {
    "settings": set(),
    "gpu": set(),
    "signature": set(),
    "releases": {"settings"},
    "rules": {"releases"},
    "quirks": {"settings"},
    "dtypes": set(),
    "constants": {"settings", "gpu", "releases"},
    "backends": {"settings", "gpu", "releases", "rules", "quirks", "dtypes"},
    "options": {"releases", "rules", "dtypes"},
    "kv": _RULES,
    "weights": _RULES,
    "settle": _RULES | {"kv", "weights", "options"},
    "memory": _RULES | {"kv", "weights"},
    "startup": _RULES | {"kv", "weights", "memory"},
    "words": _RULES | {"kv", "memory", "startup"},
    "levers": {"dtypes"},
    "changes": {"rules", "releases"},
    "planner": _RULES | {"options", "settle", "startup", "words", "levers", "changes"},
}
# Third-party modules and the only places that may import them.
PLACES: dict[str, tuple[str, ...]] = {
    "PySide6": ("app/", "ui/"),
    "shiboken6": ("app/", "ui/"),
    "pyqtgraph": ("ui/",),
    "numpy": ("ui/",),
    "huggingface_hub": ("source/hub/",),
    "pynvml": ("observe/nvml",),
    "psutil": ("observe/",),
    "prometheus_client": ("observe/",),
    "yaml": ("request/pasted_yaml",),
}


def imports(path: Path, package: str = "kvplanner") -> Iterator[tuple[str, int]]:
    """Names of imported modules and their lines; what is taken from `package` itself counts as its modules."""
    for module, name, line, level, _ in source(path).imports:
        assert level == 0, f"{path}: relative import"
        yield (f"{module}.{name}" if name and module in ("kvplanner", package) else module), line


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_point_down(path: Path) -> None:
    place = path.relative_to(PACKAGE).as_posix()
    room = place.split("/")[0].removesuffix(".py")
    if room == "__init__":
        assert not list(imports(path)), "kvplanner itself imports nothing"
        return
    for name, line in imports(path):
        parts = name.split(".")
        if parts[0] == "kvplanner":
            target = parts[1] if len(parts) > 1 and parts[1] != "__version__" else "__init__"
            assert target in ALLOWED[room] | {room} | ANY_ROOM, f"{place}:{line} imports {name}"
        elif parts[0] in PLACES:
            assert place.startswith(PLACES[parts[0]]), f"{place}:{line} imports {name}"


def _graph() -> dict[str, set[str]]:
    """Which module imports which, within functions too; not for types alone."""
    names = {name_of(path): path for path in modules()}
    return {name: set(used(path, frozenset(names))) for name, path in names.items()}


def test_no_imports_run_in_a_circle() -> None:
    graph = _graph()
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"a circle: {' → '.join((*above[above.index(name) :], name))}"
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*above, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_an_engine_reaches_the_others_only_through_the_registry() -> None:
    engines = {p.name for p in (PACKAGE / "engine").iterdir() if p.is_dir()} - {"__pycache__", "shared"}
    for path in modules():
        place = path.relative_to(PACKAGE).parts
        inside = place[1] if place[0] == "engine" and len(place) > 2 else None
        for name, line in imports(path):
            parts = name.split(".")
            if parts[:2] == ["kvplanner", "engine"] and len(parts) > 2 and parts[2] in engines:
                assert parts[2] == inside, f"{'/'.join(place)}:{line} imports {name}: go through engine.registry"


def test_the_rooms_of_vllm_build_on_those_before_them() -> None:
    for path in sorted((PACKAGE / "engine" / "vllm").rglob("*.py")):
        place = path.relative_to(PACKAGE / "engine" / "vllm")
        room = place.parts[0].removesuffix(".py")
        for name, line in imports(path, "kvplanner.engine.vllm"):
            parts = name.split(".")
            if parts[:3] == ["kvplanner", "engine", "vllm"] and parts[3:] != ["TITLE"]:  # of the package itself
                assert parts[3] in VLLM[room] | {room}, f"{place}:{line} imports {name}"


def test_the_core_runs_without_qt() -> None:
    code = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"PySide6", "shiboken6", "numpy", "pyqtgraph", "huggingface_hub", "pynvml", "psutil"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
from kvplanner.catalog import gpus, models
from kvplanner.engine.request import PlanRequest
from kvplanner.engine.registry import engine
request = PlanRequest(models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine("H100"))
print(engine("vllm").plan(request).fits)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG_S, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr


def test_no_engines_options_are_named_outside_it() -> None:
    """Forms, sentences and solvers find an option by its role; model files and the plan's JSON have like names."""
    from kvplanner.engine.registry import engine, names

    of_files = ("model/", "source/", "catalog/", "report/schema.py")
    declared: dict[str, str] = {}
    for name in names():
        chosen = engine(name)
        for option in (o for version in (None, *chosen.versions) for o in chosen.options(version)):
            declared |= dict.fromkeys([option.name] if "_" in option.name else [], name)
            declared |= dict.fromkeys([f for f in option.flags if f.count("-") > 3], name)
    for ordinary in ("context_length",):  # a word of the field before it was an option's name
        declared.pop(ordinary, None)
    assert len(declared) > 50
    for path in modules():
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(("engine/", *of_files)):
            inside = place.split("/")[1] if place.count("/") > 1 else ""
            if place.startswith(of_files) or inside:
                continue
        for text, line in source(path).texts:
            assert text not in declared, f"{place}:{line} names {text}: find it by its role"


def test_the_window_names_no_engine_that_was_added() -> None:
    """All but the first engine came without a change of the window: it has their titles and options from them."""
    from kvplanner.engine.registry import titles

    added = [words.lower() for pair in titles()[1:] for words in pair]
    of_stores = {"ollama:"}  # where models lie
    for path in modules():
        place = path.relative_to(PACKAGE).as_posix()
        if not place.startswith(("ui/", "app/")):
            continue
        for text, line in source(path).texts:
            if text not in of_stores:
                named = [word for word in added if word in text.lower()]
                assert not named, f"{place}:{line} names {named[0]}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_modules_stay_small(path: Path) -> None:
    lines = source(path).lines
    assert lines <= 450, f"{lines} lines: two subjects in one room"


def test_every_package_is_listed() -> None:
    """What is not listed is missing from an installed application, while tests from the tree pass."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    found = {".".join(path.parent.relative_to(PACKAGE.parent).parts) for path in modules()}
    assert sorted(found | {"kvplanner.resources"}) == sorted(project["tool"]["setuptools"]["packages"])
    assert [path for path in modules() if not (path.parent / "__init__.py").exists()] == []


# What asks for files of the program or of the system itself, which no one else wrote down.
_OWN_FILES: Final = {
    "reading.py", "files.py", "catalog/gpus.py", "catalog/models.py", "catalog/preread.py", "cli/display.py",
    "engine/vllm/constants.py", "model/config/classes.py", "model/dynamic.py", "model/quantisation/published.py",
    "model/served.py", "observe/power.py", "observe/reader.py", "ui/dialogs/help.py", "source/resolve.py",
    "catalog/shared_names.py",
}  # fmt: skip
_ASKS: Final = re.compile(r"\.(?:exists|is_file|read_bytes)\(\)|(?<!entry)\.is_dir\(\)|\.read_text\((?:encoding|\))")


def test_foreign_paths_are_asked_for_in_one_guarded_place() -> None:
    """A path that others wrote down may be a pipe, too long, or in a closed folder: `reading` asks for it."""
    for path in modules():
        place = path.relative_to(PACKAGE).as_posix()
        if place not in _OWN_FILES:
            assert not _ASKS.search(path.read_text(encoding="utf-8")), place
