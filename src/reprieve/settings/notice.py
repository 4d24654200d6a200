"""What an administrator allows of notices: the key `notice` of a plane's section.

    notice:
      max: 0s                                # the longest notice; 0s: no notice is given
      extension: 2m                          # how much longer a speaker may make it, once
      patience: {default: 10m, emergency: 0s}  # how long a preemptor waits at most

      keep: 0s                               # for how long idle work may be kept; idle plane

`emergency` is the patience of preemptors from `governor.emergencyPriority` on. Queues and classes
allow less by the annotation `reprieve.dev/notice-max`. Source: the contract of notices in
`docs/notice-reference.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kubeworld.units.durations import InvalidDuration, parse_duration
from reprieve.api.reprieve import NOTICE_MAX
from reprieve.engine.notice.granting import LEAST, MOST, NoticePolicy
from reprieve.settings.fields import duration, mapping, refuse

__all__ = ["notice_max", "notice_policy"]

_KEYS: Final = ("max", "extension", "patience")
_KEEP: Final = "keep"
_PATIENCE: Final = {"default": "patience", "emergency": "emergency_patience"}


def notice_policy(value: object, place: str, *, keeps: bool = False) -> NoticePolicy:
    """Return the setting of the key; without one there is no notice. `keeps`: work may be kept.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    if value is None:
        return NoticePolicy()
    given = mapping(value, place, (*_KEYS, _KEEP) if keeps else _KEYS)
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
    for key in ("extension", _KEEP):
        if given.get(key) is not None:
            found[key] = duration(given[key], f"{place}.{key}")
            if found[key] > MOST:
                refuse(f"{place}.{key}", given[key], "durations from 0s to 1h")
    return replace(NoticePolicy(most), **found)


def notice_max(annotations: Mapping[str, str] | None) -> int:
    """Return the longest notice that a queue or class allows; what cannot be read allows none."""
    text = (annotations or {}).get(NOTICE_MAX)
    if text is None:
        return MOST
    try:
        return max(0, parse_duration(text))
    except InvalidDuration:
        return 0
