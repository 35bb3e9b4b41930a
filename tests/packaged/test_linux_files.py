"""The desktop's files name the same application, file type and version as the program does."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from kvplanner import __version__
from kvplanner.request.planfile import SUFFIX

LINUX = Path(__file__).parent.parent.parent / "packaging" / "linux"
APP_ID = "org.kvplanner.kvplanner"
MIME = "application/vnd.kvplanner.plan+json"


def test_desktop_entry() -> None:
    lines = (LINUX / "kvplanner.desktop").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "[Desktop Entry]"
    values = dict(line.split("=", 1) for line in lines[1:])
    assert values["Type"] == "Application"
    assert values["Exec"].endswith("%F")
    assert values["Icon"] == "kvplanner"
    assert values["MimeType"] == f"{MIME};"
    assert values["Categories"] == "Development;"


def test_file_type() -> None:
    tree = ElementTree.parse(LINUX / "kvplanner.xml")
    kind = tree.find("{*}mime-type")
    assert kind is not None
    assert kind.get("type") == MIME
    glob = kind.find("{*}glob")
    assert glob is not None
    assert glob.get("pattern") == f"*{SUFFIX}"


def test_metainfo() -> None:
    root = ElementTree.parse(LINUX / f"{APP_ID}.metainfo.xml").getroot()
    assert root.findtext("id") == APP_ID
    assert root.findtext("launchable") == "kvplanner.desktop"
    assert root.findtext("project_license") == "Apache-2.0"
    assert next(r.get("version") for r in root.iter("release")) == __version__
    assert {b.text for b in root.iter("binary")} == {"kvplanner", "kvplanner-gui"}
    assert [m.text for m in root.iter("mediatype")] == [MIME]


def test_the_icon_is_a_picture_that_scales() -> None:
    root = ElementTree.parse(LINUX.parent.parent / "resources" / "icons" / "kvplanner.svg").getroot()
    assert root.tag.endswith("svg")
    assert root.get("viewBox") == "0 0 128 128"
