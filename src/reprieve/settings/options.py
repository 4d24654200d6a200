"""The options of all planes, a row each: see `option` for what follows from a row.

To add one: a row here, the field that it decides in the engine's policy, and the decision that
reads it; then `python -m tests.docs.generated`. Source: each plane's specification, and the pages
`docs/scheduling/options.md`, `docs/quota/options.md` and `docs/idle/settings.md`, whose tables are
made of these rows; links in them lead from `docs/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from reprieve.engine.placement.profile import CompositePriority
from reprieve.engine.quota.model import Settings
from reprieve.engine.victim_choice import VictimChoice
from reprieve.settings.option import NOT_WHICH, Form, Option

__all__ = ["IDLE", "OPTIONS", "QUOTA", "SCHEDULING"]

_CHOICES: Final = tuple(map(str, VictimChoice))
_NOT_BEFORE: Final = "it states from when others are evicted, not which"
_WHO_IS_HELD: Final = "the records name the lineages on hold"
_OF_WORKLOADS: Final = "the settings of each workload are read from the records"

SCHEDULING: Final = (
    Option(
        "profile",
        Form.WORD,
        "best",
        "how victims are chosen: `compatible` as kube-scheduler 1.37, `best` the least costly ones "
        "that the rules allow, see [`profile`](scheduling/beyond-the-kep.md#profile)",
        "choice",
        words=_CHOICES,
        recorded=("choice",),
    ),
    Option(
        "secondReprievePass",
        Form.SWITCH,
        True,
        "victims that only a topology spread constraint keeps from a reprieve are reprieved "
        "together, as many as it allows; `false` reproduces kube-scheduler 1.37, which evicts "
        "all of them",
        "second_reprieve_pass",
        recorded=("second_reprieve_pass",),
    ),
    Option(
        "kepMessages",
        Form.SWITCH,
        False,
        "conditions in KEP-5710's own sentences: a group that waits for its victims has that "
        "sentence before the reasons of release 1.37, and groups of differing priorities have "
        "the KEP's sentence in place of the release's",
        "kep_messages",
        recorded=("kep_messages",),
    ),
    Option(
        "simulateClaims",
        Form.SWITCH,
        False,
        "devices and attachments that only victims use count as free when a preemption is "
        "simulated",
        "simulate_claims",
        recorded=("simulate_claims",),
    ),
    Option(
        "binarySearchPriority",
        Form.SWITCH,
        False,
        "consider no priority above the lowest one up to which pods have to be evicted",
        "binary_search_priority",
        recorded=("binary_search_priority",),
    ),
    Option(
        "maxPlacements",
        Form.NUMBER,
        1,
        "for how many placements of a group victims are chosen and compared, 1 to 64",
        "max_placements",
        least=1,
        most=64,
        recorded=("max_placements",),
    ),
    Option(
        "topologyPreemption",
        Form.SWITCH,
        False,
        "choose and compare victims in every domain of a group's topology constraint",
        "topology_preemption",
        recorded=("topology_preemption",),
    ),
    Option(
        "cascadeAware",
        Form.SWITCH,
        False,
        "among placements of equal harm prefer victims that find another node",
        "cascade_aware",
        recorded=("cascade_aware",),
    ),
    Option(
        "harmOrder",
        Form.SWITCH,
        False,
        "among victims of equal priority and kind, choose idle work first, then the least lost "
        "work",
        "harm_order",
        recorded=("harm_order",),
    ),
    Option(
        "nonUniformGroups",
        Form.SWITCH,
        False,
        "annotations declare the least useful number of pods of a group, and pods that are "
        "evicted only with all others",
        "non_uniform_groups",
        recorded=("non_uniform_groups",),
    ),
    Option(
        "preemptionPriority",
        Form.OWN,
        "{}",
        "work may name a PriorityClass that counts for it as a victim, up to `cap`, or the one "
        "in `namespaces` for its namespace; empty: none may",
        recorded=("protection",),
    ),
    Option(
        "maxMinRuntime",
        Form.DURATION,
        "0s",
        "longest time after its start for which work may request protection, up to `168h`; "
        "`0s`: none",
        "max_min_runtime",
        longest="168h",  # more would make work immune
        recorded=("max_min_runtime",),
    ),
    Option(
        "maxLostWork",
        Form.DURATION,
        "1h",
        "with `harmOrder`: the most that work without a reported checkpoint counts as losing",
        "max_lost_work",
        recorded=("max_lost_work",),
    ),
    Option(
        "compositePriority",
        Form.WORD,
        "Root",
        "whose priority counts in [trees of pod groups](scheduling/trees.md): that of the `Root`, "
        "or of the `Nearest` pod group",
        "composite_priority",
        words=tuple(map(str, CompositePriority)),
        recorded=("composite_priority",),
    ),
    Option(
        "victimDeadline",
        Form.DURATION,
        "5m",
        "longest time past its grace period that a victim may need to end before plans avoid it",
        "victim_deadline",
        shortest="1ns",
        unrecorded="the records name the overdue victims",
    ),
    Option(
        "maxGrace",
        Form.DURATION,
        "1h",
        "a victim with a longer grace period is chosen only where no other suffices, and is "
        "awaited no longer; `0s`: unbounded",
        "max_grace",
        unrecorded="the records name the victims that were avoided",
    ),
    Option(
        "notice",
        Form.OWN,
        "{max: 0s}",
        "how long victims with notice may save before they are evicted, see "
        "[Notice](notice.md); `0s`: no notice",
        unrecorded=NOT_WHICH,
    ),
    Option(
        "preemptionDelay",
        Form.OWN,
        "",
        "how long a pod or a whole group waits before it preempts, see [Preemption "
        "delay](preemption-delay.md)",
        unrecorded=_NOT_BEFORE,
    ),
    Option("featureGates", Form.OWN, "see below", "feature gates, by name", recorded=("gates",)),
    Option(
        "configuration",
        Form.OWN,
        "see below",
        "a `KubeSchedulerConfiguration`",
        recorded=("profiles",),
    ),
    Option(
        "gangs",
        Form.OWN,
        "see below",
        "job preemption of [PodGroups of Koordinator and scheduler-plugins](gang-jobs.md)",
        unrecorded="groups of pods are recorded as they were read",
    ),
)

QUOTA: Final = (
    Option(
        "preemptionPolicy",
        Form.OWN,
        "Classical",
        "`Classical` or `FairSharing`, with both strategies; must equal that of a `configuration`",
        recorded=("fair_sharing",),
    ),
    Option(
        "configuration",
        Form.OWN,
        "see below",
        "a whole `Configuration` of Kueue",
        recorded=tuple(
            each.name
            for each in fields(Settings)
            if each.name not in ("idle_first", "harm_order", "max_save_wait", "profile")
        ),
    ),
    Option(
        "configurationMap",
        Form.OWN,
        "",
        "instead: name of a ConfigMap of the operator's namespace that has one, and is followed",
        unrecorded="accepted here: its content as quota.configuration",
        replayed=False,
    ),
    Option(
        "profile",
        Form.WORD,
        "compatible",
        "how victims are chosen: `compatible` as Kueue does, `best` the least costly ones that its "
        "rules permit, with `idleFirst` and `harmOrder` unless they are `false`: see below",
        "profile",
        words=_CHOICES,
        recorded=("profile", "idle_first", "harm_order"),
    ),
    Option(
        "proveNodes",
        Form.SWITCH,
        False,
        "preempt for quota only where the whole preemptor then fits on nodes, too",
        "prove_nodes",
        unrecorded="records of the quota plane hold no nodes",
        replayed=False,
    ),
    Option(
        "idleFirst",
        Form.SWITCH,
        False,
        "among candidates that differ by uid alone, choose work that the idle plane finds idle "
        "first",
        "idle_first",
        recorded=("idle_first",),
    ),
    Option(
        "harmOrder",
        Form.SWITCH,
        False,
        "among candidates of one priority, choose the latest checkpoint first, and wait for "
        "saves that are worth it: see below",
        "harm_order",
        recorded=("harm_order",),
    ),
    Option(
        "victimOrder",
        Form.NAME,
        "",
        "name of an installed [order of victims](python.md#orders-of-victims), which decides among "
        "candidates of one priority, before the time of admission",
        "victim_order",
        unrecorded="the numbers that it gave stand in the records",
        replayed=False,
    ),
    Option(
        "maxSaveWait",
        Form.DURATION,
        "1h",
        "with `harmOrder`: the longest wait of one preemptor for saves, up to `168h`; `0s`: "
        "none. Within it, four thirds of the longest checkpoint interval of its victims",
        "max_save_wait",
        longest="168h",
        recorded=("max_save_wait",),
    ),
    Option(
        "notice",
        Form.OWN,
        "{max: 0s}",
        "how long victims with notice may save before they are evicted, see "
        "[Notice](notice.md); `0s`: no notice",
        unrecorded=NOT_WHICH,
    ),
    Option(
        "preemptionDelay",
        Form.OWN,
        "0s",
        "how long a workload waits before it preempts, see [Preemption delay](preemption-delay.md)",
        unrecorded=_NOT_BEFORE,
    ),
    Option(
        "loopLimit",
        Form.NUMBER,
        2,
        "lineages that displaced each other in a loop that often within `loopWindow` are held; "
        "0 holds none. The section [`governor`](disruptions/operators.md#for-operators) is for all "
        "planes",
        "loop_limit",
        most=1_000,
        unrecorded=_WHO_IS_HELD,
    ),
    Option(
        "loopWindow",
        Form.DURATION,
        "1h",
        "the time within which `loopLimit` counts",
        "loop_window",
        unrecorded=_WHO_IS_HELD,
    ),
    Option("jobKinds", Form.OWN, "", "rows for kinds beyond the built-in ones", replayed=False),
    Option(
        "webhooks",
        Form.OWN,
        "see below",
        "where webhooks are served, and how they are found",
        replayed=False,
    ),
)

#: The settings of single workloads, whose defaults the section states beside the variables.
_DEFAULTS: Final = (
    "defaultThreshold",
    "defaultGracePeriod",
    "defaultPolicy",
    "defaultAggregation",
    "defaultTTL",
)
_NOT_REPLAYED: Final = ("defaultAggregation", "defaultTTL")

IDLE: Final = (
    Option("enabled", Form.OWN, "", "run the plane", replayed=False),
    Option("metricsEndpoint", Form.OWN, "", "where GPU metrics are", replayed=False),
    Option("pollingInterval", Form.OWN, "15s", "how often they are polled", replayed=False),
    *(
        Option(
            key,
            Form.OWN,
            "",
            "the last tier of the setting but one",
            unrecorded=_OF_WORKLOADS,
            replayed=key not in _NOT_REPLAYED,
        )
        for key in _DEFAULTS
    ),
    Option(
        "fit",
        Form.OWN,
        "Node",
        "`Node`: every pending pod gets a node. `Sum`, the compatible option: the freed GPUs reach "
        "the need for every resource name",
        recorded=("fit",),
    ),
    Option(
        "irreducible",
        Form.OWN,
        False,
        "with `Sum`: reprieve victims that the demand does not need; the compatible order may "
        "choose too many. `Node` always reprieves",
        recorded=("irreducible",),
    ),
    Option(
        "queuedDemandSum",
        Form.OWN,
        False,
        "for work that waits in a queue of another Kueue: add up the GPUs of all idle work, as the "
        "reference does and `fit: Sum` does as well. Else only idle work is evicted that holds the "
        "quota which is lacking, in the same cohort and flavor",
        unrecorded=NOT_WHICH,
    ),
    Option(
        "profile",
        Form.OWN,
        "compatible",
        "which idle work is evicted: `compatible` the oldest idle first, `best` the fewest "
        "devices found, irreducibly. The record has the gap to the fewest possible in "
        "`proof.gap`. Sets are tried in the order of their devices, at most 128. Idle work "
        "computes nothing, so that no order by lost work is needed",
        recorded=("choice",),
    ),
    Option(
        "victimOrder",
        Form.NAME,
        "",
        "name of an installed [order of victims](python.md#orders-of-victims), which decides "
        "before the time for which work has been idle",
        "victim_order",
        unrecorded="the numbers that it gave stand in the records",
        replayed=False,
    ),
    Option(
        "vendors",
        Form.OWN,
        "[amd]",
        "whose GPUs are tracked, see [Vendors](idle/metrics.md#vendors)",
        replayed=False,
    ),
    Option(
        "notice",
        Form.OWN,
        "{max: 0s}",
        "how long idle work with notice may save before it is evicted, see "
        "[Notice](notice.md); `0s`: no notice",
        unrecorded=NOT_WHICH,
    ),
    Option(
        "preemptionDelay",
        Form.OWN,
        "0s",
        "how long a demand waits before idle work is evicted for it, see "
        "[Preemption delay](preemption-delay.md)",
        unrecorded=_NOT_BEFORE,
    ),
    Option(
        "literal",
        Form.OWN,
        "",
        "switches back to the reference's behaviour, see "
        "[Literal switches](idle/settings.md#literal-switches)",
        recorded=("literal",),
    ),
)

#: By section of the `--config` file.
OPTIONS: Final[Mapping[str, tuple[Option, ...]]] = {
    "gpuPreemption": IDLE,
    "scheduling": SCHEDULING,
    "quota": QUOTA,
}
