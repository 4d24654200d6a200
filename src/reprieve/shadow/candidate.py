"""A candidate policy: what a file changes in the input of a recorded decision.

    gpuPreemption: {fit: Node, irreducible: true}      # sections of a --config file
    scheduling: {harmOrder: true}
    quota: {preemptionPolicy: FairSharing}
    preemption: {withinClusterQueue: Never}            # keys of a policy of a study
    minRuntime: {preempt: 10m, reclaim: 10m}
    harmBudgets: {batch-day: {limits: {displacements: 2}}}

Each section is read by the operator's own reader. A key that is given replaces what was recorded,
all others stay as they were recorded, so that a file with one key states what this one would have
changed. A key whose list or mapping holds many settings (`configuration`, `featureGates`) replaces
all fields that it covers. `preemption` and `minRuntime` hold for every ClusterQueue and all that
holds quota. `harmBudgets` are specs of HarmBudgets by name (`budgets`). What one decision does not
depend on, or what no record holds, is in `unused`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace as replaced

from kubeworld.units.durations import SECOND
from reprieve.engine.harm_budgets.budget import HarmBudget
from reprieve.engine.idle.model import Fit
from reprieve.engine.quota.model import Preemption
from reprieve.records.idle.record import DecisionInput
from reprieve.records.quota.record import QuotaInput
from reprieve.records.scheduling.record import SchedulingInput
from reprieve.settings.fields import duration
from reprieve.settings.governor import governor_policy
from reprieve.settings.option import Option, recorded_fields
from reprieve.settings.options import IDLE, OPTIONS, QUOTA, SCHEDULING
from reprieve.settings.quota import quota_settings
from reprieve.settings.scheduling import scheduling_settings
from reprieve.settings.start_up import CHART_ONLY, start_up
from reprieve.settings.start_up import KEYS as IDLE_KEYS
from reprieve.simulation.document import Part, read_document
from reprieve.simulation.harm_budgets import SECTION as HARM_BUDGETS
from reprieve.simulation.harm_budgets import read_harm_budgets
from reprieve.simulation.policy import read_preemption
from reprieve.units.errors import ReprieveError, UsageError

__all__ = ["AS_RECORDED", "Candidate", "NotRecorded", "read_candidate"]

#: The name of a candidate that changes nothing.
AS_RECORDED: Final = "as recorded"

_SECTIONS: Final = ("gpuPreemption", "scheduling", "quota", "governor")
_STUDY: Final = ("preemption", "minRuntime", "strategy")
_STRATEGY_UNUSED: Final = "a record holds the heads of the queues, not the queues"
_GOVERNOR_UNUSED: Final = "the records name the lineages on hold"


class NotRecorded(ReprieveError):
    """The candidate requests something that this record does not hold."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is other than recorded: fields of the policies of the planes, by name.

    `preemption` and the runtimes (seconds) are None where they are as recorded. `unused`: keys that
    were given and change nothing, each with the reason.
    """

    name: str
    idle: Mapping[str, Any] = field(default_factory=dict)
    scheduling: Mapping[str, Any] = field(default_factory=dict)
    quota: Mapping[str, Any] = field(default_factory=dict)
    preemption: Preemption | None = None
    preempt_min_runtime_s: int | None = None
    reclaim_min_runtime_s: int | None = None
    unused: Mapping[str, str] = field(default_factory=dict)
    harm_budgets: tuple[HarmBudget, ...] = ()

    def of_idle(self, decided_on: DecisionInput) -> DecisionInput:
        """Return the input of a decision of the idle plane under this policy.

        Raises:
            NotRecorded: it proves placements, and the record has no nodes.
        """
        policy = replace(decided_on.policy, **self.idle)
        if policy.fit is Fit.NODE and decided_on.policy.fit is not Fit.NODE:
            raise NotRecorded("with fit Sum no nodes were recorded, on which to prove a placement")
        return replaced(decided_on, policy=policy)

    def of_scheduling(self, decided_on: SchedulingInput, at: int) -> SchedulingInput:
        """Return the input of a decision of the scheduling plane under this policy.

        `at`: Unix seconds of the record, for one whose own policy did not request the time.
        """
        policy = replace(decided_on.policy, **self.scheduling)
        now = (decided_on.now or at) if policy.timed else 0
        return replaced(decided_on, policy=policy, now=now)

    def of_quota(self, decided_on: QuotaInput) -> QuotaInput:
        """Return the input of a decision of the quota plane under this policy."""
        rules, queues = self.preemption, decided_on.cluster_queues
        if rules is not None:
            queues = tuple(replace(each, preemption=rules) for each in queues)
        runtimes = {
            name: seconds
            for name in ("preempt_min_runtime_s", "reclaim_min_runtime_s")
            if (seconds := getattr(self, name)) is not None
        }
        holders = decided_on.holders
        if runtimes:
            holders = tuple(replace(each, **runtimes) for each in holders)
        return replaced(
            decided_on,
            settings=replace(decided_on.settings, **self.quota),
            cluster_queues=queues,
            holders=holders,
        )


def read_candidate(path: Path) -> Candidate:
    """Return the candidate that a file describes.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    root = read_document(path, (*_SECTIONS, *_STUDY, *CHART_ONLY, HARM_BUDGETS), "policy")
    sections = {key: root.part(key) for key in _SECTIONS}
    runtimes = root.part("minRuntime", ("preempt", "reclaim"))
    found = Candidate(
        path.name,
        _idle(sections["gpuPreemption"]),
        _scheduling(sections["scheduling"]),
        _quota(sections["quota"]),
        None if root.get("preemption") is None else read_preemption(root),
        _seconds(runtimes, "preempt"),
        _seconds(runtimes, "reclaim"),
        _unused(root, sections),
        read_harm_budgets(root),
    )
    governor_policy(sections["governor"].value, _place(sections["governor"]), 0, 0)
    if found == Candidate(path.name, unused=found.unused):
        said = (
            "; ".join(f"{key}: {why}" for key, why in found.unused.items()) or "it states nothing"
        )
        raise UsageError(
            f"{path}: nothing in it changes a recorded decision ({said}); accepted: keys of "
            "gpuPreemption, scheduling and quota, preemption, minRuntime, harmBudgets"
        )
    return found


