"""Models of the Hub, only on request: search, and open by name from headers that are fetched by range requests.

A commit's files and headers are kept, so that a model opened once opens again offline. Offline is a state: what is
kept or in the Hub's own cache still opens, everything else says that it needs the network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kvplanner import jsonfile
from kvplanner.errors import BadInput
from kvplanner.model.model import Model
from kvplanner.reading import is_folder
from kvplanner.record import NamedTuple
from kvplanner.source.checkpoint import opening, safetensors
from kvplanner.source.checkpoint.folder import numbered_set
from kvplanner.source.gguf import header as gguf
from kvplanner.source.gguf import model as gguf_model
from kvplanner.source.hub import cache as hub_cache
from kvplanner.source.hub.client import Client, HubEntry, RepositoryInfo, endpoint, is_offline
from kvplanner.source.hub.errors import HubError, offline
from kvplanner.source.hub.store import HubStore, default_folder
from kvplanner.source.stores.found import Control, Unwatched
from kvplanner.units import counted, format_bytes

NOT_ASKED: Final = "the Hub is not asked ({})"
FIRST_BYTES: Final = 192 << 10
MOST_BYTES: Final = 8 << 20
PARALLEL: Final = 8
MAX_FILES: Final = 20_000
_NAME: Final = re.compile(
    r"([\w.-]{1,96})/([\w.-]{1,96})(?:/([\w./-]{1,300}\.gguf))?(?::([\w.-]{1,40}))?(?:@([\w./-]{1,200}))?"
)


class Request(NamedTuple):
    """What a Hub name asks for: a repository, a revision (None: main), and one of its GGUF files by path or recipe."""

    repository: str
    revision: str | None
    file: str
    recipe: str


class HubState(NamedTuple):
    """Whether the Hub may be asked: where it is, whether a token is at hand, and why not ("" when it may)."""

    endpoint: str
    has_token: bool
    offline_reason: str


def state() -> HubState:
    """The state by environment and files; asks nobody."""
    if is_offline():
        return HubState(endpoint(), False, "HF_HUB_OFFLINE is set")
    from huggingface_hub import get_token

    return HubState(endpoint(), get_token() is not None, "")


def parse_name(text: str) -> Request:
    """ "org/name[/FILE.gguf][:RECIPE][@REVISION]". Raises BadInput."""
    match = _NAME.fullmatch(text.strip())
    if match is None or ".." in text:
        raise BadInput(
            "is not a Hub name", f"hub:{text[:200]}",
            "Write hub:org/name, hub:org/name@revision, hub:org/name:Q4_K_M or hub:org/name/file.gguf",
        )  # fmt: skip
    return Request(f"{match[1]}/{match[2]}", match[5], match[3] or "", match[4] or "")


def search(text: str, *, limit: int = 40, control: Control | None = None) -> tuple[HubEntry, ...]:
    """Models of the Hub whose names hold the words. Raises HubError."""
    if is_offline():
        raise offline(f"hub:{text}", NOT_ASKED.format("HF_HUB_OFFLINE is set"))
    return Client(control or Unwatched()).search(text, limit)


def open_model(
    name: str,
    *,
    allow_network: bool = False,
    control: Control | None = None,
    store: Path | None = None,
) -> Model:
    """The model that a Hub name means.

    allow_network False, or an offline environment: only what was kept here or lies in the Hub's cache.
    store: the folder of what is kept, the application's own when None. Raises BadInput, HubError, NotModelled.
    """
    request = parse_name(name)
    watch = control or Unwatched()
    kept = HubStore(store or default_folder(), endpoint(), request.repository)
    if not allow_network or is_offline():
        reason = "HF_HUB_OFFLINE is set" if is_offline() else "going online was not asked for"
        return _open_offline(request, kept, name, NOT_ASKED.format(reason))
    client = Client(watch)
    watch.progress(None, f"Asking the Hub for {request.repository}")
    try:
        info = client.info(request.repository, request.revision)
    except HubError as error:
        if error.trouble != "unreachable":
            raise
        return _open_offline(request, kept, name, "the Hub cannot be reached")
    kept.keep_info(request.revision, info)
    return _Opening(info, kept, client, watch).open(request)


def _open_offline(request: Request, kept: HubStore, name: str, reason: str) -> Model:
    commit = kept.commit_of(request.revision)
    info = kept.info(commit) if commit else None
    if info is not None:
        model = _Opening(info, kept, None, Unwatched()).open(request)
        return model._replace(source_detail=f"{model.source_detail}, kept from an earlier answer, since {reason}")
    revision = f"@{request.revision}" if request.revision else ""
    folder = hub_cache.find(request.repository + revision)
    if folder is None:
        raise offline(f"hub:{name}", reason)
    return opening.open_folder(folder) if is_folder(folder) else gguf_model.open_gguf(folder)


class RemoteFile:
    """A file of the Hub as a source of bytes: its beginning, fetched in growing pieces from where the last ended."""

    def __init__(self, info: RepositoryInfo, file: str, kept: HubStore, client: Client | None) -> None:
        self.name = f"hub:{info.id}/{file}"
        self._info, self._file, self._kept, self._client = info, file, kept, client
        self._head = kept.head(info.commit, file)
        self._next = FIRST_BYTES
        size = info.files.get(file)
        if size is None:
            size = self._first_size()
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        """Exactly these bytes; raises BadInput beyond the end, HubError when the Hub does not give them."""
        end = offset + length
        if end > self.size:
            raise BadInput(
                f"ends {end - self.size:,} bytes before the end of what its header announces",
                self.name,
                "It is damaged",
            )
        if end > len(self._head):
            self._grow(end)
        return self._head[offset:end]

    def _grow(self, end: int) -> None:
        if self._client is None:
            raise offline(self.name, "the part that was kept is too short")
        have = len(self._head)
        upto = min(max(end, have + self._next), self.size)
        self._next = min(self._next * 2, MOST_BYTES)
        data, total = self._client.fetch(self._info.id, self._info.commit, self._file, have, upto - have)
        if (total is not None and total != self.size) or len(data) != upto - have:
            raise HubError(
                "bad_answer", f"the Hub lists {self.size:,} bytes, and the server answers for {total or len(data):,}",
                self.name,
                "Try again; if it stays so, a proxy or mirror between here and the Hub is at fault",
            )  # fmt: skip
        self._head += data
        self._kept.keep_head(self._info.commit, self._file, self._head)

    def _first_size(self) -> int:
        """The size of a file whose listing does not tell it, from its first range."""
        if self._client is None:
            raise offline(self.name, "its size was not kept")
        data, total = self._client.fetch(self._info.id, self._info.commit, self._file, 0, FIRST_BYTES)
        self._head = data
        return total if total is not None else len(data)


class _Opening:
    """Opens one repository at one commit; client None: from what is kept alone."""

    def __init__(self, info: RepositoryInfo, kept: HubStore, client: Client | None, control: Control) -> None:
        if len(info.files) > MAX_FILES:
            raise BadInput(f"has more than {MAX_FILES:,} files", f"hub:{info.id}", "It is no model's repository")
        self.info, self.kept, self.client, self.control = info, kept, client, control
        self.detail = f"{info.id}@{info.commit[:12]}"

    def open(self, request: Request) -> Model:
        top = [name for name in self.info.files if "/" not in name]
        shards, missing = numbered_set(sorted(name for name in top if name.endswith(".safetensors")))
        if shards and not request.file and not request.recipe:
            return self._safetensors(shards, missing)
        ggufs = sorted(name for name in self.info.files if name.lower().endswith(".gguf"))
        if ggufs:
            return self._gguf(self._chosen(ggufs, request))
        if "config.json" in top:
            return self._config_only()
        raise BadInput(
            "holds no config.json, safetensors or GGUF file", f"hub:{self.info.id}", "Open another repository"
        )

    def _file(self, name: str) -> RemoteFile:
        return RemoteFile(self.info, name, self.kept, self.client)

    def _json(self, name: str, limit_bytes: int = jsonfile.CONFIG_LIMIT_BYTES) -> dict[str, object] | None:
        if name not in self.info.files:
            return None
        file = self._file(name)
        if file.size > limit_bytes:
            raise BadInput(
                f"has {file.size:,} bytes; at most {limit_bytes:,} are read", file.name, "It is not a model's file"
            )
        return jsonfile.parse_config(file.read(0, file.size), file.name)

    def _understood(self) -> opening.Config:
        config = self._json("config.json")
        if config is None:
            return opening.Config("unknown", None, "the repository has no config.json: layers and cache are not known")
        return opening.understand(config, f"hub:{self.info.id}/config.json", self._json("hf_quant_config.json"))

    def _config_only(self) -> Model:
        from kvplanner.model.families import read_config

        config = self._json("config.json") or {}
        spec, implied = read_config(
            config, where=f"hub:{self.info.id}/config.json", side_quant=self._json("hf_quant_config.json")
        )
        note = "The repository holds no safetensors file: sizes follow from config.json"
        return opening.from_config(self.info.id, spec, implied, "hub", self.detail, (note,))

    def _safetensors(self, shards: Sequence[str], missing: Sequence[str]) -> Model:
        config = self._understood()
        headers = self._headers(shards)
        tensors = tuple(tensor for header in headers for tensor in header.tensors)
        lack = counted(len(missing), "weight file is", "weight files are")
        problems = [f"{lack} missing, for example {missing[0]}"] if missing else []
        return opening.from_headers(self.info.id, tensors, config, "hub", self.detail, problems, complete=not missing)

    def _headers(self, shards: Sequence[str]) -> list[safetensors.Header]:
        """All headers, several requests at a time."""
        headers: list[safetensors.Header] = []
        with ThreadPoolExecutor(PARALLEL if self.client else 1, "hub") as pool:
            waiting = [pool.submit(self._header, name) for name in shards]
            try:
                for number, future in enumerate(waiting):
                    self.control.progress(number / len(waiting), f"Reading headers of {self.info.id}")
                    headers.append(future.result())
            except BaseException:
                # Nobody waits for the others any more: not for a server that hangs, and not after Ctrl+C.
                if self.client:
                    self.client.stopped.set()
                raise
            finally:
                for future in waiting:
                    future.cancel()
        return headers

    def _header(self, name: str) -> safetensors.Header:
        return safetensors.parse_header(self._file(name))

    def _gguf(self, names: Sequence[str]) -> Model:
        headers = []
        for number, name in enumerate(names):
            self.control.progress(number / len(names), f"Reading the header of {name}")
            headers.append(gguf.parse_header(self._file(name)))
        return gguf_model.from_headers(
            headers, [f"hub:{self.info.id}/{name}" for name in names], self.info.id, "hub", self.detail
        )

    def _chosen(self, names: Sequence[str], request: Request) -> Sequence[str]:
        """The parts of the GGUF model that is meant. Raises BadInput with the choices when that is not clear."""
        sets: dict[str, list[str]] = {}
        for name in names:
            parts = gguf.split_parts(Path(name))
            sets.setdefault(parts[0].as_posix() if parts else name, []).append(name)
        choices = {first: parts for first, parts in sets.items() if "mmproj" not in first.lower()}
        if request.file:
            choices = {first: parts for first, parts in sets.items() if request.file in parts}
        elif request.recipe:
            word = re.compile(rf"(?:^|[-._/]){re.escape(request.recipe)}(?=[-._/]|$)", re.IGNORECASE)
            choices = {first: parts for first, parts in choices.items() if word.search(first)}
        if len(choices) != 1:
            raise BadInput(
                f"holds {len(sets)} GGUF models", f"hub:{self.info.id}",
                f"Name one with hub:org/name:RECIPE or hub:org/name/FILE: {self._listed(choices or sets)}",
            )  # fmt: skip
        chosen = next(iter(choices.values()))
        wanted = gguf.split_parts(Path(chosen[0]))
        absent = [part.as_posix() for part in wanted or () if part.as_posix() not in chosen]
        if absent:
            raise BadInput(f"the part {absent[0]} is missing", f"hub:{self.info.id}", "Choose another file")
        return sorted(chosen)

    def _size(self, parts: Sequence[str]) -> str:
        return format_bytes(sum(self.info.files.get(part) or 0 for part in parts), "GB", 1)

    def _listed(self, sets: dict[str, list[str]]) -> str:
        return ", ".join(f"{first} ({self._size(parts)})" for first, parts in list(sets.items())[:12])
