"""A refusal decided again from the input that the decision log has of it, and its outcome.

Source: `telemetry.decision_log` for samples; promise "Deterministic" of the design.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprieve.engine.diagnosis.scheduling import of_attempt
from reprieve.engine.plan import Plane
from reprieve.planes.common.plugins import installed, load, load_scorers
from reprieve.records.idle.replay import InputOmitted, SpoiltInput, decide_again, unpacked
from reprieve.records.quota.replay import decide_quota_again
from reprieve.records.scheduling.record import SchedulingInput
from reprieve.records.scheduling.replay import PluginMissing, decide_scheduling_again
from reprieve.wording.diagnosis import sentence

__all__ = ["decided_again"]


def decided_again(plane: str, recorded: Mapping[str, Any]) -> str:
    """Return what the decision on a sampled input states, as one sentence."""
    try:
        match plane:
            case Plane.QUOTA:
                entry = decide_quota_again(recorded).entry
                return f"{entry.message or 'it gets quota'}."
            case Plane.SCHEDULING:
                return _scheduling(recorded)
            case Plane.IDLE:
                plans = len(decide_again(recorded).evaluation.plans)
                return f"{plans} plans are made, none for it." if plans else "nothing is preempted."
    except (InputOmitted, SpoiltInput, PluginMissing) as failure:
        return f"not possible, {failure}."
    return f"not possible, this version knows no plane {plane}."


def _scheduling(recorded: Mapping[str, Any]) -> str:
    policy, offered = unpacked(recorded, SchedulingInput).policy, installed()
    plugins, scorers = load(offered, policy), load_scorers(offered, policy)
    found = of_attempt(decide_scheduling_again(recorded, plugins, scorers).attempt)
    return "it is placed." if found is None else f"{sentence(found)}."
