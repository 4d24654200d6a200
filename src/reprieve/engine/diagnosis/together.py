"""By which rule about other pods a node refuses a pod: spread, affinity, anti-affinity.

A node without the label that a rule counts by is named with that label, and an affinity to pods of
which none runs with their labels: a pod that ends changes neither. Source: specification of the
scheduling plane, sections 21.6 and 21.7.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.engine.cluster.pod_spec import AffinityTerm
from reprieve.engine.cluster.rows import NodeRow, PodClass
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.diagnosis.refusals import Refused
from reprieve.engine.placement.filters.interpod import InterPodFilter
from reprieve.engine.placement.reasons import Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.selectors import requirement_text

__all__ = ["together_refusal"]


def together_refusal(
    simulation: Simulation, pending: Pending, rejection: Rejection, node: NodeRow
) -> tuple[Refused, str]:
    """Return by what a node refuses the pod, and its subject."""
    entry = simulation.snapshot.classes[pending.pod_class]
    assert entry is not None, "a pod that was judged has a class"
    match rejection:
        case Rejection.SPREAD_LABEL:
            keys = (each.topology_key for each in entry.spread if each.hard)
            return Refused.SPREAD_LABEL, _absent(keys, node)
        case Rejection.POD_AFFINITY:
            absent = _absent((each.topology_key for each in entry.affinity), node)
            if absent:
                return Refused.AFFINITY_LABEL, absent
            if not _has_partner(simulation, pending):
                return Refused.NO_PARTNER, " and ".join(map(_selector_text, entry.affinity))
    return Refused.TOGETHER, _rule_text(rejection, entry)


def _absent(keys: Iterable[str], node: NodeRow) -> str:
    """Return the first of the keys of which the node has no label, or nothing."""
    return next((key for key in keys if key not in node.labels), "")


def _has_partner(simulation: Simulation, pending: Pending) -> bool:
    """Return whether some pod of the cluster is one that the affinity requires."""
    found = (f for f in simulation.filters(pending) if isinstance(f, InterPodFilter))
    terms = next((each.affinity for each in found), ())
    labels = simulation.snapshot.pod_labels[simulation.present]
    return bool(terms) and bool((terms[0].weights[labels] > 0).any())


def _selector_text(term: AffinityTerm) -> str:
    """Return which pods a term means: `app=cache in namespace team-a`."""
    text = ", ".join(
        requirement_text(each.key, each.operator, each.values) for each in term.selector or ()
    )
    where = f" in namespace {term.namespaces[0]}" if len(term.namespaces) == 1 else ""
    return f"{text or 'any labels'}{where}"


def _rule_text(rejection: Rejection, entry: PodClass) -> str:
    """Return the rule about pods that are together, with its topology keys."""
    match rejection:
        case Rejection.POD_AFFINITY:
            keys = [each.topology_key for each in entry.affinity]
            return f"its pod affinity ({', '.join(dict.fromkeys(keys))})"
        case Rejection.POD_ANTI_AFFINITY:
            keys = [each.topology_key for each in entry.anti_affinity]
            return f"its pod anti-affinity ({', '.join(dict.fromkeys(keys))})"
        case Rejection.EXISTING_ANTI_AFFINITY:
            return "the anti-affinity of pods that run"
        case _:
            hard = [each for each in entry.spread if each.hard]
            keys = [f"{each.topology_key}, maxSkew {each.max_skew}" for each in hard]
            return f"its topology spread ({'; '.join(dict.fromkeys(keys))})"
