"""The plan that an entry of a cycle stands for, in the form that every plane's decisions have.

The proof is one of quota: what the preemptor requests of each resource is no more than what its
ClusterQueue has available, once the victims of plans before it in the cycle are evicted, plus what
its own victims hold of the same flavors. What is available to a queue never grows by more than what
is released, so this follows from the search. By option each pod of the preemptor has found a node
too, which is a proof of placement.

Source: design ("Intent log and executor"); specification of the quota plane, section 9.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reprieve.engine.plan import Guard, Plan, Plane, Proof, ProofLevel, Victim, plan_id
from reprieve.engine.quota.entries import Entry
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.tree import Tree
from reprieve.engine.quota.model import Workload
from reprieve.engine.victim_choice import VictimChoice
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["plan_of", "workload_ref"]

API_VERSION: Final = "kueue.x-k8s.io/v1beta2"
PHASES: Final = ("QuotaReserved",)


def workload_ref(workload: Workload) -> Reference:
    """Return the workload as an API object."""
    return Reference(API_VERSION, "Workload", workload.namespace, workload.name, Uid(workload.uid))


def plan_of(entry: Entry, tree: Tree, revision: int, policy: str) -> Plan | None:
    """Return the plan to evict an entry's targets, None if it has none.

    Args:
        entry: one that preempts.
        tree: the quota tree of the cycle.
        revision: of the state before the cycle.
        policy: a text that changes whenever the configuration does.
    """
    if not entry.issued or entry.assignment is None:
        return None
    asked = {column: amount for column, amount in entry.assignment.usage.items() if amount}
    free = {column: entry.free.get(column, 0) for column in asked}
    preemptor = workload_ref(entry.workload)
    victims = tuple(
        Victim(
            subject=workload_ref(target.holder.workload),
            root=workload_ref(target.holder.workload),
            amounts=_by_resource(tree, target.holder.held),
            rule=str(target.reason),
        )
        for target in entry.issued
    )
    freed = [pair for target in entry.targets for pair in _held(target.holder, asked)]
    return Plan(
        id=plan_id(Plane.QUOTA, preemptor.uid, (victim.subject.uid for victim in victims), policy),
        plane=Plane.QUOTA,
        revision=revision,
        proof=Proof(
            ProofLevel.PLACEMENT if entry.proven else ProofLevel.QUOTA,
            need=_by_resource(tree, asked.items()),
            in_flight=_by_resource(tree, free.items()),
            freed=_by_resource(tree, freed),
            profile=VictimChoice.BEST if entry.best else VictimChoice.COMPATIBLE,
            gap=entry.gap,
        ),
        preemptor=preemptor,
        victims=victims,
        guards=tuple(Guard(victim.subject, PHASES) for victim in victims),
    )


def _held(holder: Holder, asked: Iterable[int]) -> list[tuple[int, int]]:
    wanted = set(asked)
    return [(column, amount) for column, amount in holder.held if column in wanted]


def _by_resource(tree: Tree, amounts: Iterable[tuple[int, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for column, amount in amounts:
        resource = tree.flavor_resources[column].resource
        found[resource] = found.get(resource, 0) + amount
    return found
