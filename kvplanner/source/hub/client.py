"""Talks to the Hub through huggingface_hub's own client; imported only inside a job that asked for the Hub.

Endpoint, token, proxies and offline mode are the ones of its environment variables and files. Answers are checked:
a range that is not the one asked for, too long, too short or endless is refused.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Event
from typing import Any, Final, TypeVar
from urllib.parse import quote

from kvplanner import __version__, jsonfile
from kvplanner.deadline import OutOfTime, in_time
from kvplanner.errors import BadInput
from kvplanner.printable import printable
from kvplanner.record import NamedTuple
from kvplanner.source.hub.body import collect, too_slow, unpacked
from kvplanner.source.hub.errors import HubError
from kvplanner.source.stores.found import Control

TIMEOUT_S: Final = 10.0
# A whole request, however slowly its bytes drip: a piece of a file, and a listing.
DEADLINE_S: Final = 60.0
LISTING_DEADLINE_S: Final = 20.0
# The listing of a repository of 20,000 files has 4 MB.
LISTING_LIMIT_BYTES: Final = 16_000_000
TRIES: Final = 3
LONGEST_WAIT_S: Final = 8.0
DEFAULT_ENDPOINT: Final = "https://huggingface.co"
_RANGE: Final = re.compile(r"bytes (\d{1,20})-(\d{1,20})/(\d{1,20}|\*)")
_TRUE: Final = frozenset({"1", "ON", "YES", "TRUE"})


class RepositoryInfo(NamedTuple):
    """A repository at one commit: its files with their bytes (None when the Hub does not say)."""

    id: str
    commit: str
    files: Mapping[str, int | None]
    gated: bool
    private: bool


class HubEntry(NamedTuple):
    """One search result. parameters: as the Hub counts stored elements; None when it does not say."""

    id: str
    downloads: int
    gated: bool
    private: bool
    parameters: int | None
    format: str


def endpoint(environment: Mapping[str, str] | None = None) -> str:
    """The Hub's address: HF_ENDPOINT, else the public one."""
    env = os.environ if environment is None else environment
    return (env.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def is_offline(environment: Mapping[str, str] | None = None) -> bool:
    """Whether the environment forbids the network (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE)."""
    env = os.environ if environment is None else environment
    return (env.get("HF_HUB_OFFLINE") or env.get("TRANSFORMERS_OFFLINE") or "").upper() in _TRUE


def _quiet() -> None:
    """What the library reads at its import: nothing is reported, checked for updates or drawn on the terminal."""
    for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_UPDATE_CHECK", "HF_HUB_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(name, "1")


def _utils() -> Any:
    """The library's utilities: documented, but exported in a way that type checkers do not follow."""
    import huggingface_hub.utils

    return huggingface_hub.utils


Result = TypeVar("Result")


class Client:
    """One conversation with the Hub. All methods raise HubError.

    stopped: set to give up what other threads are still asking.
    """

    def __init__(self, control: Control) -> None:
        _quiet()
        self.control = control
        self.endpoint = endpoint()
        self.stopped = Event()

    def info(self, repository: str, revision: str | None) -> RepositoryInfo:
        """The repository's files at a revision (None: its main branch)."""
        at = f"/revision/{quote(revision, safe='')}" if revision else ""
        with _Translated(repository, revision, parses=True):
            info: Any = self._listing(f"/api/models/{repository}{at}", {"blobs": "true"}, f"hub:{repository}")
            files = {sibling["rfilename"]: _size(sibling.get("size")) for sibling in info.get("siblings") or ()}
            id_, commit = info["id"], info["sha"]
            named = all(isinstance(text, str) for text in (id_, commit, *files))
            if not named or not re.fullmatch(r"[0-9a-f]{7,64}", commit):
                raise HubError("bad_answer", "the Hub names no commit or no files", f"hub:{repository}", _CHECK)
        return RepositoryInfo(id_, commit, files, bool(info.get("gated")), bool(info.get("private")))

    def search(self, text: str, limit: int) -> tuple[HubEntry, ...]:
        """Models whose names hold the words, the most downloaded first."""
        expand = ["downloads", "gated", "private", "safetensors", "gguf"]
        asked: dict[str, object] = {"search": text, "sort": "downloads", "limit": limit, "expand": expand}
        with _Translated(text, None, parses=True):
            found: Any = self._listing("/api/models", asked, f"hub:{text}")
            return tuple(_entry(model) for model in found[:limit])

    def _listing(self, path: str, parameters: Mapping[str, object], where: str) -> object:
        """What the Hub's interface answers, bounded in time, in size and in what its JSON may cost."""
        utils = _utils()
        headers = utils.build_hf_headers(library_name="kvplanner", library_version=__version__)
        headers["Accept-Encoding"] = "identity"
        url = self.endpoint + path

        def ask() -> bytes:
            with utils.get_session().stream(
                "GET", url, params=dict(parameters), headers=headers, timeout=TIMEOUT_S
            ) as response:  # fmt: skip
                _refuse(response)
                data = collect(response, LISTING_LIMIT_BYTES, LISTING_DEADLINE_S, self._check, where)
                return unpacked(data, response.headers.get("Content-Encoding", ""), LISTING_LIMIT_BYTES, where)

        data = self._in_time(ask, LISTING_DEADLINE_S, where)
        try:
            return jsonfile.parse_value(data, where)
        except BadInput as error:
            raise HubError("bad_answer", "the answer is not what the Hub sends", where, _CHECK) from error

    def _in_time(self, work: Callable[[], Result], seconds: float, where: str) -> Result:
        try:
            return in_time(work, seconds, self._check)
        except OutOfTime:
            raise too_slow(seconds, where) from None

    def _check(self) -> None:
        self.control.check()
        if self.stopped.is_set():
            raise HubError("slow", "the request was given up", "hub", "Try again")

    def fetch(self, repository: str, commit: str, file: str, start: int, length: int) -> tuple[bytes, int | None]:
        """`length` bytes of a file from `start` (fewer at its end), and the file's size if the answer tells it."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(repository, file, revision=commit, endpoint=self.endpoint)
        where = f"hub:{repository}/{file}"
        for number in range(TRIES):
            self.control.check()
            with _Translated(repository, commit, file):
                wait, answer = self._in_time(partial(self._try, url, start, length, where), DEADLINE_S, where)
            if answer is not None:
                return answer
            if number + 1 < TRIES:
                self._pause(min(wait, LONGEST_WAIT_S))
        raise HubError("rate_limited", "the Hub asks to wait, or is overloaded", where, "Try again in a few minutes")

    def _try(self, url: str, start: int, length: int, where: str) -> tuple[float, tuple[bytes, int | None] | None]:
        """One request: how long to wait before the next one, or the answer."""
        utils = _utils()
        headers = utils.build_hf_headers(library_name="kvplanner", library_version=__version__)
        headers["Range"] = f"bytes={start}-{start + length - 1}"
        # A compressed answer would not be the bytes of that range.
        headers["Accept-Encoding"] = "identity"
        with utils.get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S) as response:
            if response.status_code == 429 or response.status_code >= 500:
                after = response.headers.get("Retry-After", "")
                return (float(after) if after.isdigit() else 1.0), None
            _refuse(response)
            return 0.0, self._body(response, start, length, where)

    def _body(self, response: Any, start: int, length: int, where: str) -> tuple[bytes, int | None]:
        """The answer's bytes, taken only as far as they were asked for."""
        total: int | None = None
        skip = 0
        if response.status_code == 206:
            match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if match is None or int(match[1]) != start or not start <= int(match[2]) < start + length:
                raise _lie(
                    f"answered with {response.headers.get('Content-Range', 'no range')[:60]!r}", start, length, where
                )
            total = int(match[3]) if match[3] != "*" else None
            length = int(match[2]) - start + 1
        elif response.status_code == 200 and start <= 64 << 20:
            skip = start  # a server without ranges sends the file from its beginning
        else:
            raise _lie(f"answered with status {response.status_code}", start, length, where)
        data = collect(response, skip + length, DEADLINE_S, self._check, where)
        if len(data) > skip + length and response.status_code == 206:
            raise _lie("sent more bytes than it announced", start, length, where)
        if len(data) < skip + length and response.status_code == 206:
            raise _lie(f"stopped after {len(data):,} bytes", start, length, where)
        return data[skip : skip + length], total

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._check()
            time.sleep(min(left, 0.1))


def _refuse(response: Any) -> None:
    """Raises the library's error for a status of one, told by its headers: it would read a body without an end."""
    if response.status_code < 400:
        return
    utils = _utils()
    bare = {
        name: text for name, text in response.headers.items() if not name.lower().startswith(("content-", "transfer-"))
    }
    utils.hf_raise_for_status(utils.httpx.Response(response.status_code, headers=bare, request=response.request))


def _lie(what: str, start: int, length: int, where: str) -> HubError:
    return HubError(
        "bad_answer", f"asked for bytes {start:,} to {start + length - 1:,}, and the server {what}", where,
        "Try again; if it stays so, a proxy or mirror between here and the Hub is at fault",
    )  # fmt: skip


def _entry(model: Mapping[str, Any]) -> HubEntry:
    tensors, gguf = model.get("safetensors") or {}, model.get("gguf") or {}
    total, downloads = tensors.get("total") or gguf.get("total"), model.get("downloads")
    return HubEntry(
        printable(str(model["id"])), downloads if isinstance(downloads, int) else 0, bool(model.get("gated")),
        bool(model.get("private")), total if isinstance(total, int) else None,
        "safetensors" if tensors else "GGUF" if gguf else "",
    )  # fmt: skip


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


_CHECK: Final = "Check HF_ENDPOINT, and whether a proxy or a log-in page answers in the Hub's place"


class _Translated:
    """Turns the library's errors into ours. parses: what it stumbles over in an answer's JSON, too."""

    def __init__(self, repository: str, revision: str | None, file: str = "", *, parses: bool = False) -> None:
        self.answer_errors = (ValueError, TypeError, LookupError, AttributeError) if parses else (ValueError,)
        self.where = f"hub:{repository}" + (f"/{file}" if file else "")
        self.repository = repository
        self.revision = revision

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, HubError):
            return
        found = self._translate(error)
        if found is not None:
            raise found from error

    def _translate(self, error: BaseException) -> HubError | None:
        from huggingface_hub import errors

        httpx = _utils().httpx
        if isinstance(error, errors.OfflineModeIsEnabled):
            return HubError("offline", "offline mode is set (HF_HUB_OFFLINE)", self.where, "Unset it to go online")
        if isinstance(error, errors.HFValidationError):
            return HubError(
                "not_found", "is not the name of a repository", self.where, "Write for example hub:org/name"
            )
        if isinstance(error, errors.HfHubHTTPError):
            return self._of_status(error)
        if isinstance(error, httpx.TimeoutException):
            return HubError("slow", f"the Hub did not answer within {TIMEOUT_S:g} s", self.where, "Try again")
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.DecodingError):
            return HubError("bad_answer", "the connection broke in the middle of an answer", self.where, "Try again")
        if isinstance(error, httpx.TooManyRedirects):
            return HubError("bad_answer", f"{endpoint()} sends requests round in circles", self.where, _CHECK)
        if isinstance(error, httpx.HTTPError | httpx.InvalidURL | OSError):
            return HubError(
                "unreachable",
                f"{endpoint()} cannot be reached",
                self.where,
                "Check the network, the proxy and HF_ENDPOINT",
            )
        if isinstance(error, self.answer_errors):
            return HubError("bad_answer", "the answer is not what the Hub sends", self.where, _CHECK)
        return None

    def _of_status(self, error: Any) -> HubError:
        from huggingface_hub import errors

        page = f"{endpoint()}/{self.repository}"
        status = error.response.status_code if error.response is not None else 0
        if isinstance(error, errors.GatedRepoError):
            return HubError(
                "gated", "is gated: its publisher asks you to accept terms first", self.where,
                f"Ask for access at {page}, then log in with 'hf auth login' or set HF_TOKEN",
            )  # fmt: skip
        if isinstance(error, errors.RevisionNotFoundError):
            return HubError("not_found", f"has no revision {self.revision!r}", self.where, f"See {page}/branches")
        if isinstance(error, errors.EntryNotFoundError):
            return HubError("not_found", "has no such file", self.where, f"See {page}/tree/main")
        if isinstance(error, errors.RepositoryNotFoundError):
            return HubError(
                "not_found", "does not exist, or is private", self.where,
                "Check the spelling; for a private one log in with 'hf auth login' or set HF_TOKEN",
            )  # fmt: skip
        if status == 401:
            return HubError("unauthorised", "the token is not valid", self.where, "Log in again, or unset HF_TOKEN")
        if status == 429:
            return HubError("rate_limited", "the Hub asks to wait", self.where, "Try again in a few minutes")
        return HubError("refused", f"the Hub answered with status {status}", self.where, "Try again later")
