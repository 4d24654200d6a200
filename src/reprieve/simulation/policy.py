"""A policy of a study: how a plane is set up to decide, in the words of its own settings.

    NAME:
      planes: [quota]                # who decides: the quota plane, or [scheduling], on nodes, or
                                     # [quota, scheduling]: quota first, then nodes; idle beside
                                     # nodes: [idle], [idle, scheduling], or all three
      podPreemption: Never           # with both: pods preempt no work, whatever quota does
      preemption: Never              # or, as in a ClusterQueue: withinClusterQueue,
                                     # reclaimWithinCohort, borrowWithinCohort
      strategy: BestEffortFIFO       # or StrictFIFO: the head that does not fit blocks its queue
      minRuntime: {preempt: 10m, reclaim: 10m}
      quota: {preemptionPolicy: FairSharing, ...}    # the section `quota` of a --config file
      scheduling: {harmOrder: true}                  # the section `scheduling` of such a file
      gpuPreemption: {defaultPolicy: Always, ...}    # that of the idle plane, see `idle_policy`
      governor: {enforce: true, ...}                 # the section `governor` of such a file
      harmBudgets: {NAME: {...}}     # specs of HarmBudgets, see `harm_budgets`
      own: FILE.py:CLASS             # in place of all others: a policy of one's own, see `own`

Without `preemption`, a queue preempts its own work of lower priority and reclaims from any work
what it lent; with `Never` no work is preempted on nodes either. What the section `quota` decides is
read by the operator's own reader (`settings.quota`); what concerns a running operator alone is
refused, since it would change nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from kubeworld.units.durations import SECOND
from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.engine.harm_budgets.budget import HarmBudget
from reprieve.engine.notice.granting import NoticePolicy
from reprieve.engine.placement.profile import Policy as PlacingPolicy
from reprieve.engine.plan import Plane
from reprieve.engine.quota.model import (
    BorrowWithinCohort,
    Policy,
    Preemption,
    QueueingStrategy,
    Settings,
)
from reprieve.settings import options
from reprieve.settings.fields import choice, duration, integer, refuse, text
from reprieve.settings.governor import KEYS as GOVERNOR_KEYS
from reprieve.settings.governor import governor_policy
from reprieve.settings.option import not_replayed
from reprieve.settings.quota import QuotaSettings, quota_settings
from reprieve.settings.quota_configuration_parts import PodsReady
from reprieve.settings.scheduling import scheduling_settings
from reprieve.simulation.document import Part
from reprieve.simulation.harm_budgets import SECTION as HARM_BUDGETS
from reprieve.simulation.harm_budgets import read_harm_budgets
from reprieve.simulation.idle_policy import SECTION as GPU_PREEMPTION
from reprieve.simulation.idle_policy import IdlePolicy, read_idle_policy
from reprieve.simulation.own import load_own
from reprieve.units.errors import UsageError

__all__ = [
    "DEFAULT_PREEMPTION",
    "IDLE",
    "QUOTA",
    "SCHEDULING",
    "PolicySpec",
    "read_policy",
    "read_preemption",
]

KEYS: Final = (
    "planes",
    "preemption",
    "podPreemption",
    "strategy",
    "minRuntime",
    "quota",
    "scheduling",
    GPU_PREEMPTION,
    "governor",
    HARM_BUDGETS,
    "own",
)
IDLE: Final = str(Plane.IDLE)
QUOTA: Final = str(Plane.QUOTA)
SCHEDULING: Final = str(Plane.SCHEDULING)
#: Keys of a policy that the scheduling plane has a use for where it decides alone.
_OF_SCHEDULING: Final = ("planes", "preemption", "scheduling", HARM_BUDGETS)
#: In which order planes are named, and which of them can decide together.
_TOGETHER: Final = (
    (QUOTA,),
    (SCHEDULING,),
    (QUOTA, SCHEDULING),
    (IDLE,),
    (IDLE, SCHEDULING),
    (IDLE, QUOTA, SCHEDULING),
)
_PREEMPTION: Final = ("withinClusterQueue", "reclaimWithinCohort", "borrowWithinCohort")
_WITHIN: Final = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
_RECLAIM: Final = ("Never", "LowerPriority", "Any")
DEFAULT_PREEMPTION: Final = Preemption(Policy.LOWER_PRIORITY, Policy.ANY)


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy; `governor` are the numbers of the governor of disruptions.

    `planes` are those that decide. `places` states that it sets up the scheduling plane, which
    decides by `placing` and displaces no work without `preempts`. `notice` is what victims are
    granted, `delay` how many nanoseconds a job waits before it preempts for quota, `node_delay` for
    nodes. `pods_ready` states how
    long a job with quota may wait for nodes, None for ever. `idle` sets up the idle plane. `own`
    names a policy of one's own and the folder that its file is in, None without. `place` is where
    the study states it: file, line and key.
    """

    name: str
    preemption: Preemption = DEFAULT_PREEMPTION
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    settings: Settings = field(default_factory=Settings)
    preempt_min_runtime_s: int = 0
    reclaim_min_runtime_s: int = 0
    governor: GovernorPolicy = field(default_factory=GovernorPolicy)
    own: tuple[str, Path] | None = None
    places: bool = False
    planes: tuple[str, ...] = (QUOTA,)
    placing: PlacingPolicy = field(default_factory=PlacingPolicy)
    preempts: bool = True
    pods_ready: PodsReady | None = None
    idle: IdlePolicy = field(default_factory=IdlePolicy)
    harm_budgets: tuple[HarmBudget, ...] = ()
    notice: NoticePolicy = field(default_factory=NoticePolicy)
    delay: int = 0
    node_delay: int = 0
    place: str = field(default="", compare=False)


