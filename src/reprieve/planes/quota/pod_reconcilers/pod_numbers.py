"""The ranks of a Workload's pods, from the labels by which their controllers number them.

Source: specification of topology-aware scheduling, section 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kubeworld.units.untrusted import integer_or_none
from reprieve.api.kueue import TopologyRequest, Workload
from reprieve.engine.topology.ungating import Numbering, group_offsets

__all__ = ["PodNumbers", "numbers_of"]


@dataclass(frozen=True, slots=True)
class PodNumbers:
    """How the pods of a pod set are numbered: by the label `index`, in replicas by `replica`."""

    index: str
    replica: str
    numbering: Numbering

    def rank(self, labels: Mapping[str, str], offset: int = 0) -> int | None:
        """Return the rank of a pod with these labels, None where they do not state it.

        `offset`: the number of the first pod, by the pods' own annotation; -1 for one that cannot
        be read.
        """
        if offset < 0:
            return None
        index, replica = (integer_or_none(labels.get(k, "")) for k in (self.index, self.replica))
        numbering = self.numbering
        return replace(numbering, offset=numbering.offset + offset).rank(index, replica)


def numbers_of(workload: Workload) -> dict[str, PodNumbers]:
    """Return by pod set how the pods of an admitted Workload are numbered, where they are."""
    admission = workload.status.admission
    asked = {e.name: e.topology_request or TopologyRequest() for e in workload.spec.pod_sets}
    counts = {
        each.name: each.count or 0
        for each in (admission.pod_set_assignments if admission is not None else ())
        if each.name in asked
    }
    offsets = group_offsets(
        [(name, asked[name].pod_set_group_name or "", count) for name, count in counts.items()]
    )
    found = {}
    for name, count in counts.items():
        request = asked[name]
        if request.pod_index_label:
            replica = request.sub_group_index_label or ""
            replicas = (request.sub_group_count or 0) if replica else None
            numbering = Numbering(count, offsets[name], replicas)
            found[name] = PodNumbers(request.pod_index_label, replica, numbering)
    return found
