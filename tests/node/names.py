"""Names of Services, for pods: `names.py KUBECONFIG ADDRESS` answers on port 53.

Knows addresses of Services by their full name, and nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import Resource

_SERVICES = Resource("", "v1", "services", "Service")
_HEADER = 12
_ADDRESS = 1  # the type of a question
_DOMAIN = ["svc", "cluster", "local"]


async def main(kubeconfig: str, address: str) -> None:
    """Answer until the end."""
    client = connect(await load_connection(kubeconfig), SystemClock())
    port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    port.setblocking(False)
    port.bind((address, 53))
    loop = asyncio.get_running_loop()
    while True:
        question, who = await loop.sock_recvfrom(port, 4096)
        await loop.sock_sendto(port, await answer(client, question), who)


async def answer(client: Client, question: bytes) -> bytes:
    """Return the answer to one question."""
    labels, at = [], _HEADER
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode().lower())
        at += question[at] + 1
    (kind,) = struct.unpack(">H", question[at + 1 : at + 3])
    found = await service(client, labels)
    records = b""
    if found and kind == _ADDRESS:
        records = b"\xc0\x0c" + struct.pack(">HHIH", _ADDRESS, 1, 5, 4) + socket.inet_aton(found)
    code = 0x8580 if found else 0x8583
    counts = struct.pack(">HHHHH", code, 1, bool(records), 0, 0)
    return question[:2] + counts + question[_HEADER : at + 5] + records


async def service(client: Client, labels: list[str]) -> str:
    """Return the address of a Service, empty where there is none of that name."""
    if labels[2:] != _DOMAIN:
        return ""
    try:
        found = await client.get(_SERVICES, labels[1], labels[0], dict)
    except ApiError:
        return ""
    return str(found["spec"].get("clusterIP", ""))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
