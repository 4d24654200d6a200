"""Which ClusterQueues admit no workload, whatever their quota, and why.

Source: specification of the quota plane, section 2.
"""

from __future__ import annotations

from reprieve.engine.quota.model import ClusterQueue, Configuration, StopPolicy

__all__ = ["inactive_queues", "lost_topology"]


def inactive_queues(configuration: Configuration) -> dict[str, str]:
    """Return the ClusterQueues that cannot admit, with the reason."""
    found = {}
    endless = _endless_cohorts(configuration)
    for name, queue in configuration.cluster_queues.items():
        missing = sorted(
            flavor.flavor
            for group in queue.groups
            for flavor in group.flavors
            if flavor.flavor not in configuration.flavors
        )
        if queue.terminating:
            found[name] = "it is being deleted"
        elif queue.stop_policy is not StopPolicy.NONE:
            found[name] = "it is stopped"
        elif missing:
            found[name] = f"it refers to missing ResourceFlavor(s): {', '.join(missing)}"
        elif lost := lost_topology(queue, configuration):
            found[name] = lost
        elif queue.unready_checks:
            checks = ", ".join(queue.unready_checks)
            found[name] = f"it refers to missing or inactive AdmissionCheck(s): {checks}"
        elif queue.cohort in endless:
            found[name] = "its cohort is in a cycle"
    return found


def lost_topology(queue: ClusterQueue, configuration: Configuration) -> str:
    """Return which topology of a flavor is missing, empty for none."""
    if not configuration.settings.gates.topology_aware_scheduling:
        return ""
    for group in queue.groups:
        for each in group.flavors:
            flavor = configuration.flavors.get(each.flavor)
            topology = flavor.topology if flavor is not None else ""
            if topology and topology not in configuration.topologies:
                return f'there is no Topology "{topology}" for TAS flavor "{each.flavor}"'
    return ""


def _endless_cohorts(configuration: Configuration) -> set[str]:
    """Return the cohorts above which there is no root."""
    cohorts, found = configuration.cohorts, set[str]()
    for start in cohorts:
        name, seen = start, set[str]()
        while name and name not in seen:
            seen.add(name)
            name = cohorts[name].parent if name in cohorts else ""
        if name:
            found.add(start)
    return found
