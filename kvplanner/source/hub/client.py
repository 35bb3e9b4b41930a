"""Talks to the Hub through huggingface_hub's own client; imported only inside a job that asked for the Hub.

Endpoint, token, proxies and offline mode are the ones of its environment variables and files. Answers are checked:
a range that is not the one asked for, too long, too short or endless is refused.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kvplanner.source.hub.errors import HubError
from kvplanner.source.stores.found import Control

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TIMEOUT_S: Final = 10.0
# A whole request, however slowly its bytes drip.
DEADLINE_S: Final = 60.0
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


class Client:
    """One conversation with the Hub. All methods raise HubError."""

    def __init__(self, control: Control) -> None:
        _quiet()
        from huggingface_hub import HfApi

        self.control = control
        self.endpoint = endpoint()
        self._api: HfApi = HfApi(endpoint=self.endpoint, library_name="kvplanner")

    def info(self, repository: str, revision: str | None) -> RepositoryInfo:
        """The repository's files at a revision (None: its main branch)."""
        with _Translated(repository, revision, parses=True):
            info = self._api.model_info(repository, revision=revision, files_metadata=True, timeout=TIMEOUT_S)
            files = {sibling.rfilename: _size(sibling.size) for sibling in info.siblings or ()}
            named = all(isinstance(text, str) for text in (info.id, info.sha, *files))
            if not named or not re.fullmatch(r"[0-9a-f]{7,64}", str(info.sha)):
                raise HubError("bad_answer", "the Hub names no commit or no files", f"hub:{repository}", _CHECK)
        return RepositoryInfo(info.id, str(info.sha), files, bool(info.gated), bool(info.private))

    def search(self, text: str, limit: int) -> tuple[HubEntry, ...]:
        """Models whose names hold the words, the most downloaded first."""
        with _Translated(text, None, parses=True):
            found = list(
                self._api.list_models(
                    search=text, sort="downloads", limit=limit,
                    expand=["downloads", "gated", "private", "safetensors", "gguf"],
                )
            )  # fmt: skip
            return tuple(_entry(model) for model in found)

    def fetch(self, repository: str, commit: str, file: str, start: int, length: int) -> tuple[bytes, int | None]:
        """`length` bytes of a file from `start` (fewer at its end), and the file's size if the answer tells it."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(repository, file, revision=commit, endpoint=self.endpoint)
        where = f"hub:{repository}/{file}"
        for number in range(TRIES):
            self.control.check()
            with _Translated(repository, commit, file):
                wait, answer = self._try(url, start, length, where)
            if answer is not None:
                return answer
            if number + 1 < TRIES:
                self._pause(min(wait, LONGEST_WAIT_S))
        raise HubError("rate_limited", "the Hub asks to wait, or is overloaded", where, "Try again in a few minutes")

    def _try(self, url: str, start: int, length: int, where: str) -> tuple[float, tuple[bytes, int | None] | None]:
        """One request: how long to wait before the next one, or the answer."""
        utils = _utils()
        headers = utils.build_hf_headers(library_name="kvplanner")
        headers["Range"] = f"bytes={start}-{start + length - 1}"
        # A compressed answer would not be the bytes of that range.
        headers["Accept-Encoding"] = "identity"
        with utils.get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S) as response:
            if response.status_code == 429 or response.status_code >= 500:
                after = response.headers.get("Retry-After", "")
                return (float(after) if after.isdigit() else 1.0), None
            utils.hf_raise_for_status(response)
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
        data = self._collect(response, skip + length, where)
        if len(data) > skip + length and response.status_code == 206:
            raise _lie("sent more bytes than it announced", start, length, where)
        if len(data) < skip + length and response.status_code == 206:
            raise _lie(f"stopped after {len(data):,} bytes", start, length, where)
        return data[skip : skip + length], total

    def _collect(self, response: Any, wanted: int, where: str) -> bytes:
        deadline = time.monotonic() + DEADLINE_S
        parts = bytearray()
        for part in response.iter_raw(64 << 10):
            self.control.check()
            parts += part
            if len(parts) > wanted:
                break
            if time.monotonic() > deadline:
                raise HubError(
                    "slow", f"sent {len(parts):,} of {wanted:,} bytes in {DEADLINE_S:g} s", where, "Try again"
                )
        return bytes(parts)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.control.check()
            time.sleep(min(left, 0.1))


def _lie(what: str, start: int, length: int, where: str) -> HubError:
    return HubError(
        "bad_answer", f"asked for bytes {start:,} to {start + length - 1:,}, and the server {what}", where,
        "Try again; if it stays so, a proxy or mirror between here and the Hub is at fault",
    )  # fmt: skip


def _entry(model: Any) -> HubEntry:
    tensors = model.safetensors.total if model.safetensors else None
    gguf = model.gguf if isinstance(model.gguf, dict) else {}
    total = tensors if isinstance(tensors, int) else gguf.get("total")
    return HubEntry(
        str(model.id), model.downloads or 0, bool(model.gated), bool(model.private),
        total if isinstance(total, int) else None, "safetensors" if model.safetensors else "GGUF" if gguf else "",
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
