"""The embedded cluster on its own, as `bench.local` measures it: as `reprieve up` runs it.

`python -m bench.local_server FOLDER` prints its port and serves.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kubelocal.cluster import EmbeddedCluster
from reprieve.operator.collector import relax_collector

__all__ = ["serve"]


async def serve(folder: Path) -> None:
    relax_collector()
    async with EmbeddedCluster(data=folder) as cluster:
        print(cluster.url.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
