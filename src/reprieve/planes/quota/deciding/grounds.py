"""The nodes that the engine places pods on, as they are between two runs of cycles.

What a node has free for topologies is what it offers less what its pods use, but for the pods of
workloads that hold places: those are counted by their assignments. A node that is not ready is no
place. Whenever a node, or what uses it, has changed, the
ClusterQueues whose flavors have topologies are tried again. Before nodes and pods are known they
admit no workload.

Source: specification of topology-aware scheduling, sections 1.2 and 2.1 to 2.3; of its section 9
that pods which belong to a workload with places count through that workload alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import NodeRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.quota.assigning.constraints import Taint
from reprieve.engine.quota.failing_nodes import NodeCondition, failing_nodes, next_failure
from reprieve.engine.quota.holdings.placed import placing_keys, queues_with_places
from reprieve.engine.quota.model import Configuration, Workload
from reprieve.engine.quota.node_failures import Marks, marks_of
from reprieve.engine.topology.model import HOSTNAME, TopologyNode
from reprieve.engine.topology.places import Grounds, Places
from reprieve.planes.quota.deciding.node_view import NodeView
from reprieve.planes.quota.state import QuotaState
from reprieve.units.ids import Uid

__all__ = ["GroundView", "nodes_of"]


class GroundView:
    """Hands the nodes to the engine where flavors have topologies.

    `changed` is called with each Workload with places whenever nodes have changed.
    """

    def __init__(
        self, state: QuotaState, nodes: NodeView, changed: Callable[[str], None], clock: Clock
    ) -> None:
        self._state = state
        self._clock = clock
        self._changed = changed
        self._nodes = nodes
        self._known: list[TopologyNode] | None = None
        self._configuration: Configuration | None = None
        self._snapshot: Snapshot | None = None
        self._named: Mapping[str, NodeRow] = {}
        self._named_of: Sequence[NodeRow] | None = None
        state.settlers.append(self.settle)

    @property
    def places(self) -> bool:
        """Whether pods are given places."""
        return self._known is not None

    def settle(self) -> None:
        """Apply what has changed."""
        state = self._state
        queues = queues_with_places(state.configuration)
        state.unplaced = frozenset(queues if self._known is None else ())
        if not queues:
            return
        self._nodes.place()
        snapshot = self._nodes.cluster()
        if snapshot is None:
            return
        state.unplaced = frozenset()
        nodes = nodes_of(snapshot, self._placed_pods())
        if nodes != self._known or state.configuration is not self._configuration:
            self._known, self._configuration = nodes, state.configuration
            state.holdings.stand_on(Grounds(nodes))
            state.queues.flush(queues)
            for key, holder in state.holdings.holders.items():
                if holder.placed:
                    self._changed(key)
        self._snapshot = snapshot

    def failing(self) -> Iterator[tuple[str, Marks]]:
        """Yield by key what is to be written of the failed nodes of those who hold places."""
        state, snapshot = self._state, self._snapshot
        places = state.holdings.places
        if places is None or snapshot is None:
            return
        hosts = self._by_host(snapshot)
        for key, holder in list(state.holdings.holders.items()):
            workload = holder.workload
            if holder.evicted or key in state.deciding:
                continue
            if not holder.placed and not workload.unhealthy_nodes:
                continue
            failed = self._failed(key, workload, places, hosts)
            marks = marks_of(workload, failed, state.configuration.settings.profile)
            if marks is not None:
                yield key, marks

    def failed(self, key: str) -> list[str]:
        """Return the nodes of a workload's places that have failed, also those not named yet."""
        state, snapshot = self._state, self._snapshot
        places, holder = state.holdings.places, state.holdings.holders.get(key)
        if places is None or snapshot is None or holder is None:
            return []
        return self._failed(key, holder.workload, places, self._by_host(snapshot))

    def next_failure(self) -> Nanos | None:
        """Return when a node counts as failed by time alone, without a change of the node."""
        if self._snapshot is None or self._state.holdings.places is None:
            return None
        rows = (self._nodes.node(row.name) for row in self._by_host(self._snapshot).values())
        conditions = (_condition(row) for row in rows if row is not None and not row.ready)
        return next_failure(conditions, self._state.configuration, self._clock.wall())

    def _failed(
        self, key: str, workload: Workload, places: Places, hosts: Mapping[str, NodeRow]
    ) -> list[str]:
        def runs_on(host: str) -> bool:
            return host in hosts and self._runs_on(key, hosts[host].name)

        def node_of(host: str) -> NodeCondition | None:
            # As it is now: no decision may have been made since it changed.
            row = self._nodes.node(hosts[host].name) if host in hosts else None
            return None if row is None else _condition(row)

        now = self._clock.wall()
        return failing_nodes(workload, self._state.configuration, places, now, runs_on, node_of)

    def _by_host(self, snapshot: Snapshot) -> Mapping[str, NodeRow]:
        if snapshot.nodes is not self._named_of:
            self._named_of = snapshot.nodes
            self._named = {row.labels.get(HOSTNAME, row.name): row for row in snapshot.nodes}
        return self._named

    def _runs_on(self, workload: str, node: str) -> bool:
        """Return whether a pod of a workload still runs on a node."""
        rows = (self._nodes.row(uid) for uid in self._nodes.pods_of(workload))
        return any(row is not None and row.node == node and not row.deleting for row in rows)

    def _placed_pods(self) -> set[Uid]:
        """Return the pods of those that hold places."""
        return {
            uid
            for key in placing_keys(self._state.holdings.holders.values())
            for uid in self._nodes.pods_of(key)
        }


def _condition(row: NodeRow) -> NodeCondition:
    return NodeCondition(_taints(row), row.ready, row.unready_since)


def _taints(row: NodeRow) -> tuple[Taint, ...]:
    return tuple(Taint(each.key, each.value, each.effect) for each in row.taints)


def nodes_of(snapshot: Snapshot, placed: Collection[Uid]) -> list[TopologyNode]:
    """Return the nodes with what is free for topologies, `placed` pods not counted."""
    free = snapshot.allocatable - snapshot.used
    pods = snapshot.resources.index("pods")
    for slot, uid in enumerate(snapshot.pod_uids if placed else ()):
        node = int(snapshot.pod_node[slot])
        if uid in placed and node >= 0:
            free[node] += snapshot.pod_requests[slot]
            if not snapshot.pod_requests[slot, pods]:
                free[node, pods] += 1
    names = snapshot.resources
    found = []
    for node, row in enumerate(snapshot.nodes):
        amounts = free[node].tolist()
        found.append(
            TopologyNode(
                row.name,
                row.labels,
                dict(zip(names, amounts, strict=True)),
                _taints(row),
                row.ready,
                row.unschedulable,
            )
        )
    return found
