"""GPU metrics of running pods: `exporter.py KUBECONFIG ADDRESS PORT FILE`.

A pod whose name begins with a word of the file uses its GPUs at 0 percent, any other at 90.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import PODS

GPU = "amd.com/gpu"


async def main(kubeconfig: str, address: str, port: str, file: str) -> None:
    """Serve until the end."""
    client = connect(await load_connection(kubeconfig), SystemClock())

    async def metrics(_: web.BaseRequest) -> web.Response:
        idle = tuple((await asyncio.to_thread(Path(file).read_text)).split())
        page = await client.list(PODS, dict, field_selector="status.phase=Running")
        lines = ["# TYPE gpu_gfx_activity gauge"]
        for pod in page.items:
            metadata = pod["metadata"]
            used = 0 if metadata["name"].startswith(idle) else 90
            containers = pod["spec"]["containers"]
            limits = [(each.get("resources") or {}).get("limits") or {} for each in containers]
            for number in range(sum(int(each.get(GPU, 0)) for each in limits)):
                lines.append(
                    f'gpu_gfx_activity{{gpu_id="{number}",namespace="{metadata["namespace"]}",'
                    f'pod="{metadata["name"]}"}} {used}'
                )
        return web.Response(text="\n".join([*lines, ""]))

    server = web.ServerRunner(web.Server(metrics))
    await server.setup()
    await web.TCPSite(server, address, int(port)).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
