"""The gangs of one scheduling plane, and what the queue has to know of them.

All pending pods of a gang group are one entry of the queue, under `gang:ID,ID...`; it waits outside
while the gate (specification of gang jobs, section 4) refuses its pods. Pods of a group that was
satisfied once are entries of their own. Members that were given a node and wait in Permit are
parked here, each with its own deadline. Source: specification of gang jobs, sections 3 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.api.gangs import KOORDINATOR, Door, PodGroup
from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.scheduling.gangs.cycle import GANG_KEY, GangGroup, GangState
from reprieve.engine.scheduling.gangs.gate import Barring, basic_barrier
from reprieve.engine.scheduling.gangs.records import Gang, Gangs, MatchPolicy
from reprieve.intake.gangs import group_spec, pod_member
from reprieve.settings.coscheduling import CoschedulingSettings
from reprieve.units.ids import Uid

__all__ = ["GangBook", "Parked"]

_LONGEST_WAIT: Final = 15 * MINUTE  # the framework's own limit on Permit


@dataclass(frozen=True, slots=True)
class Parked:
    """A member in Permit. `deadline`: monotonic."""

    row: PodRow
    node: str
    deadline: int


class GangBook:
    """All gangs. `settings` gives the arguments in force.

    `requeue` is called with pods whose entry has another key now, `changed` with keys of entries
    that the gate may judge differently now.
    """

    def __init__(
        self,
        settings: Callable[[], CoschedulingSettings],
        requeue: Callable[[Iterable[PodRow]], None],
        changed: Callable[[str], None],
    ) -> None:
        self.gangs = Gangs()
        self.parked: dict[Uid, Parked] = {}
        self._settings = settings
        self._requeue = requeue
        self._changed = changed
        self._rows: dict[Uid, PodRow] = {}
        self._keys: dict[Uid, str] = {}  # of pending members, as the queue knows them
        self._held: dict[str, int] = {}  # groups that are held back, until when
        self._open: dict[str, bool] = {}  # whether the gate allows a group to pass
        self._groups: dict[str, tuple[Door, PodGroup]] = {}

    # Objects.

    def see(self, row: PodRow) -> list[Uid]:
        """Apply a member, or what has changed about it.

        Return members in Permit that may pass now, because this one was seen bound, or that wait
        there for a gang which they have left.
        """
        old = self._rows.get(row.uid)
        self._rows[row.uid] = row
        if row.node:
            self._keys.pop(row.uid, None)
            self.parked.pop(row.uid, None)
        if old is not None and (old.gang, old.node) == (row.gang, row.node):
            return []
        member = pod_member(
            row.uid,
            row.namespace,
            row.name,
            dict(row.labels),
            dict(row.gang_annotations),
            bound=bool(row.node),
            defaults=self._settings().defaults,
        )
        assert member is not None, "the row names a gang"
        former = self.gangs.of(row.uid)
        gang = self.gangs.apply_pod(member)
        if not row.node and row.uid not in self._keys:
            self._keys[row.uid] = self.key_of(row)
        self._refresh(gang)
        if former is not None and former is not gang:
            self._refresh(former)
            if row.uid in self.parked:
                return [row.uid]
        if not row.node or not self.parked:
            return []
        return [
            uid
            for each in self.gangs.of_group(gang)
            if each.policy != MatchPolicy.ONLY_WAITING
            for name in sorted(each.waiting)
            if (uid := each.children[name].uid) in self.parked
        ]

    def gone(self, uid: Uid) -> None:
        """Forget a member."""
        row = self._rows.pop(uid, None)
        if row is None:
            return
        self._keys.pop(uid, None)
        self.parked.pop(uid, None)
        gang = self.gangs.of(uid)
        self.gangs.remove_pod(uid)
        if gang is not None:
            self._refresh(gang)

    def apply_group(self, door: Door, group: PodGroup) -> None:
        """Apply a PodGroup, or what it states now."""
        id = f"{group.metadata.namespace}/{group.metadata.name}"
        settings = self._settings()
        koordinator = door is KOORDINATOR
        defaults = settings.defaults if koordinator else settings.plain_defaults
        before = self.gangs.get(id)
        old = before.group_id if before is not None else ""
        self._groups[id] = door, group
        gang = self.gangs.apply_group(id, group_spec(group, defaults))
        if old and old != gang.group_id:
            self._refresh_key(GANG_KEY + old)
        self._refresh(gang)

    def remove_group(self, door: Door, id: str) -> None:
        """Forget a PodGroup."""
        known = self._groups.get(id)
        gang = self.gangs.get(id)
        if known is None or known[0] is not door or gang is None:
            return
        del self._groups[id]
        key = GANG_KEY + gang.group_id
        self.gangs.remove_group(id)
        self._refresh_key(key)
        after = self.gangs.get(id)
        if after is not None:
            self._refresh(after)

    def reread(self) -> None:
        """The arguments have changed: fill in again what PodGroups leave out."""
        for door, group in list(self._groups.values()):
            self.apply_group(door, group)

    # What the queue queries.

    def key_of(self, row: PodRow) -> str:
        """Return the key of the pod's entry, empty when it is one of its own."""
        gang = self.gangs.of(row.uid) or self.gangs.get(row.gang)
        if gang is None:
            return GANG_KEY + row.gang
        if gang.policy == MatchPolicy.ONCE_SATISFIED and self.gangs.satisfied(gang):
            return ""
        return GANG_KEY + gang.group_id

    def fact(self, key: str) -> GroupRow | None:
        """Return what stands for a group object in the queue, None while the gate refuses it."""
        gang = self._of_key(key)
        if gang is None or not self._passes(gang):
            return None
        priority = max(
            (self._rows[p.uid].priority for p in self._pending(gang) if p.uid in self._rows),
            default=0,
        )
        return GroupRow(Uid(key), "", key, 0, priority=priority)

    def pending(self, key: str) -> list[PodRow]:
        """Return the pods of the group that have no node, in Permit or not."""
        gang = self._of_key(key)
        if gang is None:
            return []
        waiting = [self.parked[u].row for u in self.parked if self.gangs.of(u) is gang]
        return [*self._pending(gang), *waiting]

    def barrier(self, row: PodRow) -> Barring | None:
        """Return what the gate states of a pod."""
        gang = self.gangs.of(row.uid)
        if gang is None:
            return None
        return basic_barrier(self.gangs, gang.children[f"{row.namespace}/{row.name}"])

    def pod_group(self, id: str) -> tuple[Door, PodGroup] | None:
        """Return the PodGroup behind a gang, with its front door."""
        return self._groups.get(id)

    def known(self, key: str) -> int:
        """Return how many pods the group has."""
        gang = self._of_key(key)
        return 0 if gang is None else sum(len(g.children) for g in self.gangs.of_group(gang))

    # Cycles.

    def group(self, key: str, *, with_others: bool = False) -> GangGroup | None:
        """Return the group as it stands before a cycle. `with_others`: gangs as victims' units."""
        gang = self._of_key(key)
        if gang is None:
            return None
        states = []
        for each in self.gangs.of_group(gang):
            waiting = [
                (uid, self.parked[uid].node)
                for name in sorted(each.waiting)
                if (uid := each.children[name].uid) in self.parked
            ]
            wait = min(each.spec.wait if each.spec is not None else 0, _LONGEST_WAIT)
            states.append(
                GangState(
                    each.id,
                    each.minimum,
                    each.policy,
                    each.strict,
                    tuple(waiting),
                    len(each.bound),
                    wait,
                    self._tolerated(each),
                )
            )
        others: tuple[tuple[Uid, ...], ...] = ()
        if with_others:
            own = set(gang.group)
            others = tuple(uids for id, uids in self.bound() if id not in own)
        return GangGroup(gang.group_id, tuple(states), self.gangs.satisfied(gang), others)

    def bound(self) -> tuple[tuple[str, tuple[Uid, ...]], ...]:
        """Return the id of each gang with bound pods, and these."""
        return tuple(
            (each.id, tuple(each.children[name].uid for name in sorted(each.bound)))
            for each in self.gangs
            if each.bound
        )

    def park(self, row: PodRow, node: str, deadline: int) -> None:
        """A member has a node and waits for its siblings."""
        self.gangs.wait(row.uid)
        self.parked[row.uid] = Parked(row, node, deadline)

    def unpark(self, uids: Iterable[Uid]) -> list[Parked]:
        """Members wait no longer; return them."""
        found = [self.parked.pop(uid) for uid in uids if uid in self.parked]
        self.gangs.unwait(each.row.uid for each in found)
        return found

    def satisfy(self, key: str) -> None:
        """All gangs of the group have their minimum: it is being bound."""
        gang = self._of_key(key)
        if gang is not None:
            self.gangs.satisfy(gang)
            for each in self.gangs.of_group(gang):
                self._refresh(each)

    def overdue(self, now: int) -> list[list[Parked]]:
        """Return those whose time in Permit is over, with all that belong to them."""
        found: list[list[Parked]] = []
        for uid, parked in list(self.parked.items()):
            if parked.deadline > now or uid not in self.parked:
                continue
            gang = self.gangs.of(uid)
            alone = (
                gang is None
                or not gang.strict
                or (gang.policy == MatchPolicy.ONCE_SATISFIED and self.gangs.satisfied(gang))
            )
            uids = [uid]
            if gang is not None and not alone:
                uids += [
                    each.children[name].uid
                    for each in self.gangs.of_group(gang)
                    for name in sorted(each.waiting)
                    if each.children[name].uid != uid
                ]
            found.append(self.unpark(uids))
        return found

    def hold_back(self, key: str, now: int) -> None:
        """A group of scheduler-plugins was rejected: it is not tried for a while, if so set."""
        seconds = self._settings().pod_group_backoff_seconds
        gang = self._of_key(key)
        if not seconds or gang is None or not self.is_plain(gang):
            return
        self._held[key] = now + seconds * SECOND
        self._refresh_key(key)

    def let_go(self, now: int) -> None:
        """End the time of groups that were held back."""
        for key in [key for key, until in self._held.items() if until <= now]:
            del self._held[key]
            self._refresh_key(key)

    def held_until(self, key: str) -> int | None:
        """Return until when a group is held back, in monotonic nanoseconds, None if it is not."""
        return self._held.get(key)

    def is_plain(self, gang: Gang) -> bool:
        """Whether a PodGroup of scheduler-plugins stands behind the gang."""
        known = self._groups.get(gang.id)
        return known is not None and known[0] is not KOORDINATOR

    # How.

    def _tolerated(self, gang: Gang) -> int | None:
        return self._settings().pod_group_reject_percentage if self.is_plain(gang) else None

    def _of_key(self, key: str) -> Gang | None:
        for id in key.removeprefix(GANG_KEY).split(","):
            gang = self.gangs.get(id)
            if gang is not None and GANG_KEY + gang.group_id == key:
                return gang
        return None

    def _pending(self, gang: Gang) -> list[PodRow]:
        return [
            self._rows[each.children[name].uid]
            for each in self.gangs.of_group(gang)
            for name in each.pending
            if each.children[name].uid in self._rows
        ]

    def _passes(self, gang: Gang) -> bool:
        if GANG_KEY + gang.group_id in self._held:
            return False
        members = [pod for each in self.gangs.of_group(gang) for pod in each.children.values()]
        return bool(members) and basic_barrier(self.gangs, members[0]) is None

    def _refresh(self, gang: Gang) -> None:
        """Notify the queue of what has changed for the pods of the gang's group."""
        moved = []
        for row in self._pending(gang):
            key = self.key_of(row)
            if self._keys.get(row.uid, key) != key:
                moved.append(row)
            self._keys[row.uid] = key
        if moved:
            self._requeue(moved)
        self._refresh_key(GANG_KEY + gang.group_id)

    def _refresh_key(self, key: str) -> None:
        gang = self._of_key(key)
        passes = gang is not None and self._passes(gang)
        if self._open.get(key, False) != passes:
            if passes:
                self._open[key] = True
            else:
                self._open.pop(key, None)
            self._changed(key)
