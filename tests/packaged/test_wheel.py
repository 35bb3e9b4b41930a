"""The wheel and the source archive: the same bytes from the same source, and all that the program needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

import build_wheel  # noqa: E402 - after the folder that it lies in

WHEN = 1_764_374_400


def archive(folder: Path, files: dict[str, bytes], mode: int, when: int) -> bytes:
    """A source archive as setuptools makes it of files with such permissions and dates."""
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for name, data in files.items():
            path = folder / name
            path.write_bytes(data)
            path.chmod(mode)
            os.utime(path, (when, when))
            made.add(path, f"kvplanner-1/{name}")
    return packed.getvalue()


def test_dates_permissions_owners_and_order_make_no_difference(tmp_path: Path) -> None:
    files = {"a.py": b"x = 1\n", "b.py": b""}
    one = archive(tmp_path, files, 0o600, 1_700_000_000)
    other = archive(tmp_path, dict(reversed(files.items())), 0o775, 1_600_000_000)
    assert one != other
    assert build_wheel.evened(one, WHEN) == build_wheel.evened(other, WHEN)
    with tarfile.open(fileobj=BytesIO(build_wheel.evened(one, WHEN))) as made:
        assert {(e.name, e.mode, e.mtime, e.uid, e.uname) for e in made} == {
            ("kvplanner-1/a.py", 0o644, WHEN, 0, ""), ("kvplanner-1/b.py", 0o644, WHEN, 0, "")}  # fmt: skip
        assert {e.name: made.extractfile(e).read() for e in made} == {  # type: ignore[union-attr]  # they are files
            f"kvplanner-1/{name}": data for name, data in files.items()}  # fmt: skip


@pytest.mark.packaged
@pytest.mark.skipif(
    not ((ROOT / ".git").exists() and shutil.which("git")), reason="git knows what belongs to the source"
)
def test_two_builds_are_the_same_and_a_wheel_runs(tmp_path: Path) -> None:
    elsewhere = tmp_path / "another place" / "kv"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(elsewhere)], check=True, umask=0o077)
    for name in subprocess.check_output(["git", "diff", "--name-only", "HEAD"], cwd=ROOT, text=True).splitlines():
        if (ROOT / name).exists():  # what is not committed yet
            shutil.copyfile(ROOT / name, elsewhere / name)
    here, there = (build_wheel.build(root, tmp_path / str(n)) for n, root in enumerate((ROOT, elsewhere)))
    assert [path.name for path in here] == [path.name for path in there]
    assert [path.read_bytes() for path in here] == [path.read_bytes() for path in there]
    wheel = next(path for path in here if path.suffix == ".whl")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        packed.extractall(tmp_path / "installed")
    for package in project["tool"]["setuptools"]["packages"]:
        assert any(name.startswith(package.replace(".", "/") + "/") for name in names), package
    listed = subprocess.check_output(["git", "ls-files", "-z", "resources"], cwd=ROOT, text=True)
    assert {f"kvplanner/{name}" for name in listed.split("\0") if name} - names == set()
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-P", "-m", "kvplanner", "plan", "Qwen3-0.6B", "--gpu", "H100"]
    ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "KV cache" in ran.stdout
