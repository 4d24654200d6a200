"""A stage in this process: embedded cluster, machines and exporter, and the client that sees it.

The runner and people use one user, the operator another whose rights can be changed. Everything is
stopped in the reverse order of its start, whatever happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Unpack

from kubelocal.cluster import EmbeddedCluster
from kubelocal.machines.embedded import EmbeddedObjects
from kubelocal.machines.run import Machines
from kubelocal.server.writing.options import WriteOptions
from kubeworld.units.clock import Clock, SystemClock
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.stage import Stage
from reprieve.scenarios.staging import OPERATOR_NAMESPACE, Staging, staged

__all__ = [
    "OPERATOR_NAMESPACE",
    "OPERATOR_USER",
    "EmbeddedStage",
    "embedded_stage",
    "holds_cluster",
]

OPERATOR_USER: Final = "reprieve"
#: What kubectl calls the cluster of `reprieve up`.
_CONTEXT: Final = "reprieve"


@dataclass(frozen=True, slots=True)
class EmbeddedStage:
    """A running embedded cluster and the stage on it."""

    stage: Stage
    cluster: EmbeddedCluster
    machines: Machines
    kubeconfig: Path
    operator_kubeconfig: Path
    metrics_endpoint: str


@asynccontextmanager
async def embedded_stage(
    nodes: Sequence[NodeSpec],
    directory: Path,
    *,
    clock: Clock | None = None,
    port: int = 0,
    data: Path | None = None,
    kubeconfig: Path | None = None,
    tls: bool = False,
    rbac: bool = False,
    operator_user: str = OPERATOR_USER,
    operator_roles: Sequence[Mapping[str, Any]] | None = None,
    feature_gates: Mapping[str, bool] | None = None,
    strict_disruption_mode: bool = False,
    hosts: Collection[str] = (),
    **staging: Unpack[Staging],
) -> AsyncIterator[EmbeddedStage]:
    """Start everything but the operator, with the CRDs and the operator's namespace in place.

    `directory` holds the kubeconfig files, but the users' one where `kubeconfig` names another
    path; `port` 0 is any free one; `data` None keeps the cluster in memory. With `rbac` the
    operator has the rights of `operator_roles`, roles and their bindings, and every right without
    them. `feature_gates` of the server that differ from its defaults, and `strict_disruption_mode`
    and `hosts` as the server accepts them.

    Raises:
        OSError: the port is in use, or a file cannot be written.
    """
    clock = clock or SystemClock()
    cluster = EmbeddedCluster(
        clock=clock,
        port=port,
        data=data,
        tls=tls,
        rbac=rbac,
        feature_gates=feature_gates,
        strict_disruption_mode=strict_disruption_mode,
        hosts=hosts,
    )
    people, operator = kubeconfig or directory / "kubeconfig", directory / "operator.kubeconfig"
    async with _running(cluster):
        cluster.write_kubeconfig(people, name=_CONTEXT)
        cluster.write_kubeconfig(operator, user=operator_user, name=_CONTEXT)
        async with staged(
            people,
            operator,
            nodes,
            clock,
            store=EmbeddedObjects(cluster.api),
            rights=_UserRights(cluster, operator_user),
            **staging,
        ) as (stage, machines):
            if rbac:
                await _give(cluster, operator_roles or [_every_right(operator_user)])
            exporter = machines.exporter.url
            yield EmbeddedStage(stage, cluster, machines, people, operator, exporter)


@asynccontextmanager
async def _running(cluster: EmbeddedCluster) -> AsyncIterator[None]:
    await cluster.start()
    try:
        yield
    finally:
        await cluster.stop()


def holds_cluster(data: Path) -> bool:
    """Whether a folder has the objects of an embedded cluster from an earlier start."""
    return (data / "objects.sqlite").exists()


async def _give(cluster: EmbeddedCluster, roles: Sequence[Mapping[str, Any]]) -> None:
    """Create roles and bindings that are not there."""
    for obj in roles:
        kind = cluster.registry.by_kind(obj["apiVersion"], obj["kind"])
        assert kind is not None, obj["kind"]
        namespace = obj["metadata"].get("namespace", "")
        if not cluster.api.exists(kind, namespace, obj["metadata"]["name"]):
            await cluster.api.create(kind, namespace, dict(obj), WriteOptions())


def _every_right(user: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reprieve-operator"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


class _UserRights:
    """The rights of the operator's user on an embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster, user: str) -> None:
        self._cluster, self._user = cluster, user

    async def deny(self, verb: str, group: str, resource: str) -> None:
        self._cluster.deny(self._user, verb, group, resource)

    async def allow(self, verb: str, group: str, resource: str) -> None:
        self._cluster.allow(self._user, verb, group, resource)
