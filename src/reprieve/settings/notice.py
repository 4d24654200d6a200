"""What an administrator allows of notices: the key `notice` of a plane's section.

    notice:
      max: 0s                                # the longest notice; 0s: nobody is told
      patience: {default: 10m, emergency: 0s}  # how long a preemptor waits at most

`emergency` is the patience of preemptors from `governor.emergencyPriority` on. Source: the contract
of notices in `docs/notice.md`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reprieve.engine.notice.granting import LEAST, MOST, NoticePolicy
from reprieve.settings.fields import duration, mapping, refuse

__all__ = ["notice_policy"]

_KEYS: Final = ("max", "patience")
_PATIENCE: Final = {"default": "patience", "emergency": "emergency_patience"}


def notice_policy(value: object, place: str) -> NoticePolicy:
    """Return what the key says; where it says nothing nobody is told.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    if value is None:
        return NoticePolicy()
    given = mapping(value, place, _KEYS)
    most = 0
    if given.get("max") is not None:
        most = duration(given["max"], f"{place}.max")
        if most and not LEAST <= most <= MOST:
            refuse(f"{place}.max", given["max"], "0s, or a duration from 10s to 1h")
    patience = mapping(given.get("patience"), f"{place}.patience", tuple(_PATIENCE))
    found = {
        _PATIENCE[key]: duration(said, f"{place}.patience.{key}")
        for key, said in patience.items()
        if said is not None
    }
    return replace(NoticePolicy(most), **found)