def read_policy(name: str, given: Part, beside: Path) -> PolicySpec:
    """Return the policy of a part of the study; `beside` is the study's folder.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    if given.get("own") is not None:
        return _read_own(name, given, beside)
    planes = _planes(given)
    if IDLE not in planes and given.get(GPU_PREEMPTION) is not None:
        raise UsageError(
            f"{given.where(GPU_PREEMPTION)}: changes nothing where the idle plane does not decide; "
            f"leave it out"
        )
    if QUOTA not in planes:
        return _placing(name, given, planes)
    section = _quota_section(given)
    joint = SCHEDULING in planes
    nodes = _on_nodes(given) if joint else _OnNodes()
    if not joint and given.get("podPreemption") is not None:
        raise UsageError(
            f"{given.where('podPreemption')}: changes nothing where nothing is placed on nodes; "
            f"leave it out"
        )
    place = section.where().rsplit(".quota", 1)[0]
    settings = quota_settings(section.value, place)
    if not joint:
        scheduling_settings(given.part("scheduling").value, where=place)
    runtimes = given.part("minRuntime", ("preempt", "reclaim"))
    return PolicySpec(
        name,
        read_preemption(given),
        _strategy(given),
        settings.configuration.settings,
        duration(runtimes.get("preempt", "0s"), runtimes.where("preempt")) // SECOND,
        duration(runtimes.get("reclaim", "0s"), runtimes.where("reclaim")) // SECOND,
        governor_policy(
            given.part("governor", GOVERNOR_KEYS).value,
            place,
            settings.loop_limit,
            settings.loop_window,
        ),
        places=joint or bool(given.part("scheduling").value),
        planes=planes,
        placing=nodes.placing,
        preempts=nodes.preempts,
        node_delay=nodes.delay,
        pods_ready=_pods_ready(section, settings) if joint else None,
        idle=read_idle_policy(given),
        harm_budgets=read_harm_budgets(given),
        notice=settings.notice,
        delay=settings.delay,
        place=given.where(),
    )


def _quota_section(given: Part) -> Part:
    section = given.part("quota")
    for key in not_replayed(options.QUOTA):
        if key in section.value:
            raise UsageError(f"{section.where(key)}: changes nothing in a replay; leave it out")
    return section


def _read_own(name: str, given: Part, beside: Path) -> PolicySpec:
    """Return a user's own policy, which is loaded once to see whether it can be."""
    own = given.get("own")
    if len(given.value) > 1:
        others = ", ".join(key for key in given.value if key != "own")
        raise UsageError(f"{given.where('own')}: accepted: alone, without {others}")
    load_own(text(own, given.where("own")), beside, given.where("own"))
    return PolicySpec(name, own=(own, beside), place=given.where())


def _strategy(given: Part) -> QueueingStrategy:
    return QueueingStrategy(
        choice(
            given.get("strategy", "BestEffortFIFO"),
            given.where("strategy"),
            [str(each) for each in QueueingStrategy],
        )
    )


