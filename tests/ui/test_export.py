from __future__ import annotations

import csv
import io
import os
import stat
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PySide6.QtCore import QByteArray
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

from kvplanner.errors import BadInput
from kvplanner.ui import export
from kvplanner.ui.palette import THEMES, ThemeName, channels
from tests import sample_plans
from tests.ui.views_kit import apart, widened

pytestmark = pytest.mark.usefixtures("qapp")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", sample_plans.ALL)
@pytest.mark.parametrize("theme", THEMES)
def test_png(tmp_path: Path, name: str, theme: ThemeName) -> None:
    path = tmp_path / "plan.png"
    export.export_png(sample_plans.ALL[name](), path, theme=theme, scale=2)
    image = QImage(str(path))
    assert image.width() == 2 * export.WIDTH
    assert image.height() > 300
    assert image.pixelColor(4, 4).name() == THEMES[theme].panel
    assert "Llama" in image.text("Title")


@pytest.mark.parametrize("scale", [0, 0.1, 9, -1, float("nan")])
def test_a_senseless_scale_is_refused(tmp_path: Path, scale: float) -> None:
    with pytest.raises(BadInput, match="scale"):
        export.export_png(sample_plans.fits(), tmp_path / "plan.png", scale=scale)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sample_plans.ALL)
def test_svg_is_xml_with_the_texts(tmp_path: Path, name: str) -> None:
    plan = sample_plans.ALL[name]()
    path = tmp_path / "plan.svg"
    export.export_svg(plan, path)
    root = ET.fromstring(path.read_bytes())
    assert root.tag == f"{SVG}svg"
    title = root.find(f"{SVG}title")
    assert title is not None
    assert plan.request.model.id in (title.text or "")
    texts = {(t.text or "").strip() for t in root.iter(f"{SVG}text")}
    assert any("GiB = 2³⁰ bytes" in t for t in texts)
    if name == "fits":
        assert {"weights 14.96", "KV cache 55.60", "79.65 GiB", "GPU 0", "Weights", plan.summary} <= texts
    assert root.find(f".//{SVG}image") is None  # vectors only


def test_svg_draws_the_segments(tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    export.export_svg(sample_plans.fits(), path)
    renderer = QSvgRenderer(QByteArray(path.read_bytes()))
    image = QImage(1100, 400, QImage.Format.Format_ARGB32)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    wanted = channels(THEMES["light"].segments["weights"].fill)
    pixels = (image.pixelColor(x, y) for x in range(120, 400, 10) for y in range(0, 400, 4))
    assert any((p.red(), p.green(), p.blue()) == wanted for p in pixels)


@pytest.mark.parametrize("name", sample_plans.ALL)
def test_pdf(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plan.pdf"
    export.export_pdf(sample_plans.ALL[name](), path, unit="GB", theme="dark")
    data = path.read_bytes()
    assert data.startswith(b"%PDF-1.")
    assert data.rstrip().endswith(b"%%EOF")
    assert data.count(b"/Type /Page\n") + data.count(b"/Type /Page ") <= 1
    assert b"/MediaBox [0 0 825" in data


def test_csv_is_the_breakdown(tmp_path: Path) -> None:
    plan = sample_plans.other_programs()
    path = tmp_path / "plan.csv"
    export.export_csv(plan, path, unit="GB")
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert len(rows) == sum(len(d.segments) for d in plan.devices)
    for device in plan.devices:
        mine = [r for r in rows if r["device"] == f"GPU {device.device.index}"]
        assert sum(int(r["bytes"]) for r in mine) == device.total_bytes
        assert sum(float(r["share"]) for r in mine) == pytest.approx(1, abs=0.001)
    weights = next(r for r in rows if r["segment"] == "weights")
    assert float(weights["GB"]) == pytest.approx(int(weights["bytes"]) / 1e9, abs=0.001)
    assert int(weights["low_bytes"]) <= int(weights["bytes"]) <= int(weights["high_bytes"])


def test_the_picture_names_everything() -> None:
    plan = sample_plans.too_big()
    picture = export.compose(plan, "GB", export._type())
    assert picture.title == "meta-llama/Llama-3.3-70B-Instruct on NVIDIA H100 80GB HBM3 · vllm 0.33.0"
    assert " ".join(picture.headline) == plan.summary
    assert "GB = 10⁹ bytes" in picture.foot
    kinds = [item.kind for item in picture.legend]
    assert set(kinds) == {s.kind for s in plan.devices[0].segments} | {None}
    assert picture.legend[-1].text == "Does not fit"
    assert all(export.MARGIN <= i.x < picture.width - export.MARGIN for i in picture.legend)
    assert picture.foot_y < picture.height


def test_sixteen_bars_fit_in_their_picture() -> None:
    plan = apart(widened(sample_plans.eight_gpus(), 16), 1)
    picture = export.compose(plan, "GiB", export._type())
    assert len(picture.bars.rows) == 16
    assert picture.bars_y + picture.bars.height - 40 < min(item.y for item in picture.legend)
    assert picture.legend[-1].y < picture.foot_y


def test_long_words_wrap_and_end_in_time() -> None:
    type_ = export._type()
    lines = export.wrapped("short " + "x" * 500 + " end", 200, type_, "text")
    assert all(type_.width(line, "text") <= 200 for line in lines)
    assert lines[0] == "short"
    assert lines[-1] == "end"
    assert export.wrapped("", 100, type_, "text") == ()


def test_an_existing_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    path.write_text("old")
    export.export_svg(sample_plans.fits(), path)
    assert path.read_bytes().startswith(b"<?xml")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [p.name for p in tmp_path.iterdir()] == ["plan.svg"]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf", "csv"])
def test_a_folder_that_is_not_there_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "missing" / f"plan.{kind}"
    write = getattr(export, f"export_{kind}")
    with pytest.raises(BadInput) as caught:
        write(sample_plans.fits(), path)
    assert str(path) in caught.value.where
    assert caught.value.remedy


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BadInput, match="no space left"):
        export.export_csv(sample_plans.fits(), path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.csv"]
