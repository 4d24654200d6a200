"""Which ClusterQueues admit nobody, whatever their quota, and why.

Source: specification of the quota plane, section 2.
"""

from __future__ import annotations

from reprieve.engine.quota.model import Configuration, StopPolicy

__all__ = ["inactive_queues"]


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
        elif not queue.checks_ready:
            found[name] = "it refers to missing or inactive AdmissionCheck(s)"
        elif queue.cohort in endless:
            found[name] = "its cohort is in a cycle"
    return found


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
