#!/usr/bin/env python3
"""Sets kvplanner up on a fresh machine and runs or tests it: python3 packaging/dev.py run | test | build.

  run [ARGUMENTS]     installs what is needed, then starts kvplanner with the arguments
  test [--only STEP]  everything that must pass: lint, types, unit, x11, build, packaged
  test --quick        for daily work: lint, types, and of the unit tests that are not marked slow two cases each
  build               the application folder, dist/kvplanner

Needs only the standard library. The virtual environment is .venv; it is made again when what it holds changed.
Missing Debian packages are installed when this runs as root and apt-get is there, and named otherwise.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
# Versions and checksums of everything that is installed: to run, and to test and build as well.
LOCKED_RUN = ROOT / "packaging" / "locked-run.txt"
LOCKED = ROOT / "packaging" / "locked.txt"
PACKAGED = ROOT / "dist" / "kvplanner"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
LINUX = sys.platform.startswith("linux")

# How many cases of each test daily work runs: the first and the last.
QUICK_CASES = "2"

# The release's day, in seconds: packages are dated by it.
RELEASED = "1764374400"

# What the tests need beyond Qt's libraries: (a command or file that shows it is there, the Debian package).
TEST_TOOLS = (
    ("gcc", "gcc"),
    ("make", "make"),
    ("objdump", "binutils"),
    ("icupkg", "icu-devtools"),
    ("Xvfb", "xvfb"),
    ("xdotool", "xdotool"),
    ("/usr/include/stdio.h", "libc6-dev"),
    ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "fonts-dejavu-core"),
)
# What a few tests need, which are left out without it (weston, for Wayland, is 250 MB: only where it is there already).
WANTED_TOOLS = (
    ("tidy", "tidy"),
    ("git", "git"),
    ("dbus-run-session", "dbus"),
    ("/usr/lib/python3/dist-packages/gi", "python3-gi"),
    (f"/usr/lib/{platform.machine()}-linux-gnu/girepository-1.0/Atspi-2.0.typelib", "gir1.2-atspi-2.0"),
    ("/usr/libexec/at-spi2-registryd", "at-spi2-core"),
)


class Failed(Exception):
    """A step that did not work; the message says what to do."""


def say(text: str) -> None:
    """Progress, on standard error so that `run` keeps standard output for kvplanner."""
    print(f"-- {text}", file=sys.stderr, flush=True)


def call(command: Sequence[str | Path], env: dict[str, str] | None = None, *, quiet: bool = False) -> None:
    """Runs a command in the repository. Raises Failed when it does not end with 0."""
    words = [str(w) for w in command]
    out = subprocess.DEVNULL if quiet else None
    status = subprocess.run(words, cwd=ROOT, env={**os.environ, **(env or {})}, stdout=out, check=False).returncode
    if status:
        raise Failed(f"{Path(words[0]).name} {' '.join(words[1:4])} ended with status {status}")


# -- the machine ------------------------------------------------------------------------------------------------------


def apt_install(packages: Sequence[str], why: str) -> None:
    """Installs Debian packages, or names them. Raises Failed when they are missing and cannot be installed."""
    if not packages:
        return
    command = f"apt-get install -y --no-install-recommends {' '.join(packages)}"
    if not (LINUX and shutil.which("apt-get") and os.geteuid() == 0):
        raise Failed(f"{why} needs packages that are missing. On Debian or Ubuntu: sudo {command}")
    say(f"{why}: {command}")
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        call(command.split(), env, quiet=True)
    except Failed:
        call(["apt-get", "update", "-q"], env, quiet=True)
        call(command.split(), env, quiet=True)


def missing(tools: Sequence[tuple[str, str]]) -> list[str]:
    """The Debian packages of tools that are not there."""

    def present(sign: str) -> bool:
        return Path(sign).exists() if sign.startswith("/") else shutil.which(sign) is not None

    return [package for sign, package in tools if not present(sign)] if LINUX else []


def missing_tools() -> list[str]:
    """The Debian packages that the tests need and that are not there."""
    return [*missing(TEST_TOOLS), *missing_python_library()] if LINUX else []


def missing_python_library() -> list[str]:
    """Debian's own Python comes without its shared library, which the application's build puts into the folder."""
    if sys.base_prefix != "/usr":
        return []
    name = sysconfig.get_config_var("INSTSONAME")
    try:
        ctypes.CDLL(str(name))
    except OSError:
        return [f"libpython{sys.version_info.major}.{sys.version_info.minor}"]
    return []


def qt_packages(platform: str = "") -> list[str]:
    """The Debian packages of Qt's libraries that are missing; the application knows which."""
    sys.path.insert(0, str(ROOT))
    from kvplanner.cli.display import missing_packages

    return list(missing_packages({"QT_QPA_PLATFORM": platform}))


