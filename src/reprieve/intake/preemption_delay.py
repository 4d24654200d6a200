"""The annotation `reprieve.dev/preemption-delay` of classes of priorities and ClusterQueues.

It states how long their work waits before any work is preempted for it, from 0s to 1h. What is no
such duration counts as no annotation. Source: the page `docs/preemption-delay.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeworld.units.durations import HOUR, InvalidDuration, parse_duration
from reprieve.api.reprieve import PREEMPTION_DELAY

__all__ = ["delay_problem", "stated_delay"]


def stated_delay(annotations: Mapping[str, str] | None) -> int | None:
    """Return the nanoseconds that annotations have, None for none and no such duration."""
    text = (annotations or {}).get(PREEMPTION_DELAY)
    if text is None:
        return None
    try:
        found = parse_duration(text)
    except InvalidDuration:
        return None
    return found if 0 <= found <= HOUR else None


def delay_problem(annotations: Mapping[str, str] | None) -> str:
    """Return what is wrong with the annotation, empty where nothing is."""
    text = (annotations or {}).get(PREEMPTION_DELAY)
    if text is None or stated_delay(annotations) is not None:
        return ""
    accepted = "accepted: durations from 0s to 1h"
    return f"annotation {PREEMPTION_DELAY} is {text!r} and delays nothing; {accepted}"
