"""Reading an answer's body under a limit that counts what comes out of the compression, never more than it at once."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import httpcore
import httpx

ACCEPTED_ENCODING = "gzip"
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Body:
    """What could be read of a body."""

    content: bytes
    problem: str = ""
    """Why it is not whole; empty: it is."""
    too_large: bool = False
    lost: bool = False
    """The connection ended in the middle of it."""


async def read_body(answer: httpx.Response, limit: int) -> Body:
    """Return the body, or as much of it as came before it was cut, broke off or passed the limit."""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", ACCEPTED_ENCODING):
        return Body(b"", f"a body in the encoding {encoding[:40]}, which nobody asked for")
    unpack = zlib.decompressobj(_GZIP) if encoding == ACCEPTED_ENCODING else None
    content = bytearray()
    try:
        async for part in answer.aiter_raw():
            content += part if unpack is None else unpack.decompress(part, limit + 1 - len(content))
            if len(content) > limit:
                return Body(bytes(content[:limit]), f"a body of more than {limit} bytes", too_large=True)
    except zlib.error as error:
        return Body(bytes(content), f"a body that is no gzip: {error}")
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpx.HTTPError) as error:
        return Body(bytes(content), f"the body broke off: {error}", lost=True)
    if unpack is not None and content and not unpack.eof:
        return Body(bytes(content), "the compressed body ends in the middle", lost=True)
    return Body(bytes(content))
