"""The gang record: what is known of a gang from its PodGroup or from its first valid pod.

| origin | initialized by | re-read by | deleted with |
| --- | --- | --- | --- |
| PodGroup | the PodGroup | every update of it | the PodGroup |
| annotations | the first pod whose minimum can be read | nothing | its last pod |

A pod with a PodGroup label only makes a shell until the PodGroup comes. Gangs of one group share
whether they were satisfied once. Source: specification of gang jobs, 1.2, 3 and 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from reprieve.units.ids import Uid

__all__ = [
    "Defaults",
    "Gang",
    "GangPod",
    "GangSpec",
    "Gangs",
    "MatchPolicy",
    "Mode",
    "Origin",
]


class Mode(StrEnum):
    """Whether one member that does not fit rejects all."""

    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class MatchPolicy(StrEnum):
    """Which members count for the minimum."""

    ONCE_SATISFIED = "once-satisfied"
    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"


class Origin(StrEnum):
    """Where the gang comes from."""

    POD_GROUP = "GangFromPodGroupCrd"
    ANNOTATION = "GangFromPodAnnotation"


@dataclass(frozen=True, slots=True)
class Defaults:
    """CoschedulingArgs that fill in what gangs leave out. `wait`: nanoseconds."""

    wait: int
    policy: str = MatchPolicy.ONCE_SATISFIED


@dataclass(frozen=True, slots=True)
class GangSpec:
    """What a PodGroup or pod states of a gang. `wait`: nanoseconds; `groups`: ids, own included."""

    minimum: int
    total: int
    wait: int
    mode: str = Mode.STRICT
    policy: str = MatchPolicy.ONCE_SATISFIED
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GangPod:
    """A member as the records see it.

    `crd`: it is a member by a PodGroup label. `spec`: what its annotations state, None where they
    cannot be read; of annotation gangs only.
    """

    uid: Uid
    namespace: str
    name: str
    gang: str  # namespace/name
    bound: bool = False
    crd: bool = True
    spec: GangSpec | None = None

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True)
class Gang:
    """One gang. `waiting`: members assumed on a node and parked in Permit."""

    id: str
    origin: Origin = Origin.ANNOTATION  # a shell's too
    spec: GangSpec | None = None  # None: a shell
    created: int = 0
    children: dict[str, GangPod] = field(default_factory=dict)  # by namespace/name
    waiting: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    has_group: bool = False  # a PodGroup stands behind it

    @property
    def minimum(self) -> int:
        """Return the number of members that it needs, 0 for a shell."""
        return self.spec.minimum if self.spec is not None else 0

    @property
    def policy(self) -> str:
        """Return the match policy."""
        return self.spec.policy if self.spec is not None else ""

    @property
    def strict(self) -> bool:
        """Return whether one member that does not fit rejects all."""
        return self.spec is None or self.spec.mode != Mode.NON_STRICT

    @property
    def group(self) -> tuple[str, ...]:
        """Return the ids of the gangs that are scheduled with it, sorted."""
        groups = self.spec.groups if self.spec is not None else ()
        return groups or (self.id,)

    @property
    def group_id(self) -> str:
        """Return the ids joined by commas."""
        return ",".join(self.group)

    @property
    def pending(self) -> list[str]:
        """Return the members without a node, by namespace and name."""
        return sorted(key for key in self.children if key not in self.waiting | self.bound)


class Gangs:
    """All gangs of a cluster."""

    def __init__(self) -> None:
        self._gangs: dict[str, Gang] = {}
        self._gang_of: dict[Uid, tuple[str, str]] = {}  # gang and pod key
        self._satisfied: set[str] = set()  # group ids
        self.representative: dict[str, str] = {}  # group id -> pod key

    def __iter__(self) -> Iterator[Gang]:
        return iter(self._gangs.values())

    def get(self, id: str) -> Gang | None:
        """Return the gang of an id."""
        return self._gangs.get(id)

    def of(self, uid: Uid) -> Gang | None:
        """Return the gang of a pod."""
        known = self._gang_of.get(uid)
        return self._gangs.get(known[0]) if known is not None else None

    def of_group(self, gang: Gang) -> list[Gang]:
        """Return the gangs of the group that are known."""
        return [found for id in gang.group if (found := self._gangs.get(id)) is not None]

    def satisfied(self, gang: Gang) -> bool:
        """Return whether the gang's group was satisfied once."""
        return gang.group_id in self._satisfied

    # PodGroups.

    def apply_group(self, id: str, spec: GangSpec, created: int = 0) -> Gang:
        """Apply a PodGroup, or what it states now."""
        gang = self._gangs.setdefault(id, Gang(id))
        gang.origin, gang.has_group = Origin.POD_GROUP, True
        self._respec(gang, spec)
        gang.created = created
        return gang

    def remove_group(self, id: str) -> None:
        """Forget a PodGroup, and its gang with it."""
        gang = self._gangs.get(id)
        if gang is None or not gang.has_group:
            return
        self._drop(gang)
        for pod in gang.children.values():
            # Members that are still there wait for a new PodGroup.
            self.apply_pod(pod)

    # Pods.

    def apply_pod(self, pod: GangPod) -> Gang:
        """Apply a member, or what has changed about it."""
        known = self._gang_of.get(pod.uid)
        if known is not None and known[0] != pod.gang:
            self.remove_pod(pod.uid)
        gang = self._gangs.setdefault(pod.gang, Gang(pod.gang))
        if gang.spec is None and pod.spec is not None:
            self._respec(gang, pod.spec)
        former = gang.children.get(pod.key)
        if former is not None and former.uid != pod.uid:
            self._gang_of.pop(former.uid, None)
            gang.waiting.discard(pod.key)
            gang.bound.discard(pod.key)
        gang.children[pod.key] = pod
        self._gang_of[pod.uid] = (gang.id, pod.key)
        if pod.bound:
            gang.bound.add(pod.key)
            gang.waiting.discard(pod.key)
            self._satisfied.add(gang.group_id)
        return gang

    def remove_pod(self, uid: Uid) -> None:
        """Forget a member; an annotation gang ends with its last one."""
        known = self._gang_of.pop(uid, None)
        if known is None:
            return
        gang, key = self._gangs[known[0]], known[1]
        gang.children.pop(key, None)
        gang.waiting.discard(key)
        gang.bound.discard(key)
        if self.representative.get(gang.group_id) == key:
            del self.representative[gang.group_id]
        if not gang.children and not gang.has_group:
            self._drop(gang)

    # Permit.

    def wait(self, uid: Uid) -> None:
        """A member got a node and waits for its siblings."""
        gang_id, key = self._gang_of[uid]
        self._gangs[gang_id].waiting.add(key)

    def unwait(self, uids: Iterable[Uid]) -> None:
        """Members no longer wait."""
        for uid in uids:
            known = self._gang_of.get(uid)
            if known is not None:
                self._gangs[known[0]].waiting.discard(known[1])

    def satisfy(self, gang: Gang) -> None:
        """The gang's group has all that it needs."""
        self._satisfied.add(gang.group_id)

    # How.

    def _respec(self, gang: Gang, spec: GangSpec) -> None:
        before, partners = gang.group_id, self.of_group(gang)
        gang.spec = spec
        if not any(each.group_id == before for each in partners):
            self._forget_group(before)
        if gang.bound:
            self._satisfied.add(gang.group_id)

    def _drop(self, gang: Gang) -> None:
        del self._gangs[gang.id]
        for pod in gang.children.values():
            self._gang_of.pop(pod.uid, None)
        if not any(id in self._gangs for id in gang.group):
            self._forget_group(gang.group_id)

    def _forget_group(self, group_id: str) -> None:
        self._satisfied.discard(group_id)
        self.representative.pop(group_id, None)
