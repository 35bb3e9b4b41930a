from __future__ import annotations

import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PySide6.QtCore import QByteArray
from PySide6.QtGui import QFontMetricsF, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

from kvplanner.catalog import gpus, models
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput
from kvplanner.report.sentences import summary
from kvplanner.report.verdict import verdict
from kvplanner.report.words import Unit
from kvplanner.sized_text import sizes_in
from kvplanner.ui.export import pictures as export
from kvplanner.ui.theme.ink import Type
from kvplanner.ui.theme.palette import THEMES, ThemeName, channels
from tests import sample_plans
from tests.engine import verdicts
from tests.ui.kit import apart, widened

pytestmark = pytest.mark.usefixtures("qapp")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_plans.ALL)
@pytest.mark.parametrize("theme", THEMES)
def test_png(tmp_path: Path, name: str, theme: ThemeName) -> None:
    path = tmp_path / "plan.png"
    path.write_bytes(export.png(sample_plans.ALL[name](), theme=theme, scale=2))
    image = QImage(str(path))
    assert image.width() == 2 * export.WIDTH
    assert image.height() > 300
    assert image.pixelColor(4, 4).name() == THEMES[theme].panel
    assert "Llama" in image.text("Title")


@pytest.mark.parametrize("scale", [0, 0.1, 9, -1, float("nan")])
def test_a_senseless_scale_is_refused(scale: float) -> None:
    with pytest.raises(BadInput, match="scale"):
        export.png(sample_plans.fits(), scale=scale)


@pytest.mark.parametrize("name", sample_plans.ALL)
def test_svg_is_xml_with_the_texts(tmp_path: Path, name: str) -> None:
    plan = sample_plans.ALL[name]()
    path = tmp_path / "plan.svg"
    path.write_bytes(export.svg(plan))
    root = ET.fromstring(path.read_bytes())
    assert root.tag == f"{SVG}svg"
    title = root.find(f"{SVG}title")
    assert title is not None
    assert plan.request.model.id in (title.text or "")
    texts = {(t.text or "").strip() for t in root.iter(f"{SVG}text")}
    assert any("GiB = 2³⁰ bytes" in t for t in texts)
    if name == "fits":
        assert {"weights 14.96", "KV cache 55.60", "79.65 GiB", "GPU 0", "Weights", summary(plan)} <= texts
    assert root.find(f".//{SVG}image") is None  # vectors only


