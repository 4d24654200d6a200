"""Members that are not in the queue yet: their group, or one above it in its tree, is unknown.

They are no entry, and PreEnqueue is not called for them. Source: specification 22; KEP-6012,
"Prerequisites".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reprieve.engine.cluster.rows import COMPOSITE, PodRow
from reprieve.engine.cluster.trees import Way
from reprieve.engine.scheduling.queueing.entries import Gate, QueuedMember
from reprieve.engine.scheduling.queueing.pre_enqueue import Facts, no_composite, no_group
from reprieve.units.ids import Uid

__all__ = ["Incomplete"]


class Incomplete:
    """Those members, by the key of their own group."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._members: dict[str, dict[Uid, QueuedMember]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._members.values()))

    def __contains__(self, uid: Uid) -> bool:
        return any(uid in members for members in self._members.values())

    def add(self, group: str, members: Iterable[QueuedMember]) -> None:
        """Add members of a group."""
        for member in members:
            self._members.setdefault(group, {})[member.row.uid] = member

    def update(self, group: str, row: PodRow) -> bool:
        """Apply what has changed about a member; return whether it is one."""
        member = self._members.get(group, {}).get(row.uid)
        if member is not None:
            member.row = row
        return member is not None

    def remove(self, uid: Uid) -> None:
        """Forget a pod, if it is here."""
        for group, members in list(self._members.items()):
            if members.pop(uid, None) is not None and not members:
                del self._members[group]

    def gate(self, uid: Uid) -> Gate | None:
        """Return what a member waits for, None for a pod that is not here."""
        for group, members in self._members.items():
            if uid in members:
                return self._gate(group)
        return None

    def waiting(self) -> Iterator[tuple[str, Gate, list[PodRow]]]:
        """Yield each group, what its members wait for, and these."""
        for group, members in self._members.items():
            yield group, self._gate(group), [member.row for member in members.values()]

    def _gate(self, group: str) -> Gate:
        way, key = self._facts.root(group)
        missing = way is Way.MISSING and key.startswith(COMPOSITE)
        return no_composite(key) if missing else no_group(group)

    def ready(self, key: str) -> dict[str, tuple[str, dict[Uid, QueuedMember]]]:
        """Remove the groups that are complete now that this one is there.

        Returns the key of their root, and their members, by group.
        """
        row = self._facts.group(key)
        alone = row is None or not (row.composite or row.parent)
        found = {}
        for group in [key] if alone else list(self._members):
            if group in self._members:
                way, root = self._facts.root(group)
                if way is not Way.MISSING:
                    found[group] = root, self._members.pop(group)
        return found
