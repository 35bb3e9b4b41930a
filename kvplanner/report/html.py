"""A report as one page of HTML: whole in itself, for a phone, a desk and paper, light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from kvplanner.engine.segment import SegmentKind
from kvplanner.report.explain import Explanation
from kvplanner.report.inks import DARK_FILLS, LIGHT_FILLS
from kvplanner.report.sheet import Group, Sheet, kinds_in

_MARKS: Final = {"fits": "✓", "narrow": "!", "partly": "!", "fails": "✕", "unknown": "?", "stale": "!", "empty": "?"}
_TONES: Final = {"fits": "good", "narrow": "fair", "partly": "fair", "fails": "bad", "unknown": "fair"}
# As in the window: patterns tell kinds apart without colour. Ink over the fill, pixels apart.
_STRIPES: Final = {
    "driver_reserved": "repeating-linear-gradient(45deg,var(--ink) 0 1px,transparent 1px 5px),"
                       "repeating-linear-gradient(-45deg,var(--ink) 0 1px,transparent 1px 5px)",
    "other": "repeating-linear-gradient(-45deg,var(--ink) 0 1px,transparent 1px 6px)",
    "runtime_outside": "repeating-linear-gradient(90deg,var(--ink) 0 1px,transparent 1px 5px)",
    "runtime": "radial-gradient(var(--ink) 1px,transparent 1.5px)",
    "workspace": "repeating-linear-gradient(0deg,var(--ink) 0 1px,transparent 1px 5px)",
    "activations": "repeating-linear-gradient(45deg,var(--ink) 0 1px,transparent 1px 6px)",
    "cuda_graphs": "repeating-linear-gradient(0deg,var(--ink) 0 1px,transparent 1px 5px),"
                   "repeating-linear-gradient(90deg,var(--ink) 0 1px,transparent 1px 5px)",
    "kv_cache": "radial-gradient(var(--ink) 1px,transparent 1.5px)",
    "compute": "repeating-linear-gradient(45deg,var(--ink) 0 1px,transparent 1px 6px)",
    "output": "repeating-linear-gradient(0deg,var(--ink) 0 1px,transparent 1px 5px)",
    "fragmentation": "repeating-linear-gradient(-45deg,var(--ink) 0 1px,transparent 1px 6px)",
}  # fmt: skip
_STYLE: Final = """
:root{color-scheme:light dark;--ground:#fff;--panel:#f5f7f9;--text:#1b2026;--muted:#555e68;--line:#d5dbe1;
--good:#17753a;--fair:#8a5a00;--bad:#c21f2c;--on:#fff;--ink:#0003}
@media (prefers-color-scheme:dark){:root{--ground:#191d22;--panel:#22272d;--text:#e8edf2;--muted:#a7b1bc;--line:#3a424b;
--good:#4cc38a;--fair:#e5b552;--bad:#ff8078;--on:#0b0f14;--ink:#0005}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1.25rem 3rem;max-width:60rem;background:var(--ground);color:var(--text);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1,h2,h3,p,li,summary{overflow-wrap:anywhere}
h1{font-size:1rem;font-weight:400;color:var(--muted);margin:0 0 1rem}
h2{font-size:1.1rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.25rem}
h3{font-size:1rem;margin:1.25rem 0 .5rem}
p{margin:.35rem 0}
.verdict{display:flex;gap:.9rem;align-items:flex-start}
.mark{flex:none;width:2.2rem;height:2.2rem;border-radius:50%;display:grid;place-items:center;font-weight:700;
font-size:1.2rem;color:var(--on);background:var(--fair)}
.good{background:var(--good)}.fair{background:var(--fair)}.bad{background:var(--bad)}
.verdict strong{font-size:1.25rem;line-height:1.35;display:block}
.muted{color:var(--muted)}
.bar{position:relative;display:flex;height:2.4rem;border:1px solid var(--muted);overflow:hidden}
.bar span{flex:none;height:100%}
.ends{position:relative;height:1.35rem;font-size:.8rem;color:var(--muted)}
.ends span{position:absolute;white-space:nowrap}
.bracket{height:.4rem;border:1px solid var(--muted);border-bottom:0;margin-bottom:.15rem}
.label{font-size:.8rem;color:var(--muted);overflow-wrap:anywhere}
ul.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.4rem 0 .9rem;padding:0;font-size:.85rem}
.legend i{display:inline-block;width:.85rem;height:.85rem;margin-right:.35rem;vertical-align:-.1rem;
border:1px solid var(--muted)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.25rem .75rem .25rem 0;vertical-align:top;border-bottom:1px solid var(--line)}
td,th{font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--muted)}
td.n,th.n{text-align:right;white-space:nowrap}
tr.sum td{font-weight:600}
tr.missing td{font-weight:600;color:var(--bad)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:.5rem 0}
dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--panel);border:1px solid var(--line);border-radius:.4rem;padding:.75rem;overflow-x:auto;
font:.85rem/1.45 ui-monospace,"SF Mono",Consolas,"DejaVu Sans Mono",monospace}
pre.said{white-space:pre-wrap;overflow-wrap:anywhere}
code{font-family:ui-monospace,"SF Mono",Consolas,"DejaVu Sans Mono",monospace;font-size:.9em;overflow-wrap:anywhere}
details{border-bottom:1px solid var(--line);padding:.35rem 0}
summary{cursor:pointer}
ol.ways{padding-left:1.4rem}.ways li{margin:.5rem 0}
footer{margin-top:2.5rem;color:var(--muted);font-size:.85rem}
@media (max-width:40rem){.how,.share{display:none}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.4rem}
body{padding:1rem .9rem 2rem}}
@media print{:root{color-scheme:light;--ground:#fff;--panel:#f5f7f9;--text:#000;--muted:#444;--line:#bbb;--good:#17753a;
--fair:#8a5a00;--bad:#c21f2c;--on:#fff;--ink:#0003}body{max-width:none;padding:0;font-size:.8rem}
.bar,.mark,.legend i{print-color-adjust:exact;-webkit-print-color-adjust:exact}
h2,h3{break-after:avoid}tr,.way,details{break-inside:avoid}pre{white-space:pre-wrap}}
"""


def html(made: Sheet, *, when: str = "") -> str:
    """The page. when: the day that its foot names. It asks for nothing over a network, and runs no script."""
    return "\n".join(_page(made, when)) + "\n"


def _page(made: Sheet, when: str) -> Iterator[str]:
    told = made.verdict
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(made.title)}</title>\n<style>{_STYLE}{_fills(kinds_in(made))}</style>\n</head>"
    yield "<body>\n<main>"
    yield f"<h1>{escape(made.title)}</h1>"
    tone = _TONES.get(told.state, "fair")
    yield f'<div class="verdict"><span class="mark {tone}" aria-hidden="true">{_MARKS[told.state]}</span><div>'
    yield f"<strong>{escape(told.headline)}</strong>"
    yield from (f'<p class="muted">{escape(line)}</p>' for line in (*told.details, told.tightest_text) if line)
    yield "</div></div>"
    if told.engine_message:
        yield f'<pre class="said">{escape(told.engine_message)}</pre>'
    yield "<h2>Memory</h2>"
    for group in made.groups:
        yield from _group(group, made)
    yield from _pairs("What it holds and serves", made.figures)
    yield "<h2>What was planned</h2>"
    yield from (f"<p>{escape(line)}</p>" for line in made.about)
    yield from _table_of_options(made)
    if made.assumed:
        yield "<h2>What was assumed</h2>\n<ul>"
        yield from (f"<li>{escape(line)}</li>" for line in made.assumed)
        yield "</ul>"
    for form, command in made.commands:
        yield f"<h2>Command ({escape(form)})</h2>\n<pre>{escape(command)}</pre>"
    if made.ways:
        yield from _ways(made)
    yield from _explained(made)
    yield f"</main>\n<footer>{escape(f'{when}. ' if when else '')}{escape(made.foot)}</footer>\n</body>\n</html>"


def _fills(kinds: Sequence[SegmentKind]) -> str:
    """The fill and pattern of each kind."""
    rules = [".s-missing{background:repeating-linear-gradient(45deg,var(--bad) 0 2px,transparent 2px 7px)}"]
    for kind in kinds:
        if kind not in LIGHT_FILLS:
            continue
        rules.append(f".s-{kind}{{background-color:{LIGHT_FILLS[kind]}}}")
        if kind in _STRIPES:
            size = ";background-size:7px 7px" if _STRIPES[kind].startswith("radial") else ""
            rules.append(f".s-{kind}{{background-image:{_STRIPES[kind]}{size}}}")
    dark = "".join(f".s-{kind}{{background-color:{DARK_FILLS[kind]}}}" for kind in kinds if kind in DARK_FILLS)
    return f"{chr(10).join(rules)}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n"


def _group(group: Group, made: Sheet) -> Iterator[str]:
    roles = f" · {group.roles}" if group.roles else ""
    yield f"<section>\n<h3>{escape(group.title)}: {escape(group.gpu)}, {escape(group.size)}{escape(roles)}</h3>"
    if group.free:
        yield f'<p class="muted">{escape(group.free)}</p>'
    if group.bar:
        yield from _bar(group)
    yield '<div class="scroll"><table>\n<thead><tr><th scope="col">part</th>'
    yield f'<th scope="col" class="n">{made.unit}</th><th scope="col" class="n">range</th>'
    yield '<th scope="col" class="n share">share</th><th scope="col">basis</th>'
    yield '<th scope="col" class="how">how</th></tr></thead>'
    yield "<tbody>"
    for row in group.rows:
        kind = "" if row.kind else f' class="{"missing" if row.title == "missing" else "sum"}"'
        yield (
            f'<tr{kind}><td>{escape(row.title)}</td><td class="n">{escape(row.size)}</td>'
            f'<td class="n">{escape(row.span)}</td><td class="n share">{escape(row.share)}</td>'
            f'<td>{escape(row.basis)}</td><td class="how">{escape(row.formula)}</td></tr>'
        )
    yield "</tbody></table></div>\n</section>"


def _bar(group: Group) -> Iterator[str]:
    words = ", ".join(part.text for part in group.bar)
    if group.bracket is not None:
        left, wide = 100 * group.bracket.start, 100 * group.bracket.width
        yield f'<div class="label" style="margin-left:{left:.2f}%">{escape(group.bracket.text)}</div>'
        yield f'<div class="bracket" style="margin-left:{left:.2f}%;width:{wide:.2f}%"></div>'
    yield f'<div class="bar" role="img" aria-label="{escape(words)}">'
    for part in group.bar:
        name = part.kind or "missing"
        yield f'<span class="s-{name}" style="width:{100 * part.share:.3f}%" title="{escape(part.text)}"></span>'
    yield '</div>\n<div class="ends"><span>0</span>'
    end = 100 * (1 - group.ends)
    yield f'<span style="right:{end:.2f}%">{escape(group.size.partition(" = ")[2] or group.size)}</span></div>'
    yield '<ul class="legend">'
    for part in group.bar:
        if part.share > 0:
            yield f'<li><i class="s-{part.kind or "missing"}"></i>{escape(part.text)}</li>'
    yield "</ul>"


def _pairs(title: str, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    if pairs:
        yield f"<h2>{escape(title)}</h2>\n<dl>"
        yield from (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs)
        yield "</dl>"


def _table_of_options(made: Sheet) -> Iterator[str]:
    for title, pairs in (("Set", made.options), ("As the engine chooses", made.defaults)):
        if pairs:
            yield f"<h3>{title}</h3>\n<dl>"
            yield from (f"<dt><code>{escape(name)}</code></dt><dd>{escape(text)}</dd>" for name, text in pairs)
            yield "</dl>"


def _ways(made: Sheet) -> Iterator[str]:
    yield f'<h2>{escape(made.ways_title)}</h2>\n<ol class="ways">'
    for way in made.ways:
        yield f'<li class="way"><strong>{escape(way.title)}</strong>: {escape(way.outcome)}'
        yield f'<br><span class="muted">{escape(way.costs)}</span>' if way.costs else ""
        yield f"<br><code>{escape(way.flags)}</code></li>" if way.flags else "</li>"
    yield "</ol>"


def _explained(made: Sheet) -> Iterator[str]:
    yield "<h2>How each number comes about</h2>"
    for group in made.groups:
        yield f"<h3>{escape(group.title)}: {escape(group.gpu)}</h3>"
        for found in group.explained:
            yield from _explanation(found)
    yield "<h3>How sure a number is</h3>\n<dl>"
    yield from (f"<dt>{escape(basis)}</dt><dd>{escape(meaning)}</dd>" for basis, meaning in made.bases)
    yield "</dl>"


def _explanation(found: Explanation) -> Iterator[str]:
    yield f"<details><summary>{escape(found.title)}: {escape(found.value)}</summary>"
    yield f"<p>{escape(found.meaning)}</p>" if found.meaning else ""
    yield f'<p class="muted">{escape(found.band)}</p>' if found.band else ""
    for formula in found.formulas:
        yield "".join(f"<p><code>{escape(line)}</code></p>" for line in formula.lines())
    if found.inputs:
        yield '<div class="scroll"><table><tbody>'
        for item in found.inputs:
            yield (
                f'<tr><td>{escape(item.name)}</td><td class="n">{escape(item.value)}</td>'
                f'<td class="n">{escape(item.other)}</td><td>{escape(item.source)}</td></tr>'
            )
        yield "</tbody></table></div>"
    yield from (f"<p>{escape(note)}</p>" for note in found.notes)
    yield "</details>"
