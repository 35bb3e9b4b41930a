"""What was fetched from the Hub, kept by repository and commit so that it opens again without a network.

Layout: HOST/ORG--NAME/refs.json (revision → commit), COMMIT.json (files and sizes), COMMIT/HASH (a file's beginning).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from kvplanner import jsonfile
from kvplanner.errors import BadInput
from kvplanner.files import write_whole
from kvplanner.reading import read_whole
from kvplanner.source.gguf.window import HEADER_LIMIT_BYTES
from kvplanner.source.hub.client import RepositoryInfo

_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")
_LIMIT_BYTES: Final = 16_000_000


def default_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The application's cache folder for what the Hub told."""
    env = os.environ if environment is None else environment
    if sys.platform == "win32" and env.get("LOCALAPPDATA"):
        return Path(env["LOCALAPPDATA"]) / "kvplanner" / "hub"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kvplanner" / "hub"
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvplanner" / "hub"


class HubStore:
    """One repository's part of the cache. Writing never fails loudly: a full disk costs only the memory."""

    def __init__(self, root: Path, endpoint: str, repository: str) -> None:
        host = re.sub(r"[^A-Za-z0-9.-]+", "_", endpoint.partition("://")[2])
        self.folder = root / host / re.sub(r"[^A-Za-z0-9._-]+", "--", repository).lstrip(".")

    def commit_of(self, revision: str | None) -> str | None:
        """The commit that a revision meant when it was last asked for."""
        commit = self._refs().get(revision or "main", revision or "")
        return commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else None

    def info(self, commit: str) -> RepositoryInfo | None:
        """What was known of a commit; None when nothing is kept."""
        try:
            content = jsonfile.read_object(self.folder / f"{commit}.json", _LIMIT_BYTES)
        except BadInput:
            return None
        id_, files = content.get("id"), content.get("files")
        if not isinstance(id_, str) or not isinstance(files, dict):
            return None
        sizes = {name: size if isinstance(size, int) and size >= 0 else None for name, size in files.items()}
        return RepositoryInfo(id_, commit, sizes, content.get("gated") is True, content.get("private") is True)

    def keep_info(self, revision: str | None, info: RepositoryInfo) -> None:
        """Keeps a repository's files and what its revision means."""
        refs = {**self._refs(), (revision or "main"): info.commit}
        content = {"id": info.id, "files": dict(info.files), "gated": info.gated, "private": info.private}
        self._write(self.folder / f"{info.commit}.json", json.dumps(content).encode())
        self._write(self.folder / "refs.json", json.dumps(refs).encode())

    def head(self, commit: str, file: str) -> bytes:
        """The kept beginning of a file; empty when nothing is kept."""
        try:
            return read_whole(self._head_path(commit, file), HEADER_LIMIT_BYTES)
        except BadInput:
            return b""

    def keep_head(self, commit: str, file: str, data: bytes) -> None:
        """Keeps the beginning of a file."""
        self._write(self._head_path(commit, file), data)

    def _head_path(self, commit: str, file: str) -> Path:
        return self.folder / commit / hashlib.sha256(file.encode()).hexdigest()

    def _refs(self) -> dict[str, object]:
        try:
            return jsonfile.read_object(self.folder / "refs.json")
        except BadInput:
            return {}

    def _write(self, path: Path, data: bytes) -> None:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
