"""The desktop's files name the same application, file type and version as the program does."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvplanner import __version__
from kvplanner.cli.main import COMMANDS, gui_usage
from kvplanner.request.planfile import SUFFIX

LINUX = Path(__file__).parent.parent.parent / "packaging" / "linux"
APP_ID = "org.kvplanner.kvplanner"
MIME = "application/vnd.kvplanner.plan+json"
GGUF = "application/x-gguf"
sys.path[:0] = [str(LINUX), str(LINUX.parent)]


def test_desktop_entry() -> None:
    lines = (LINUX / "kvplanner.desktop").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "[Desktop Entry]"
    values = dict(line.split("=", 1) for line in lines[1:])
    assert values["Type"] == "Application"
    assert values["Exec"].endswith("%F")
    assert values["Icon"] == "kvplanner"
    assert values["MimeType"] == f"{MIME};{GGUF};"
    assert values["Categories"] == "Development;"


def test_file_type() -> None:
    tree = ElementTree.parse(LINUX / "kvplanner.xml")
    patterns = {
        kind.get("type"): [glob.get("pattern") for glob in kind.findall("{*}glob")]
        for kind in tree.findall("{*}mime-type")
    }
    assert patterns == {MIME: [f"*{SUFFIX}"], GGUF: ["*.gguf"]}


def test_metainfo() -> None:
    root = ElementTree.parse(LINUX / f"{APP_ID}.metainfo.xml").getroot()
    assert root.findtext("id") == APP_ID
    assert root.findtext("launchable") == "kvplanner.desktop"
    assert root.findtext("project_license") == "Apache-2.0"
    assert next(r.get("version") for r in root.iter("release")) == __version__
    assert {b.text for b in root.iter("binary")} == {"kvplanner", "kvplanner-gui"}
    assert [m.text for m in root.iter("mediatype")] == [MIME, GGUF]


def test_the_icon_is_a_picture_that_scales() -> None:
    root = ElementTree.parse(LINUX.parent.parent / "resources" / "icons" / "kvplanner.svg").getroot()
    assert root.tag.endswith("svg")
    assert root.get("viewBox") == "0 0 128 128"


def test_the_manual_and_the_completions_know_every_flag() -> None:
    import pages

    manual, shells = (
        pages.man_page("2026-11-29"),
        (pages.bash_completion(), pages.zsh_completion(), pages.fish_completion()),
    )
    for command in COMMANDS:
        flags = [flag for flag, _, _ in pages.of_command(command)]
        assert len(flags) >= 2
        assert f".SS kvplanner {command}" in manual
        for flag in flags:
            assert flag.replace("-", "\\-") in manual
            assert all(flag in text or (flag[2:] in text) for text in shells), flag
    assert "\\- " in manual


def test_the_window_takes_the_flags_that_its_help_names() -> None:
    import pages

    named = set(re.findall(r"(?<![\w-])--[a-z-]+(?= |\n|$)", gui_usage())) - {"--help"}
    assert {flag for flag, _, _ in pages.of_command("gui")} == named


# What is on the command line, and what completes it.
OFFERED = {
    "kvplanner plan --me": ["--measured"],
    "kvplanner plan gpt-oss-120b-": ["gpt-oss-120b-essential"],
    "kvplanner plan QWEN3-8B-AW": ["Qwen3-8B-AWQ"],
    "kvplanner plan x --solve u": ["users", "utilisation"],
    "kvplanner plan x --gpu rtx-4090-d": ["rtx-4090-d"],
    "kvplanner data ''": ["list", "add", "remove"],
}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_read_them(shell: str, tmp_path: Path) -> None:
    import pages

    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    file = tmp_path / "_kvplanner"
    file.write_text(pages.zsh_completion() if shell == "zsh" else pages.fish_completion())
    if shell == "zsh":
        subprocess.run(["zsh", "-n", str(file)], check=True)
        return
    for words, offered in OFFERED.items():
        line = f"source {file}; complete -C '{words.removesuffix(chr(39) * 2)}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", line], capture_output=True, text=True, cwd=tmp_path, check=True
        )
        assert {*offered} <= {answer.partition("\t")[0] for answer in done.stdout.splitlines()}, words


def test_the_shells_and_man_read_them(tmp_path: Path) -> None:
    import pages

    (tmp_path / "kvplanner").write_text(pages.bash_completion())
    subprocess.run(["bash", "-n", str(tmp_path / "kvplanner")], check=True)
    for words, offered in OFFERED.items():
        line = f"source kvplanner; COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}; _kvplanner; "
        line += 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.split() == offered, words
    (tmp_path / "kvplanner.1").write_text(pages.man_page("2026-11-29"))
    if shutil.which("man") and shutil.which("groff"):
        done = subprocess.run(
            ["man", "--warnings", "-l", "kvplanner.1"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert not done.stderr
        assert "KVPLANNER(1)" in done.stdout


def test_the_bill_of_materials_names_what_is_installed() -> None:
    import contents

    document = json.loads(contents.sbom("1.2.3", "3.11.7"))
    named = {part["name"].lower().replace("_", "-"): part for part in document["components"]}
    locked = (LINUX.parent / "locked-run.txt").read_text(encoding="utf-8")
    for name, version in re.findall(r"^([a-z0-9-]+)==([^ ;\\\\]+)", locked, re.MULTILINE):
        if name in ("setuptools", "hf-xet", "pycparser"):  # they install, or are left out
            continue
        assert named[name]["version"] == version
        assert named[name]["licenses"][0]["license"]["name"], name
    assert contents.sbom("1.2.3", "3.11.7") == json.dumps(document, indent=1) + "\n"


def test_every_licence_comes_along() -> None:
    import contents

    text = contents.licences("OWN LICENCE")
    assert text.startswith("OWN LICENCE")
    for word in ("LGPL", "PySide6", "numpy", "Unicode-3.0"):
        assert word in text


def test_the_systems_libraries_are_named_with_their_terms(tmp_path: Path) -> None:
    """The one that this Python is linked to stands for those that an application brings along."""
    import contents
    import system_libraries

    linked = subprocess.run(["ldd", sys.executable], capture_output=True, text=True, check=True).stdout
    names = [n for n in re.findall(r"^\s*(lib[\w.+-]+\.so[.\d]*) => /", linked, re.MULTILINE) if "libpython" not in n]
    inner = tmp_path / "app" / "_internal"
    inner.mkdir(parents=True)
    for name in names:
        (inner / name).write_bytes(name.encode())
    (inner / "libpython3.11.so.1.0").write_bytes(b"counts as Python's own")
    (inner / "libQt6Core.so.6").symlink_to("PySide6/libQt6Core.so.6")
    found = system_libraries.system_libraries(tmp_path / "app")
    assert [one.name for one in found] == sorted(names)
    document = json.loads(contents.sbom("1.2.3", "3.11.7", found))
    parts = {part["name"]: part for part in document["components"]}
    assert {"Qt", "ICU", "CPython"} <= set(parts)
    for one in found:
        assert parts[one.name]["hashes"] == [
            {"alg": "SHA-256", "content": hashlib.sha256(one.name.encode()).hexdigest()}
        ]
        if shutil.which("dpkg"):
            assert one.package, one.name
            assert one.version, one.name
            assert parts[one.name]["purl"].startswith("pkg:deb/")
            assert one.text.strip()
            assert one.text in contents.licences("OWN LICENCE", found)


def test_checksums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    import contents

    (tmp_path / "a.deb").write_bytes(b"x")
    (tmp_path / "gone.whl").write_bytes(b"older")
    contents.add_checksums(tmp_path, [tmp_path / "gone.whl"])
    (tmp_path / "gone.whl").unlink()
    contents.add_checksums(tmp_path, [tmp_path / "a.deb"])
    (tmp_path / "b.whl").write_bytes(b"a wheel")
    contents.add_checksums(tmp_path, [tmp_path / "b.whl"])
    assert len((tmp_path / "SHA256SUMS").read_text().splitlines()) == 2, "one for each that is there"
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.slow
def test_icus_data_are_trimmed_to_english_and_sort_as_before(tmp_path: Path) -> None:
    import trim_icu

    if shutil.which("icupkg") is None or shutil.which("gcc") is None:
        pytest.skip("needs icupkg and gcc")
    import PySide6

    (whole,) = (Path(PySide6.__file__).parent / "Qt" / "lib").glob("libicudata.so.*")
    shutil.copy(whole, tmp_path / whole.name)
    assert trim_icu.trim(tmp_path / whole.name) > 20e6
    command = [sys.executable, "-c", SORTS]
    told = [
        subprocess.run(command, env={"LD_LIBRARY_PATH": str(folder)}, capture_output=True, text=True, check=True)
        for folder in (whole.parent, tmp_path)
    ]
    assert told[0].stdout == told[1].stdout
    assert not told[1].stderr


SORTS = """
from functools import cmp_to_key
from PySide6.QtCore import QCollator, QLocale, QTimeZone
for name in ("en_GB", "en_US", "de_DE", "C"):
    collator = QCollator(QLocale(name))
    collator.setNumericMode(name != "C")
    print(sorted(["b10", "b2", "Z", "a", "ä", "é", "f", "A"], key=cmp_to_key(collator.compare)))
print(len(QTimeZone.availableTimeZoneIds()), QLocale("de").toUpper("straße"))
"""