def shows_windows() -> bool:
    """Whether a window could appear here."""
    sys.path.insert(0, str(ROOT))
    from kvplanner.cli.display import has_display

    return has_display()


# -- the environment --------------------------------------------------------------------------------------------------


def fingerprint(extras: str) -> str:
    """Changes whenever the environment must be made again."""
    parts = (
        LOCKED.read_bytes(),
        (ROOT / "pyproject.toml").read_bytes(),
        f"{ROOT} {sys.version} {extras}".encode(),
    )
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def prepare(extras: str = "") -> Path:
    """Makes .venv with kvplanner (editable) and returns its Python; quick when it is there already."""
    python = BIN / ("python.exe" if os.name == "nt" else "python")
    stamp = VENV / "kvplanner-stamp"
    wanted = {fingerprint(extras), fingerprint("test,package")}
    if python.exists() and stamp.exists() and stamp.read_text(encoding="ascii") in wanted:
        return python
    make_venv(python)
    locked = LOCKED if extras else LOCKED_RUN
    say("installing kvplanner" + (f" [{extras}]" if extras else "") + f" from packaging/{locked.name}")
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    call([*pip, "--require-hashes", "--only-binary", ":all:", "-r", locked])
    call([*pip, "--no-index", "--no-deps", "--no-build-isolation", "-e", ROOT])
    stamp.write_text(fingerprint(extras), encoding="ascii")
    return python


def make_venv(python: Path) -> None:
    """A virtual environment of this Python; an old or broken one is replaced."""
    if python.exists() and subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return
    with contextlib.suppress(ImportError):
        import ensurepip
        import venv

        say(f"making {VENV.name} with Python {sys.version.split()[0]} and pip {ensurepip.version()}")
        venv.create(VENV, with_pip=True, clear=True)
        return
    apt_install(["python3-venv"], "A virtual environment")
    call([sys.executable, "-m", "venv", "--clear", VENV])


# -- the commands -----------------------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> int:
    """Starts kvplanner; the window's libraries are seen to first where a window can appear."""
    terminal = bool(arguments) and arguments[0] != "gui"
    if not terminal and LINUX and shows_windows():
        apt_install(qt_packages(), "The window")
    python = prepare()
    return subprocess.run([str(python), "-m", "kvplanner", *arguments], check=False).returncode


@contextlib.contextmanager
def virtual_display() -> Iterator[dict[str, str]]:
    """An X server of our own, as the environment that uses it."""
    if shutil.which("Xvfb") is None:
        raise Failed("windows are tested on an X server of their own, which needs Linux with Xvfb")
    read, write = os.pipe()
    command = ["Xvfb", "-displayfd", str(write), "-screen", "0", "1600x1200x24", "-nolisten", "tcp"]
    server = subprocess.Popen(command, pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with os.fdopen(read) as answer:
            number = answer.readline().strip()
        if not number:
            raise Failed("Xvfb did not start")
        yield {"DISPLAY": f":{number}", "QT_QPA_PLATFORM": "xcb", "WAYLAND_DISPLAY": ""}
    finally:
        server.terminate()
        server.wait()


def lint(python: Path) -> None:
    """Style and format."""
    call([python, "-m", "ruff", "check", "."])
    call([python, "-m", "ruff", "format", "--check", "."])


def types(python: Path) -> None:
    """Strict types of the package, its tests and its scripts."""
    call([python, "-m", "mypy"])


def unit(python: Path) -> None:
    """All tests that need no display, on two processes."""
    pytest(
        python, ["-n", "2", "--dist", "loadgroup", "-m", "not x11 and not packaged"], {"QT_QPA_PLATFORM": "offscreen"}
    )


def quick(python: Path) -> None:
    """The unit tests that are not marked slow, two cases of each, on two processes."""
    few = {"QT_QPA_PLATFORM": "offscreen", "KVPLANNER_TEST_CASES": QUICK_CASES}
    pytest(python, ["-n", "2", "--dist", "loadgroup", "-m", "not x11 and not packaged and not slow"], few)


def x11(python: Path) -> None:
    """Tests that drive a real window, one after another on one X server."""
    of_windows = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.x11" in path.read_text("utf-8")]
    with virtual_display() as env:  # the others are not even collected for six tests
        pytest(python, ["-m", "x11", *map(str, sorted(of_windows))], env)


def build(python: Path) -> None:
    """The application folder."""
    say(f"building {PACKAGED.relative_to(ROOT)}")
    call(
        [
            python, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN",
            "--distpath", "dist", "--workpath", "build/pyinstaller", "packaging/kvplanner.spec",
        ],
        # The same source gives the same bytes: sets are walked in one order, and files carry no time of the build.
        {"PYTHONHASHSEED": "1", "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", RELEASED)},
    )  # fmt: skip


