"""Node exporters in one process: many loopback addresses, one port, other values at each tick.

`python -m bench.exporters NODES FAMILIES` prints its port. `GET /metrics` on the address of a node
(`node_address`) answers with that node's families of eight GPUs; `GET /tick/N` makes the bodies of
tick N. What a GPU's use is at a tick follows from `use_of` alone, so that whoever knows the tick
can check a reading without reading any text.
"""

from __future__ import annotations

import asyncio
import sys
from hashlib import blake2b

from aiohttp import web

__all__ = ["FAMILY", "GPUS_PER_NODE", "NAMESPACES", "node_address", "pod_of", "use_of"]

FAMILY = "gpu_gfx_activity"
GPUS_PER_NODE = 8
NAMESPACES = 50
# GPUs of a node by pod: one of four, one of two, two of one.
PODS_OF_NODE = (0, 0, 0, 0, 1, 1, 2, 3)
_WANTED_AT = 17


def node_address(node: int) -> str:
    """Return the loopback address of a node's exporter."""
    return f"127.{node >> 16 & 255}.{1 + (node >> 8 & 255)}.{node & 255}"


def pod_of(node: int, gpu: int) -> tuple[str, str]:
    """Return namespace and name of the pod that holds a GPU."""
    pod = PODS_OF_NODE[gpu]
    return f"team-{(node + pod) % NAMESPACES:02}", f"training-{node:05}-{pod}-x7k2p"


def use_of(tick: int, node: int, gpu: int) -> float:
    """Return the use of a GPU in percent: below 3 for about a third of the pods, else above 20."""
    pod = PODS_OF_NODE[gpu]
    fraction = int.from_bytes(
        blake2b(f"{tick}/{node}/{gpu}".encode(), digest_size=4).digest(), "big"
    ) / (1 << 32)
    idle = (node * 4 + pod + tick) % 3 == 0
    return round(3 * fraction if idle else 20 + 80 * fraction, 3)


class Exporters:
    """The bodies of one tick. Only values change from tick to tick; their text is made anew."""

    def __init__(self, nodes: int, families: int) -> None:
        self._templates = [_template(node, families) for node in range(nodes)]
        self._families = families
        self.bodies: list[bytes] = []
        self.tick(0)

    def tick(self, tick: int) -> None:
        self.bodies = [
            template % tuple(_values(tick, node, self._families))
            for node, template in enumerate(self._templates)
        ]

    async def metrics(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        _, high, middle, low = request.transport.get_extra_info("sockname")[0].split(".")
        node = int(high) << 16 | int(middle) - 1 << 8 | int(low) if middle != "0" else 0
        return web.Response(
            body=self.bodies[node],
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def change(self, request: web.Request) -> web.Response:
        self.tick(int(request.match_info["tick"]))
        return web.Response(text=str(sum(map(len, self.bodies))))


def _template(node: int, families: int) -> bytes:
    text = []
    for family in range(families):
        name = FAMILY if family == _WANTED_AT % families else f"gpu_family_{family:02}_activity"
        text.append(f"# HELP {name} A quantity of the GPU, as its driver reports it\n")
        text.append(f"# TYPE {name} gauge\n")
        for gpu in range(GPUS_PER_NODE):
            namespace, pod = pod_of(node, gpu)
            text.append(
                f'{name}{{card_model="0x74a1",card_series="Instinct MI300X",'
                f'container="training",driver_version="6.8.5",gpu_compute_partition_type="spx",'
                f'gpu_id="{gpu}",gpu_partition_id="0",hostname="node-{node:05}",job_id="",'
                f'namespace="{namespace}",pod="{pod}",serial_number="69{node:05}{gpu}"}} %s\n'
            )
    return "".join(text).encode()


def _values(tick: int, node: int, families: int) -> list[bytes]:
    uses = [use_of(tick, node, gpu) for gpu in range(GPUS_PER_NODE)]
    values = []
    for family in range(families):
        for gpu, use in enumerate(uses):
            wanted = family == _WANTED_AT % families
            value = use if wanted else round(use * (family + 1) + tick + gpu / 7, 3)
            values.append(repr(value).encode())
    return values


async def serve(nodes: int, families: int) -> None:
    exporters = Exporters(nodes, families)
    application = web.Application()
    application.router.add_get("/metrics", exporters.metrics)
    application.router.add_get("/tick/{tick}", exporters.change)
    runner = web.AppRunner(application, access_log=None, keepalive_timeout=3600.0)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0, backlog=4096).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
