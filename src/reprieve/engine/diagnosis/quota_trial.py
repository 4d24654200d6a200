"""One workload decided about once more by the engine: alone, now, from the first flavor.

The snapshot is the holdings' own, so the holders of quota are never copied; no call in this module
changes a later decision. Source: specification of the quota plane, sections 5 to 8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kubeworld.units.instants import Nanos
from reprieve.engine.pace import UNHURRIED
from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.assigning.assignment import Assignment, NoFitReason
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import Check, Configuration, Settings, Workload
from reprieve.engine.quota.nominations import Nominations
from reprieve.engine.quota.targets.candidates import Target
from reprieve.engine.quota.targets.preemption import nobody
from reprieve.engine.quota.targets.protection import Spared
from reprieve.engine.quota.waiting.queues import Queues

__all__ = ["QuotaFacts", "Trial", "attempt", "severity", "with_fewest_pods"]


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """What there is to know: who holds quota, who waits, and what was stated last.

    `entry` is what the last cycle that looked at the workload stated of it, None where none did;
    `ledger` is of who displaced whom. Neither is changed.
    """

    holdings: Holdings
    queues: Queues
    now: Nanos
    ledger: Displacements | None = None
    entry: Entry | None = None

    @property
    def configuration(self) -> Configuration:
        """Return the configuration in force."""
        return self.holdings.configuration


@dataclass(frozen=True, slots=True)
class Trial:
    """What the engine decides, and the snapshot that it decided on."""

    assignment: Assignment
    targets: tuple[Target, ...]
    spared: Spared | None
    snapshot: Snapshot
    queue: int


def attempt(facts: QuotaFacts, workload: Workload, gone: Iterable[Holder] = ()) -> Trial | None:
    """Return the decision about a workload alone, None where its queue accepts no workload.

    Args:
        facts: the state.
        workload: as it is, or changed.
        gone: the workloads that have left.
    """
    local = facts.configuration.local_queues.get(workload.queue)
    if local is None or local.cluster_queue not in facts.configuration.cluster_queues:
        return None
    snapshot = _reporting(facts.holdings.snapshot()).without(gone)
    entry = Entry(_considered(workload), local.cluster_queue)
    # No earlier scan of flavors continues.
    queues = Queues(Configuration(settings=snapshot.settings))
    nominations = Nominations(
        snapshot, facts.holdings, queues, facts.now, 0, facts.ledger, UNHURRIED
    )
    refusals = dict(facts.ledger.refusals) if facts.ledger is not None else {}
    admissible = nominations.admit(entry)
    if facts.ledger is not None:
        # A question is no refusal that anything has to be decided again with.
        facts.ledger.refusals.clear()
        facts.ledger.refusals.update(refusals)
    if not admissible or entry.assignment is None:
        return None
    return Trial(entry.assignment, entry.targets, entry.spared, snapshot, entry.queue)


def severity(holdings: Holdings, workload: Workload, cluster_queue: str) -> NoFitReason:
    """Return why a workload would have no flavors without preemption, of its fewest pods.

    Nothing is searched, so it may be called for each head of a cycle. A ClusterQueue that is
    not there gives no reason.
    """
    queue = holdings.tree.queues.get(cluster_queue)
    if queue is None:
        return NoFitReason.NONE
    workload = with_fewest_pods(workload, holdings.configuration.settings)
    # Usage is the holdings' own: it is read, and nothing is added to it.
    snapshot = Snapshot(
        holdings.configuration,
        holdings.tree,
        holdings.usage,
        [],
        {},
        holdings.reckoning,
        places=holdings.places,
    )
    return Assigner(_reporting(snapshot), workload, queue, nobody).assign().no_fit_reason


def with_fewest_pods(workload: Workload, settings: Settings) -> Workload:
    """Return the workload as the smallest that may be admitted."""
    if not settings.gates.partial_admission:
        return workload
    pod_sets = tuple(
        each if each.min_count is None else replace(each, count=each.min_count, min_count=None)
        for each in workload.pod_sets
    )
    return replace(workload, pod_sets=pod_sets)


def _considered(workload: Workload) -> Workload:
    """Return the workload as if its checks had not failed: its quota is another question."""
    checks = dict.fromkeys(workload.checks, Check.PENDING)
    return replace(workload, checks=checks) if checks else workload


def _reporting(snapshot: Snapshot) -> Snapshot:
    """Have the assignment state why nothing fits, whether or not conditions do."""
    settings = snapshot.settings
    gates = replace(settings.gates, unadmitted_workloads_observability=True)
    snapshot.settings = replace(settings, gates=gates)
    return snapshot
