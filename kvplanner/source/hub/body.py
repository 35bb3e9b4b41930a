"""The body of an answer, never more of it than was allowed, and never more once it is unpacked."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any, Final

from kvplanner.source.hub.errors import HubError

_CHUNK_BYTES: Final = 64 << 10
# zlib: either wrapper, told by its first bytes.
_ANY_WRAPPER: Final = 47


def collect(response: Any, most_bytes: int, seconds: float, check: Callable[[], None], where: str) -> bytes:
    """The raw bytes of an answer, cut a chunk behind `most_bytes`. Raises HubError when that takes too long."""
    end = time.monotonic() + seconds
    parts = bytearray()
    for part in response.iter_raw(_CHUNK_BYTES):
        check()
        parts += part
        if len(parts) > most_bytes:
            break
        if time.monotonic() > end:
            raise too_slow(seconds, where, len(parts))
    return bytes(parts)


def too_slow(seconds: float, where: str, received: int | None = None) -> HubError:
    """The error for an answer that has not ended in time."""
    sent = "" if received is None else f", {received:,} bytes came"
    return HubError("slow", f"the Hub did not answer within {seconds:g} s{sent}", where, "Try again")


def unpacked(data: bytes, encoding: str, most_bytes: int, where: str) -> bytes:
    """A body as its Content-Encoding says. Raises HubError when it is larger than allowed, or packed otherwise."""
    kind = encoding.strip().lower()
    if kind in ("gzip", "x-gzip", "deflate"):
        unpack = zlib.decompressobj(_ANY_WRAPPER)
        try:
            data = unpack.decompress(data, most_bytes + 1)
        except zlib.error as error:
            raise HubError("bad_answer", "the answer is packed, and cannot be unpacked", where, _CHECK) from error
    elif kind not in ("", "identity"):
        raise HubError("bad_answer", f"the answer is packed as {kind[:40]!r}, which was not asked for", where, _CHECK)
    if len(data) > most_bytes:
        raise HubError("bad_answer", f"the answer is larger than {most_bytes:,} bytes", where, _CHECK)
    return data


_CHECK: Final = "Check HF_ENDPOINT, and whether a proxy or a log-in page answers in the Hub's place"