def packaged(python: Path) -> None:
    """Tests of the built application, offscreen and on an X server."""
    if not PACKAGED.exists():
        build(python)
    with virtual_display() as env:
        display = {"KVPLANNER_PACKAGED": str(PACKAGED), "DISPLAY": env["DISPLAY"], "QT_QPA_PLATFORM": ""}
        pytest(python, ["tests/packaged", "-m", "packaged", "-rP"], display)


def pytest(python: Path, arguments: Sequence[str], env: dict[str, str]) -> None:
    """Runs a part of the tests, with byte code kept: else each process rewrites every assertion again."""
    given = {"PYTHONDONTWRITEBYTECODE": "", **env}
    call([python, "-m", "pytest", "-p", "no:cacheprovider", "--durations=8", "--durations-min=2", *arguments], given)


STEPS: dict[str, Callable[[Path], None]] = {
    "lint": lint,
    "types": types,
    "unit": unit,
    "x11": x11,
    "build": build,
    "packaged": packaged,
}


def steps_of(arguments: Sequence[str]) -> dict[str, Callable[[Path], None]]:
    """All steps, those named after --only, or those of daily work. Raises Failed for anything else."""
    match list(arguments):
        case []:
            return STEPS
        case ["--quick"]:
            return {"lint": lint, "types": types, "quick": quick}
        case ["--only", *names] if names and set(names) <= set(STEPS):
            return {name: STEPS[name] for name in names}
    raise Failed(f"cannot test {' '.join(arguments)}: --quick, or --only with some of {', '.join(STEPS)}")


def test(arguments: Sequence[str]) -> int:
    """Runs the steps and says how each went."""
    chosen = steps_of(arguments)
    apt_install([*missing_tools(), *(qt_packages() if LINUX else ())], "Testing")
    try:
        apt_install(missing(WANTED_TOOLS), "All tests")
    except Failed as error:
        say(f"some tests are left out: {error}")
    python = prepare("test,package")
    outcome: dict[str, str] = {}
    for step, work in chosen.items():
        say(f"{step}: {(work.__doc__ or '').strip()}")
        start = time.monotonic()
        try:
            work(python)
            outcome[step] = "passed"
        except Failed as error:
            outcome[step] = f"FAILED: {error}"
        outcome[step] = f"{time.monotonic() - start:6.1f} s  {outcome[step]}"
    say("summary")
    for step, text in outcome.items():
        say(f"{step:<9} {text}")
    return int(any("FAILED" in text for text in outcome.values()))


def main() -> int:
    """Returns the exit status of what was run, 3 when the machine lacks something."""
    command, arguments = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    if sys.version_info < (3, 11):  # noqa: UP036  # this script runs on whatever python3 the machine has
        print("kvplanner needs Python 3.11 or newer; call this script with such a python3", file=sys.stderr)
        return 3
    try:
        if command == "run":
            return run(arguments)
        if command == "test":
            return test(arguments)
        if command == "build":
            apt_install([*missing_tools(), *(qt_packages() if LINUX else ())], "Building")
            build(prepare("test,package"))
            return 0
    except Failed as error:
        print(f"dev.py: {error}", file=sys.stderr)
        return 3
    print((__doc__ or "").strip(), file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())
