"""What installs kvplanner is complete: packages are listed, versions are pinned, the two set-up commands are there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKED = {name: (ROOT / "packaging" / name).read_text(encoding="utf-8") for name in ("locked-run.txt", "locked.txt")}
CONSTRAINTS = (ROOT / "packaging" / "constraints.txt").read_text(encoding="utf-8").splitlines()


def plain(name: str) -> str:
    """A distribution's name in one spelling."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_everything_that_is_installed_is_pinned() -> None:
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *(n for extra in project["optional-dependencies"].values() for n in extra)]
    names = {plain(re.split(r"[<>=~!\[; ]", name)[0]) for name in wanted} | {"setuptools"}
    pinned = {plain(line.split("==")[0]) for line in CONSTRAINTS if "==" in line}
    assert names <= pinned


def test_pins_are_names_and_versions_and_nothing_else() -> None:
    for line in CONSTRAINTS:
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line), line


@pytest.mark.parametrize("name", LOCKED)
def test_every_locked_version_is_pinned_with_its_checksums(name: str) -> None:
    pins = {plain(line.split("==")[0]): line.split("==")[1] for line in CONSTRAINTS if "==" in line}
    blocks = re.findall(
        r"^([a-z0-9-]+)==([^ ;\\]+)[^\n]*\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", LOCKED[name], re.M
    )
    assert len(blocks) == len(re.findall(r"^[a-z0-9-]+==", LOCKED[name], re.M)) > 20
    for package, version, _ in blocks:
        assert pins[package] == version, f"{package}: run packaging/lock.py after changing a pin"


def test_what_runs_needs_is_locked_with_the_rest() -> None:
    run, all_ = (set(re.findall(r"^([a-z0-9-]+==[^ ;\\]+)", LOCKED[name], re.M)) for name in LOCKED)
    assert run < all_
    wanted = {plain(re.split(r"[<>=~!\[; ]", name)[0]) for name in PROJECT["project"]["dependencies"]}
    assert wanted <= {line.split("==")[0] for line in run}


def test_no_locked_file_names_a_registry() -> None:
    assert "://" not in "".join(LOCKED.values()) + "\n".join(CONSTRAINTS)


def test_the_set_up_script_uses_the_standard_library_alone_and_names_its_commands() -> None:
    # -I keeps the environment's packages out of reach; without words it tells what it can do.
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "packaging" / "dev.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert all(f"  {command} " in done.stderr for command in ("run", "test", "build"))


def test_ci_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "python3 packaging/dev.py test" in script
    assert "python3 packaging/dev.py test" in readme
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
