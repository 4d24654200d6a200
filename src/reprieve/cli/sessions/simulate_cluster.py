"""What a study reads of a real cluster: its nodes, and the jobs that it has run.

`cluster: {from: FILE}` is a list of nodes (`.csv`), a file of `reprieve snapshot`, or a kubeconfig,
with which the nodes are listed when the study is read. `workload: {trace: snapshot}` are the
finished Workloads of such a snapshot. The replay itself knows no cluster; it is given what is read
here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kubeworld.units.clock import SystemClock
from kubeworld.units.quantities import parse_quantity
from reprieve.cli.sessions.reading import reading_client
from reprieve.cli.snapshot import read_snapshot
from reprieve.engine.lost_work import devices_of
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import NODES
from reprieve.simulation.node_lists import read_node_list
from reprieve.simulation.readers import READERS, Reader
from reprieve.simulation.readers.kueue import workload_jobs
from reprieve.simulation.study import Study, read_study
from reprieve.simulation.trace import Trace
from reprieve.units.errors import UsageError
from reprieve.whatif.copy.lists import gather
from reprieve.whatif.snapshots.snapshot import Snapshot

__all__ = ["FORMS", "devices_of_nodes", "read_snapshot_trace", "study_of"]

_GZIP: Final = b"\x1f\x8b"
_WORKLOADS: Final = ("kueue.x-k8s.io", "workloads")


class _Status(msgspec.Struct):
    allocatable: dict[str, str | int] = {}


class _Node(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


def study_of(path: Path) -> Study:
    """Return the study of a file, with all that it reads of clusters.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    return read_study(path, FORMS, devices_of_nodes)


def read_snapshot_trace(path: Path, name: str) -> Trace:
    """Return the finished Workloads of a snapshot as jobs.

    Raises:
        UsageError: it is no snapshot, or has no Workloads.
    """
    listed = read_snapshot(str(path), str(path)).kinds.get(_WORKLOADS)
    if listed is None or not listed.objects:
        raise UsageError(
            f"{path}: without Workloads; accepted: a file of reprieve snapshot, of a cluster with "
            f"Kueue or the quota plane, by a user who may list them"
        )
    return workload_jobs(name, [msgspec.json.decode(body) for body in listed.objects.values()])


def devices_of_nodes(path: Path) -> Sequence[int]:
    """Return the devices of each node, from a list, a snapshot or the cluster of a kubeconfig.

    Raises:
        UsageError: it is none of these, or the nodes cannot be listed.
    """
    if ".csv" in path.suffixes:
        return read_node_list(path)
    try:
        with path.open("rb") as file:
            is_snapshot = file.read(2) == _GZIP
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; accepted: a file of reprieve snapshot, a kubeconfig, or a "
            f"list of nodes in csv"
        ) from None
    snapshot = read_snapshot(str(path), str(path)) if is_snapshot else asyncio.run(_nodes(path))
    listed = snapshot.kinds.get(("", "nodes"))
    if listed is None or any(each.resource == NODES for each in snapshot.unseen):
        raise UsageError(f"{path}: the nodes could not be listed; accepted: with rights to do so")
    nodes = (msgspec.json.decode(body, type=_Node) for body in listed.objects.values())
    return [
        devices_of((name, parse_quantity(much)) for name, much in node.status.allocatable.items())
        for node in nodes
    ]


#: What a study may name as the form of its trace.
FORMS: Final[Mapping[str, Reader]] = {**READERS, "snapshot": read_snapshot_trace}


async def _nodes(kubeconfig: Path) -> Snapshot:
    clock = SystemClock()
    connection = await load_connection(str(kubeconfig), None, clock)
    client = reading_client(connection, clock)
    try:
        return await gather(client, (NODES,), clock)
    except ApiError as failure:
        raise UsageError(f"{kubeconfig}: {' '.join(str(failure).split())}") from None
    finally:
        await client.close()
