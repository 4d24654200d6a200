"""Which admission checks a workload has to pass.

A check of a ClusterQueue that names no flavors applies to all of its flavors. A workload with a
reservation needs the checks of the flavors that it got; before that, only those are known to apply
that apply to every flavor of the queue.

Source: specification of the quota plane, section 1.1; KEP-993.
"""

from __future__ import annotations

from reprieve.engine.quota.model import Admission, ClusterQueue

__all__ = ["required_checks"]


def required_checks(queue: ClusterQueue, admission: Admission | None = None) -> tuple[str, ...]:
    """Return the names of the checks, sorted, that apply to what `admission` assigned."""
    every = {flavor.flavor for group in queue.groups for flavor in group.flavors}
    given = None
    if admission is not None:
        given = {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()}
    found = []
    for name in queue.checks:
        flavors = set(queue.checks_on_flavors.get(name, ())) or every
        if flavors >= every if given is None else flavors & given:
            found.append(name)
    return tuple(sorted(found))
