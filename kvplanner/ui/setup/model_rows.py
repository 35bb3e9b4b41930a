"""What the model chooser lists: recent, on this machine, the catalogue; and what a typed path or Hub name means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kvplanner.app.library import LocalModel
from kvplanner.record import NamedTuple
from kvplanner.ui.setup.marks import FITTING
from kvplanner.ui.setup.pasted import is_command
from kvplanner.ui.setup.rows import Row
from kvplanner.units import ByteUnit, format_bytes, format_count, format_parameters

if TYPE_CHECKING:
    from kvplanner.catalog.models import ModelEntry

MOST_FOUND: Final = 60
FITS, LOCAL, QUANTISED, STARRED = FILTERS = ("Fits", "On this machine", "Quantised", "Starred")
OPEN_FILE: Final = "\0open file"
OPEN_FOLDER: Final = "\0open folder"
ADD_FOLDER: Final = "\0add folder"
COMMAND: Final = "\0command "
HUB_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w.-]+)?", re.ASCII)
DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
PATH_STARTS: Final = ("/", "~", "./", "../", "\\\\")


class Shelf(NamedTuple):
    """What the chooser draws from. recent, starred: texts for open_model. current: the text of the chosen model.

    marks: what plans of them say; only: the filters that are on.
    """

    entries: Sequence[ModelEntry]
    recent: Sequence[str]
    local: Sequence[LocalModel]
    current: str
    unit: ByteUnit
    starred: Sequence[str] = ()
    marks: Mapping[object, str] = {}
    only: frozenset[str] = frozenset()

    def shows(self, data: object, *, quantised: bool, local: bool = False) -> bool:
        """Whether the filters that are on leave a row in."""
        return not (
            (FITS in self.only and self.marks.get(data) not in FITTING)
            or (QUANTISED in self.only and not quantised)
            or (LOCAL in self.only and not local)
            or (STARRED in self.only and data not in self.starred)
        )


def parameter_text(parameters: int | None) -> str:
    """Text such as "8.03 B"; "" when not known."""
    if parameters is None:
        return ""
    return format_parameters(parameters)


def catalogue_row(entry: ModelEntry, shelf: Shelf) -> Row:
    """One catalogue model: name and size, then publisher, context, quantisation and how sure the facts are."""
    context = f"context {format_count(entry.context_length)}" if entry.context_length else ""
    publisher = entry.id.rpartition("/")[0]
    detail = " · ".join(p for p in (publisher, parameter_text(entry.parameters), context) if p)
    size = format_bytes(entry.stored_bytes, shelf.unit) if entry.stored_bytes else "size not known"
    sure = "some facts assumed" if entry.lower_confidence else "catalogue"
    quantised = entry.quantization or "not quantised"
    return Row("item", entry.name, detail, size, f"{quantised} · {sure}", entry.id, entry.id == shelf.current,
               entry.id in shelf.starred)  # fmt: skip


def local_row(model: LocalModel, shelf: Shelf) -> Row:
    """One model of this machine: where it lies is its provenance."""
    size = format_bytes(model.size_bytes, shelf.unit) if model.size_bytes else ""
    return Row(
        "item",
        model.title,
        model.problem or model.detail,
        size,
        model.quantization,
        model.text,
        model.text == shelf.current,
        model.text in shelf.starred,
    )


def search(text: str, shelf: Shelf, found: Sequence[ModelEntry]) -> list[Row]:
    """Rows for a text; `found` is what the catalogue gives for it."""
    text = text.strip()
    words = text.lower().split()
    rows = _typed_rows(text)
    by_id = {entry.id: entry for entry in shelf.entries}
    locals_by_text = {model.text: model for model in shelf.local}
    found = [e for e in found if shelf.shows(e.id, quantised=e.quantization is not None)] if shelf.only else found
    if not words:
        for title, texts in (("Recent", shelf.recent), ("Starred", shelf.starred)):
            listed = (t for t in texts if not shelf.only or t in shelf.starred or t in {e.id for e in found})
            rows += _group(title, [_recent_row(t, by_id, locals_by_text, shelf) for t in listed])
    local = [m for m in shelf.local if all(w in f"{m.title} {m.detail} {m.quantization}".lower() for w in words)
             and shelf.shows(m.text, quantised=bool(m.quantization), local=True)]  # fmt: skip
    rows += _group("On this machine", [local_row(m, shelf) for m in local[:MOST_FOUND]])
    rows += _group("Catalogue", [catalogue_row(e, shelf) for e in (found if not words else found[:MOST_FOUND])])
    if len(found) > MOST_FOUND and words:
        rows.append(Row("heading", f"{len(found) - MOST_FOUND} more: type another word"))
    hub_name = text.removeprefix("hub:")
    if HUB_NAME.fullmatch(hub_name) and hub_name not in by_id:
        rows += _named_rows(hub_name)
        rows.append(Row("heading", "Online, only when you choose it"))
        rows.append(_hub_row(hub_name))
    if shelf.only:
        return rows
    rows.append(Row("heading", "From a file"))
    rows.append(Row("action", "Open a model folder…", data=OPEN_FOLDER))
    rows.append(Row("action", "Search another folder for models…", data=ADD_FOLDER))
    rows.append(Row("action", "Open a file (config.json, .safetensors, .gguf)…", data=OPEN_FILE))
    return rows


def _group(title: str, rows: list[Row]) -> list[Row]:
    return [Row("heading", title), *rows] if rows else []


def _recent_row(text: str, by_id: dict[str, ModelEntry], local: dict[str, LocalModel], shelf: Shelf) -> Row:
    if text in by_id:
        return catalogue_row(by_id[text], shelf)
    if text in local:
        return local_row(local[text], shelf)
    name = text.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    return Row("item", name or text, text, "", "", text, text == shelf.current)


def _typed_rows(text: str) -> list[Row]:
    """A path or a store's name is opened as it is; a whole command line becomes the plan."""
    if is_command(text):
        return [Row("item", "Plan this command line", " ".join(text.split()), "", "", COMMAND + text)]
    if text.startswith((*PATH_STARTS, "ollama:")) or DRIVE.match(text):
        return [Row("item", f"Open {text}", "", "", "", text)]
    return []


def _named_rows(name: str) -> list[Row]:
    """What a repository's name says of it, when that is enough to plan it."""
    from kvplanner.catalog import naming
    from kvplanner.model.quantisation.elsewhere import why_not

    said = naming.parse(name)
    if said is None or why_not(said.key):
        return []
    about = f"by its name: {said.base.id}" + (f" in {said.key}" if said.key else "")
    return [Row("heading", "Not in the catalogue"), Row("item", f"Plan {name}", about, "", "assumed", name)]


def _hub_row(name: str) -> Row:
    about = "Goes online: reads the configuration and file headers, downloads no weights"
    return Row("item", f"Ask the Hub for {name}", about, "", "online", f"hub:{name}")
