"""The built files of the page, held in memory: few, small, and no path of a request is opened.

A file with a hash in its name may be kept for ever; `index.html` is requested anew each time, and
every address of a page answers with it. An installation that was built without them states it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

import reprieve.web
from reprieve.web.server.packing import accepts_gzip

__all__ = ["STATIC", "Assets", "load_assets"]

STATIC: Final = Path(reprieve.web.__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_TEXTS: Final = ("text/", "application/json", "application/manifest+json", "image/svg+xml")
_INDEX: Final = "index.html"
_MISSING: Final = (
    "This installation of Reprieve was built without the page.\n"
    "A wheel has it; from the sources, it is built unless REPRIEVE_WITHOUT_WEB is set.\n"
    "The data of a page is there all the same: /api/page/now\n"
)


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    packed: bytes | None
    content_type: str
    tag: str


@dataclass(frozen=True, slots=True)
class Assets:
    """Files by name; without any the page was not built."""

    files: Mapping[str, _File]

    def index(self, request: web.Request) -> web.Response:
        """Answer for the address of a page."""
        file = self.files.get(_INDEX)
        if file is None:
            return web.Response(text=_MISSING, status=503)
        return _answer(request, file, "no-cache")

    def asset(self, request: web.Request) -> web.Response | None:
        """Answer for `/assets/NAME`; None where there is none of that name."""
        name = request.match_info["name"]
        file = None if name == _INDEX else self.files.get(name)
        if file is None:
            return None
        return _answer(request, file, "public, max-age=31536000, immutable")


def load_assets(folder: Path = STATIC) -> Assets:
    """Read the built files; those that the manifest names, and no others."""
    try:
        names = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=dict[str, str])
        return Assets({name: _read(folder / name) for name in names.values()})
    except (OSError, msgspec.DecodeError):
        return Assets({})


def _read(path: Path) -> _File:
    content = path.read_bytes()
    packed = path.with_name(f"{path.name}.gz")
    return _File(
        content,
        packed.read_bytes() if packed.is_file() else None,
        _TYPES.get(path.suffix, "application/octet-stream"),
        f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    )


def _answer(request: web.Request, file: _File, cache: str) -> web.Response:
    headers = {"Cache-Control": cache, "ETag": file.tag, "Vary": "Accept-Encoding"}
    if request.headers.get("If-None-Match") == file.tag:
        return web.Response(status=304, headers=headers)
    body = file.content
    if file.packed is not None and accepts_gzip(request):
        body = file.packed
        headers["Content-Encoding"] = "gzip"
    charset = "utf-8" if file.content_type.startswith(_TEXTS) else None
    return web.Response(body=body, headers=headers, content_type=file.content_type, charset=charset)