def test_svg_draws_the_segments(tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    path.write_bytes(export.svg(sample_plans.fits()))
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
    path.write_bytes(export.pdf(sample_plans.ALL[name](), unit="GB", theme="dark"))
    data = path.read_bytes()
    assert data.startswith(b"%PDF-1.")
    assert data.rstrip().endswith(b"%%EOF")
    assert data.count(b"/Type /Page\n") + data.count(b"/Type /Page ") <= 1
    assert b"/MediaBox [0 0 825" in data


def test_the_picture_names_everything() -> None:
    plan = sample_plans.too_big()
    picture = export.compose(plan, "GB", Type(export.base_font()))
    assert picture.title == "meta-llama/Llama-3.3-70B-Instruct on NVIDIA H100 80GB HBM3 · vLLM 0.33.0"
    assert " ".join(picture.headline) == sizes_in(summary(plan), "GB")
    assert "GB = 10⁹ bytes" in picture.foot
    assert all(export.MARGIN <= i.x < picture.width - export.MARGIN for i in picture.legend)
    assert picture.foot_y < picture.height


def test_the_picture_keeps_what_is_warned_of() -> None:
    """Whoever is handed a picture sees the warnings that stood beside the verdict."""
    plan = sample_plans.fits()
    warned = tuple(f"Warning {number}: {'of what is assumed and may be otherwise, ' * number}" for number in range(6))
    plan = plan._replace(warnings=warned)
    type_ = Type(export.base_font())
    told = verdict(plan, "GiB")
    picture = export.compose(plan, "GiB", type_)
    said = " ".join(note.text for note in picture.notes)
    assert all(note.strip() in said for note in told.notes[: export.NOTES_SHOWN])
    assert "2 more notes in the report" in said
    assert sum(note.first for note in picture.notes) == export.NOTES_SHOWN + 1
    svg = export.svg(plan).decode()
    assert "▲" in svg
    room = export.WIDTH - 2 * export.MARGIN - export.ICON - 14 - export.MARK
    assert all(type_.width(note.text, "text") <= room for note in picture.notes)


def test_a_picture_of_a_what_if_says_so_in_full() -> None:
    plan = sample_plans.eight_gpus()
    draft = plan.request.model._replace(id="someone/" + "small-" * 12 + "model")
    request = plan.request._replace(weight_format="AWQ 4-bit", draft=draft)
    type_ = Type(export.base_font())
    picture = export.compose(plan._replace(request=request), "GiB", type_)
    assert f", weights as if stored in AWQ 4-bit, with draft model {draft.id} on 8 × NVIDIA" in picture.title
    assert " ".join(picture.title_lines) == picture.title
    assert len(picture.title_lines) == 2
    plain = export.compose(plan, "GiB", type_)
    assert plain.title_lines == (plain.title,)
    assert picture.height == plain.height + export.LINE
    assert picture.bars_y == plain.bars_y + export.LINE


def test_a_mixed_machine_is_named_by_what_is_there() -> None:
    picture = export.compose(sample_plans.mixed(), "GiB", Type(export.base_font()))
    assert " on NVIDIA GeForce RTX 4090 + NVIDIA GeForce RTX 3090 · vLLM 0.33.0" in picture.title
    eight = export.compose(sample_plans.eight_gpus(), "GiB", Type(export.base_font()))
    assert " on 8 × NVIDIA H100 80GB HBM3 · " in eight.title


@pytest.mark.parametrize("name", sample_plans.ALL)
def test_the_legend_is_of_what_is_drawn(name: str) -> None:
    plan = sample_plans.ALL[name]()
    picture = export.compose(plan, "GiB", Type(export.base_font()))
    told = [item.kind for item in picture.legend]
    drawn = {c.kind for row in picture.bars.rows for c in row.cells if c.rect.w >= 2}
    assert set(told) - {None} == (set() if plan.fits is None else drawn)
    assert (None in told) == (plan.fits is False)
    assert ("whiskers" in picture.foot) == any(row.whiskers for row in picture.bars.rows)
    if name == "too_big":
        assert [item.text for item in picture.legend] == [
            "Driver reserved", "Runtime outside budget", "Weights", "Does not fit",
        ]  # fmt: skip


def test_sixteen_bars_fit_in_their_picture() -> None:
    plan = apart(widened(sample_plans.eight_gpus(), 16), 1)
    picture = export.compose(plan, "GiB", Type(export.base_font()))
    assert len(picture.bars.rows) == 16
    assert picture.bars_y + picture.bars.height - 40 < min(item.y for item in picture.legend)
    assert picture.legend[-1].y < picture.foot_y


def test_long_words_wrap_and_end_in_time() -> None:
    def measure(words: str) -> float:
        return 7.0 * len(words)

    lines = export.wrapped("short " + "x" * 500 + " end", 200, measure)
    assert all(measure(line) <= 200 for line in lines)
    assert lines[0] == "short"
    assert lines[-1] == "end"
    assert export.wrapped("", 100, measure) == ()
    assert export.wrapped("needs about 21.64 GiB", 17 * 7, measure) == ("needs about", "21.64 GiB")
    sentence = "one two three four five six seven eight nine ten eleven"
    even = export.wrapped(sentence, 48 * 7, measure, even=True)
    assert len(even) == 2
    assert len(even[1]) > 20
    assert " ".join(even) == sentence


GPUS = [("RTX 4090", "kv_cache_too_small"), ("12GB", "weights"), ("H100", None)]


@pytest.mark.parametrize(("gpu", "stage"), GPUS)
def test_a_picture_in_gb_has_no_gib(tmp_path: Path, gpu: str, stage: str | None) -> None:
    plan = engine("vllm").plan(PlanRequest(models.load("meta-llama/Llama-3.1-8B-Instruct"), gpus.machine(gpu)))
    assert plan.stage == stage
    path = tmp_path / "plan.svg"
    path.write_bytes(export.svg(plan, unit="GB"))
    texts = [t.text or "" for t in ET.fromstring(path.read_bytes()).iter(f"{SVG}text")]
    assert not [t for t in texts if "GiB" in t or "MiB" in t]
    assert any(" GB" in t for t in texts)
    if stage == "kv_cache_too_small":
        assert any("17.18 GB" in t for t in texts)


@pytest.mark.parametrize("unit", ["GiB", "GB"])
def test_no_line_of_a_picture_is_wider_than_its_room(unit: Unit) -> None:
    plan = verdicts.again(
        sample_plans.too_big(),
        verdict=verdicts.fails("weights", 85 << 30, text="the given KV cache lacks {missing} " * 12),
    )
    type_ = Type(export.base_font())
    picture = export.compose(plan, unit, type_)
    room = export.WIDTH - 2 * export.MARGIN - export.ICON - 14
    large = QFontMetricsF(export._headline_font(type_))
    assert len(picture.headline) > 1
    assert all(large.horizontalAdvance(line) <= room for line in picture.headline)
    assert all(type_.width(line, "text") <= room for line in picture.details)


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_pictures_drawn_on_another_thread_are_the_same(scale: float) -> None:
    plan = sample_plans.too_big()
    font = export.base_font()
    made: dict[str, bytes] = {}

    def work() -> None:
        made["png"] = export.png(plan, scale=scale, font=font)
        made["svg"] = export.svg(plan, font=font)
        made["pdf"] = export.pdf(plan, font=font)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert made["svg"] == export.svg(plan, font=font)
    assert len(made["pdf"]) == pytest.approx(len(export.pdf(plan, font=font)), abs=200)  # it tells the time
    one, other = QImage.fromData(made["png"]), QImage.fromData(export.png(plan, scale=scale, font=font))
    assert one.size() == other.size()
    if scale != 1:  # at 1 the main thread tiles patterns
        assert one == other
