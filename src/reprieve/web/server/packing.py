"""Answers packed with gzip: whole ones, and streams of which each part must arrive at once."""

from __future__ import annotations

import gzip
import zlib
from typing import Final

from aiohttp import web

__all__ = ["Packer", "accepts_gzip", "json_answer"]

#: Below this the header of gzip and the work are not worth it.
_WORTH: Final = 512
_LEVEL: Final = 5


def accepts_gzip(request: web.Request) -> bool:
    """Return whether an answer may be packed."""
    for part in request.headers.get("Accept-Encoding", "").split(","):
        coding, _, quality = part.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def json_answer(
    request: web.Request,
    document: bytes,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    content_type: str = "application/json",
) -> web.Response:
    """Answer with a document, packed where that is accepted and worth it."""
    reported = {"Vary": "Accept-Encoding", **(headers or {})}
    if len(document) >= _WORTH and accepts_gzip(request):
        document = gzip.compress(document, _LEVEL, mtime=0)
        reported["Content-Encoding"] = "gzip"
    return web.Response(
        body=document, status=status, headers=reported, content_type=content_type, charset="utf-8"
    )


class Packer:
    """Packs a stream so that the other end can read each part when it comes."""

    def __init__(self) -> None:
        # 16 added to the window's bits requests gzip's frame.
        self._stream = zlib.compressobj(_LEVEL, wbits=15 + 16)

    def __call__(self, part: bytes) -> bytes:
        return self._stream.compress(part) + self._stream.flush(zlib.Z_SYNC_FLUSH)
