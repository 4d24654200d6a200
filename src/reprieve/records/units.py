"""The units of a record, which are evicted only together, and what each of them lost.

Of a unit that was notified of its eviction and saved, what it lost is what it computed between its
save and its eviction. That stands in the status of the record by victim (`lostAfterSave`); of all
others `lostDeviceSeconds` of the first victim states it, as of the decision. Source: the contract
of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reprieve.api.reprieve import Victim

__all__ = ["lost_of_unit", "units_of"]


def units_of(victims: Iterable[Victim]) -> dict[str, list[Victim]]:
    """Return the victims of each unit, in the order of the record."""
    found: dict[str, list[Victim]] = {}
    for victim in victims:
        found.setdefault(victim.unit or victim.root.uid, []).append(victim)
    return found


def lost_of_unit(victims: Sequence[Victim], after_save: Mapping[str, int]) -> int:
    """Return the device seconds that one unit lost; `after_save`: `status.lostAfterSave`."""
    uids = {each.root.uid for each in victims}
    if uids <= after_save.keys():
        return sum(after_save[uid] for uid in uids)
    return victims[0].lost_device_seconds
