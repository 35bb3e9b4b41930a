"""Reports to hand on: whole in themselves, valid, quiet on the network, and without what is private."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kvplanner.catalog import gpus, models
from kvplanner.engine.plan import Plan
from kvplanner.engine.registry import engine
from kvplanner.engine.request import Load, PlanRequest
from kvplanner.report.brief import brief
from kvplanner.report.facts import rows
from kvplanner.report.html import html
from kvplanner.report.private import hider
from kvplanner.report.sheet import sheet
from kvplanner.solve.others import others
from kvplanner.solve.remedies import remedies
from tests.patience import LONG_S

_VOID = {"meta", "br"}
# What must stand directly within what (the HTML standard's content models, as far as the page uses them).
_WITHIN = {
    "head": {"html"}, "body": {"html"}, "meta": {"head"}, "title": {"head"}, "style": {"head"}, "main": {"body"},
    "footer": {"body"}, "li": {"ul", "ol"}, "tr": {"thead", "tbody"}, "td": {"tr"}, "th": {"tr"},
    "thead": {"table"}, "tbody": {"table"}, "dt": {"dl"}, "dd": {"dl"}, "summary": {"details"},
}  # fmt: skip
_PHRASING = {"span", "strong", "code", "i", "b", "br"}


class Checker(HTMLParser):
    """Follows the nesting and notes what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        parent = self.open[-1] if self.open else ""
        if parent not in _WITHIN.get(tag, {parent}):
            self.wrong.append(f"{tag} in {parent}")
        if parent in {"p", "h1", "h2", "h3", "span", "code", "strong", "pre", "summary"} and tag not in _PHRASING:
            self.wrong.append(f"{tag} in {parent}")
        names = [name for name, _ in attrs]
        self.wrong += [f"{tag} {name}" for name in names if name in ("src", "href", "srcset", "action", "onclick")]
        if len(set(names)) < len(names) or tag in ("script", "link", "img", "iframe", "object"):
            self.wrong.append(f"{tag} {names}")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"/{tag}")


def complaints(page: str) -> list[str]:
    """What HTML Tidy has against a page; empty elements are drawn, and no mistake."""
    tidy = shutil.which("tidy")
    if tidy is None:
        pytest.skip("tidy is not installed: packaging/dev.py installs it")
    ran = subprocess.run(
        [tidy, "-quiet", "-errors"], input=page, capture_output=True, text=True, timeout=LONG_S, check=False
    )
    return [line for line in ran.stderr.splitlines() if "trimming empty" not in line]


def planned(model: str, gpu: str, **fields: Any) -> Plan:
    request = PlanRequest(models.load(models.find(model).id), gpus.machine(gpu))._replace(**fields)
    return engine(request.engine).plan(request)


PLANS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "fits": ("Llama-3.1-8B-Instruct", "H100", {"load": Load(8, 1500, 500)}),
    "fails": ("Qwen3-32B", "2xRTX 4090", {}),
    "mixed": ("Qwen3-32B", "RTX 4090,RTX 3090", {"options": {"max_model_len": 4096}}),
    "other engine": ("Qwen3-8B", "RTX 3090", {"engine": "llamacpp", "weight_format": "GGUF Q4_K_M"}),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_page_is_valid_whole_and_quiet(name: str) -> None:
    model, gpu, fields = PLANS[name]
    plan = planned(model, gpu, **fields)
    made = sheet(plan, remedies(plan.request, plan, others)[:2])
    page = html(made, when="2026-01-02")
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.wrong == []
    assert checker.open == []
    assert complaints(page) == []
    assert page.startswith("<!DOCTYPE html>\n<html lang=")
    assert "default-src 'none'" in page
    assert not re.search(r"url\(|@import|<script|https?://(?![^<]*</td>)", page)
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page
    for group in made.groups:
        for row in group.rows:
            assert f'<td class="n">{row.size}</td>' in page, "every figure of the table"
        assert sum(part.share for part in group.bar) == pytest.approx(1)
    assert "2026-01-02" in page


def test_the_bar_is_the_table() -> None:
    plan = planned("Llama-3.1-8B-Instruct", "H100")
    group = sheet(plan).groups[0]
    by_kind = {part.kind: part.share for part in group.bar}
    device = plan.devices[0]
    for segment in device.segments:
        assert by_kind.get(segment.kind, 0.0) == pytest.approx(segment.bytes / device.total_bytes, abs=0.002)
    assert group.bracket is not None
    assert device.budget is not None
    assert group.bracket.width == pytest.approx(device.budget.value / device.total_bytes, abs=1e-6)


def test_names_cannot_break_out() -> None:
    plan = planned("Llama-3.1-8B-Instruct", "H100")
    evil = "</title><script>alert(1)</script>|`x`"
    model = plan.request.model._replace(id=evil, source_kind="folder")
    plan = plan._replace(request=plan.request._replace(model=model))
    made = sheet(plan, private=True)
    page = html(made)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    text = brief(made)
    assert "<script" not in text.split("```")[0]
    assert text.count("```bash") + text.count("````bash") == 1


def test_a_path_turns_no_line_of_a_report_round() -> None:
    plan = planned("Llama-3.1-8B-Instruct", "H100")
    made = sheet(plan, path="/models/a\x1b[2J\u202eb\u2066", private=True)
    for text in (html(made), brief(made)):
        assert "/models/a␛" in text
        assert not any(c in text for c in "\x1b\u202e\u2066")


def test_what_is_private_is_left_out_unless_wanted(tmp_path: Path) -> None:
    plan = planned("Llama-3.1-8B-Instruct", "H100")
    folder = tmp_path / "acme-secret" / "codename-kestrel"
    model = plan.request.model._replace(id="codename-kestrel", source_kind="folder", source_detail=str(folder))
    plan = plan._replace(request=plan.request._replace(model=model))
    kept = html(sheet(plan, path=str(folder), private=True)) + brief(sheet(plan, path=str(folder), private=True))
    assert str(folder) in kept
    for text in (html(sheet(plan, path=str(folder))), brief(sheet(plan, path=str(folder)))):
        for secret in ("acme-secret", "kestrel", str(tmp_path)):
            assert secret not in text
        assert "vllm serve MODEL" in text
        assert "LlamaForCausalLM, 8.03 B parameters" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("config.json of /home/jo/models/x", "config.json of x"),
        ("~/mine/secret/m.gguf: header", "m.gguf: header"),
        (r"C:\Users\jo\models\m.gguf", "m.gguf"),
        ("https://github.com/org/name/pull/99", "https://github.com/org/name/pull/99"),
        ("Qwen/Qwen3-32B at 1/2 of 3/4", "Qwen/Qwen3-32B at 1/2 of 3/4"),
        ("GPU-1d3f9a2b-0000-1111-2222-333344445555 is busy", "a GPU is busy"),
        ("github:org/name src/config.json", "github:org/name src/config.json"),
    ],
)
def test_paths_and_identities(text: str, shown: str) -> None:
    assert hider()(text) == shown


def test_the_short_one_fits_a_screen_and_has_every_size() -> None:
    plan = planned("Qwen3-32B", "2xRTX 4090")
    text = brief(sheet(plan, remedies(plan.request, plan, others)))
    assert len(text.splitlines()) < 60
    for row in rows(plan, 0):
        assert f"| {row.title} | {row.size} | {row.span} | {row.basis} |" in text
    assert "Ways to make it fit" in text