def _idle(given: Part) -> dict[str, Any]:
    for key in given.value:
        if key not in IDLE_KEYS:
            raise UsageError(f"{given.where(str(key))}: accepted: {', '.join(IDLE_KEYS)}")
    # Endpoints and the like are judged where the plane runs.
    policy = start_up({}, {**given.value, "enabled": False}, _place(given)).policy
    return _replaced(IDLE, given, policy)


def _scheduling(given: Part) -> dict[str, Any]:
    policy = scheduling_settings(given.value, where=_place(given)).policy
    return _replaced(SCHEDULING, given, policy)


def _quota(given: Part) -> dict[str, Any]:
    settings = quota_settings(given.value, _place(given)).configuration.settings
    return _replaced(QUOTA, given, settings)


def _replaced(options: Iterable[Option], given: Part, policy: object) -> dict[str, Any]:
    """Return by name the fields of the recorded policy that the section's keys replace."""
    return {
        name: getattr(policy, name)
        for key, names in recorded_fields(options).items()
        if given.get(key) is not None
        for name in names
    }


def _place(section: Part) -> str:
    """Return the file and line, as the readers of sections want them."""
    return section.where().rpartition(": ")[0]


def _seconds(runtimes: Part, key: str) -> int | None:
    if runtimes.get(key) is None:
        return None
    return duration(runtimes.get(key), runtimes.where(key)) // SECOND


def _unused(root: Part, sections: Mapping[str, Part]) -> dict[str, str]:
    """Return the keys that change nothing, and why; those of the chart alone are left out."""
    found = {"strategy": _STRATEGY_UNUSED} if root.get("strategy") is not None else {}
    if sections["governor"].value:
        found["governor"] = _GOVERNOR_UNUSED
    for name, options in OPTIONS.items():
        for option in options:
            if option.key in sections[name].value and not option.recorded:
                found[f"{name}.{option.key}"] = option.unrecorded
    return found