def _pods_ready(section: Part, settings: QuotaSettings) -> PodsReady | None:
    """Return how long a job with quota may wait for nodes."""
    rules = settings.configuration.pods_ready
    if rules is not None and rules.backoff.limit is not None:
        raise UsageError(
            f"{section.where('configuration')}.waitForPodsReady.requeuingStrategy."
            f"backoffLimitCount: {rules.backoff.limit}; accepted: none, since a job that is "
            f"deactivated would never finish"
        )
    return rules


def _planes(given: Part) -> tuple[str, ...]:
    """Return which planes decide."""
    place, said = given.where("planes"), given.get("planes", [QUOTA])
    wanted = sorted(said) if isinstance(said, list) and set(map(type, said)) == {str} else []
    found = next((planes for planes in _TOGETHER if sorted(planes) == wanted), None)
    if found is None:
        *others, last = (f"[{', '.join(planes)}]" for planes in _TOGETHER)
        why = (
            " (idle work holds nodes, which quota alone does not give)"
            if wanted == sorted((IDLE, QUOTA))
            else ""
        )
        refuse(place, said, f"{', '.join(others)} or {last}{why}")
    return found


class _OnNodes(NamedTuple):
    """How gangs are placed, whether their pods preempt, the notice of those, and their delay."""

    placing: PlacingPolicy = PlacingPolicy()
    preempts: bool = True
    notice: NoticePolicy = NoticePolicy()
    delay: int = 0


def _on_nodes(given: Part) -> _OnNodes:
    """Return what the section of the scheduling plane sets up."""
    said = given.get("podPreemption")
    if said is not None:
        choice(said, given.where("podPreemption"), ("Never",))
    section = given.part("scheduling")
    settings = scheduling_settings(section.value, where=section.where().rsplit(".scheduling", 1)[0])
    if not settings.policy.gates.generic_workload:
        refuse(section.where("featureGates"), "GenericWorkload: false", "true: jobs are gangs")
    preempts = said is None and given.get("preemption") != "Never"
    return _OnNodes(settings.policy, preempts, settings.notice, settings.delay or 0)


def _placing(name: str, given: Part, planes: tuple[str, ...]) -> PolicySpec:
    """Return a policy by which the scheduling plane decides without quotas, or the idle plane."""
    alone = "the scheduling plane decides alone" if IDLE not in planes else "there are no quotas"
    for key in given.value:
        if key not in (*_OF_SCHEDULING, *(GPU_PREEMPTION,) * (IDLE in planes)):
            raise UsageError(f"{given.where(key)}: changes nothing where {alone}; leave it out")
    said = given.get("preemption")
    if said is not None:
        choice(said, given.where("preemption"), ("Never",))
    nodes = _on_nodes(given)
    return PolicySpec(
        name,
        planes=planes,
        placing=nodes.placing,
        # Without the scheduling plane pods get nodes, and preempt no work for them.
        preempts=nodes.preempts and SCHEDULING in planes,
        idle=read_idle_policy(given),
        harm_budgets=read_harm_budgets(given),
        places=True,
        notice=nodes.notice,
        node_delay=nodes.delay,
        place=given.where(),
    )


def read_preemption(given: Part) -> Preemption:
    """Return the setting of the key `preemption`, as a ClusterQueue has it.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    said: Any = given.get("preemption")
    if said is None:
        return DEFAULT_PREEMPTION
    if isinstance(said, str):
        choice(
            said, given.where("preemption"), ("Never", f"a mapping with {', '.join(_PREEMPTION)}")
        )
        return Preemption()
    rules = given.part("preemption", _PREEMPTION)
    borrow = rules.part("borrowWithinCohort", ("policy", "maxPriorityThreshold"))
    while_borrowing = None
    if borrow.value:
        threshold = borrow.get("maxPriorityThreshold")
        while_borrowing = BorrowWithinCohort(
            Policy(
                choice(borrow.given("policy"), borrow.where("policy"), ("Never", "LowerPriority"))
            ),
            None
            if threshold is None
            else integer(threshold, borrow.where("maxPriorityThreshold"), -(2**31), 2**31 - 1),
        )
    return Preemption(
        _policy(rules, "withinClusterQueue", _WITHIN),
        _policy(rules, "reclaimWithinCohort", _RECLAIM),
        while_borrowing,
    )


def _policy(rules: Part, key: str, accepted: tuple[str, ...]) -> Policy:
    return Policy(choice(rules.get(key, "Never"), rules.where(key), accepted))
