"""A registry of images that has `busybox` and nothing else: `registry.py ADDRESS PORT`.

Whoever names an image without a registry, as guides do, gets it from here: the nodes read it in
place of Docker Hub.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys

from aiohttp import web

from tests.node.small_image import parts

_NAME = "library/busybox"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def digest_of(data: bytes) -> str:
    """Return the digest of a blob."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def registry() -> web.Application:
    """Return a server of the one image, under any tag."""
    layer, settings = parts(["sh"])
    described = [
        {"mediaType": kind, "size": len(data), "digest": digest_of(data)}
        for kind, data in ((_CONFIG, settings), (_LAYER, layer))
    ]
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": described[0],
        "layers": described[1:],
    }
    index = json.dumps(manifest).encode()
    blobs = {digest_of(data): data for data in (layer, settings)}

    async def root(_: web.Request) -> web.Response:
        return web.json_response({})

    async def manifests(_: web.Request) -> web.Response:
        digest = {"Docker-Content-Digest": digest_of(index)}
        return web.Response(body=index, content_type=_MANIFEST, headers=digest)

    async def blob(request: web.Request) -> web.Response:
        found = blobs.get(request.match_info["digest"])
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found, content_type="application/octet-stream")

    app = web.Application()
    app.router.add_get("/v2/", root)
    app.router.add_get(f"/v2/{_NAME}/manifests/{{reference}}", manifests)
    app.router.add_get(f"/v2/{_NAME}/blobs/{{digest}}", blob)
    return app


async def main(address: str, port: str) -> None:
    """Serve until the end."""
    runner = web.AppRunner(registry())
    await runner.setup()
    await web.TCPSite(runner, address, int(port)).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
