"""Which lineage a root belongs to, also where it is submitted again as another object.

A root is known by its uid, as one owner. By its oldest pod, once one was seen, it is also known by

1. the label `reprieve.dev/lineage`, which merges roots of a namespace;
2. what it has in common with work that was submitted again: the kind of the root, what the pod
   requests and its labels, without those that controllers add;
3. when it was made.

What was read of a root stays for as long as it is tracked, or has pods. The end of its last pod is
reported, so that what is submitted then may come in its place. Source: specification of
disruptions, section 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.lineage import LINEAGE_LABEL, Identity, Participant, participant_of
from reprieve.planes.idle.records import PodRecord
from reprieve.units.references import Reference

__all__ = ["RootLineages", "participant_of_root"]

_UNKNOWN: Final = Nanos(0)
#: Beside all labels of these domains.
_ADDED: Final = frozenset(
    {"controller-uid", "job-name", "pod-template-hash", "controller-revision-hash"}
)
_ADDED_BY: Final = ("batch.kubernetes.io", "apps.kubernetes.io", "statefulset.kubernetes.io")


def participant_of_root(root: Reference) -> Participant:
    """Return the lineage of a root of which nothing but its uid is known."""
    return participant_of(_identity(root))


class RootLineages:
    """The lineages of tracked roots. `pods_of`: the pods of a root that are there."""

    def __init__(
        self, governor: Governor, pods_of: Callable[[Reference], Sequence[PodRecord]]
    ) -> None:
        self._governor = governor
        self._pods_of = pods_of
        self._known: dict[str, Participant] = {}  # of roots with a pod, by uid

    def __len__(self) -> int:
        return len(self._known)

    def of(self, root: Reference) -> Participant:
        """Return the lineage of a root."""
        known = self._known.get(root.uid)
        if known is not None:
            return known
        pods = self._pods_of(root)
        if not pods:
            return participant_of_root(root)
        found = self._known[root.uid] = _participant(root, min(pods, key=_age))
        return found

    def priority(self, root: Reference) -> int | None:
        """Return the highest priority of the pods of a root, None where it has none."""
        return max((pod.priority for pod in self._pods_of(root) if pod.row.live), default=None)

    def pod_ended(self, root: Reference, at: Nanos) -> None:
        """A pod of a root was deleted: after the last one, work may be submitted to replace it."""
        if not any(pod.row.live for pod in self._pods_of(root)):
            self._governor.ended(participant_of_root(root), at)

    def forget(self, uid: str) -> None:
        """A root is not tracked any more."""
        self._known.pop(uid, None)


def _participant(root: Reference, pod: PodRecord) -> Participant:
    return participant_of(
        _identity(
            root,
            template=_template(root, pod),
            label=pod.labels.get(LINEAGE_LABEL, ""),
            created=pod.row.created or _UNKNOWN,
        )
    )


def _identity(
    root: Reference, template: str = "", label: str = "", created: Nanos = _UNKNOWN
) -> Identity:
    owner = "" if root.kind == "Pod" else root.uid
    space = root.namespace
    return Identity(root.uid, space, space, owner, template=template, label=label, created=created)


def _template(root: Reference, pod: PodRecord) -> str:
    said = (root.kind, _sorted(pod.asked), _sorted(pod.row.asks), _own(pod.labels))
    return hashlib.blake2b(repr(said).encode(), digest_size=8).hexdigest()


def _own(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        (key, value)
        for key, value in sorted(labels.items())
        if key not in _ADDED and not key.startswith(_ADDED_BY)
    ]


def _sorted(amounts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(amounts.items())


def _age(pod: PodRecord) -> tuple[int, str]:
    return pod.row.created or 0, pod.name
