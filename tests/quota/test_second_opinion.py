"""Whole cycles beside a naive second opinion that was written from the specification alone.

Scenes have what published random cases lack: several resource groups, several pod sets with shared
topology groups, zero and undeclared requests, counts of zero, quotas for pods, taints, selectors
and affinity, every way of fungibility, and partial admission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.assigning.assignment import Assignment
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import Entry, Outcome, Recomputation
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    ClusterQueue,
    Configuration,
    FlavorFungibility,
    FlavorQuotas,
    Fungibility,
    Gates,
    LocalQueue,
    NodeExpression,
    PodSet,
    Policy,
    Preemption,
    Preference,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Taint,
    Toleration,
    Workload,
)
from reprieve.engine.quota.waiting.queues import Queues
from tests.oracle import quota_cycles as oracle
from tests.quota.cases import NOW, SECOND, Scene, Size, plain, scene
from tests.quota.test_invariants import stop

SIZES = (
    Size(queues=6, cohorts=4, flavors=3, resources=3, admitted=20, pending=0, quota=12),
    Size(queues=5, cohorts=2, flavors=2, resources=2, admitted=24, pending=0, quota=20),
    Size(queues=4, cohorts=1, flavors=2, resources=1, admitted=12, pending=0, quota=14),
)
SMALL = Size(queues=7, cohorts=4, flavors=2, resources=1, admitted=16, pending=0, quota=20)
PREFERENCES = (
    None,
    None,
    Preference.BORROWING_OVER_PREEMPTION,
    Preference.PREEMPTION_OVER_BORROWING,
)
TAINTS = (
    Taint("spot", "yes", "NoSchedule"),
    Taint("old", "", "NoExecute"),
    Taint("soft", "", "PreferNoSchedule"),
)
TOLERATIONS = (
    Toleration("spot", "Exists"),
    Toleration("spot", "Equal", "yes", "NoSchedule"),
    Toleration("spot", "Equal", "no"),
    Toleration("old", "Exists", "", "NoExecute"),
    Toleration("old", "Exists", "", "NoSchedule"),
    Toleration("", "Exists", "", ""),
)
OUTCOMES = {
    Outcome.ADMITTED: "admitted",
    Outcome.PREEMPTING: "preempting",
    Outcome.DEFERRED: "deferred",
    Outcome.NO_FIT: "no fit",
    Outcome.NO_CANDIDATES: "no candidates",
    Outcome.SKIPPED: "skipped",
}
MODES = {"fit": "Fit", "preempt": "Preempt", "reclaim": "Preempt"}


def flavored(random: Random, size: Size | None = None) -> Scene:
    """Return a scene with all of what the module names."""
    found = scene(random, size=size or random.choice(SIZES))
    apart = {r for r in ("cpu", "nvidia.com/gpu", "memory") if random.random() < 0.4}

    def name_of(flavor: str, resource: str) -> str:
        return f"{flavor}-b" if resource in apart else flavor

    def groups(given: tuple[ResourceGroup, ...], shuffled: bool) -> tuple[ResourceGroup, ...]:
        made = []
        for group in given:
            for part in (False, True):
                covered = tuple(r for r in group.covered if (r in apart) is part)
                if not covered:
                    continue
                flavors = list(group.flavors)
                if shuffled:
                    random.shuffle(flavors)
                    flavors = flavors[: random.randint(1, len(flavors))]
                pods = shuffled and not part and random.random() < 0.3
                quotas = [
                    FlavorQuotas(
                        name_of(each.flavor, covered[0]),
                        {r: each.resources[r] for r in covered}
                        | ({"pods": Quota(random.randint(0, 9))} if pods else {}),
                    )
                    for each in flavors
                ]
                made.append(ResourceGroup((*covered, *(("pods",) if pods else ())), tuple(quotas)))
        return tuple(made)

    configuration = found.configuration
    queues = {
        name: replace(
            queue,
            groups=groups(queue.groups, True),
            fungibility=FlavorFungibility(
                random.choice(list(Fungibility)),
                random.choice(list(Fungibility)),
                random.choice(PREFERENCES),
            ),
        )
        for name, queue in configuration.cluster_queues.items()
    }
    cohorts = {
        name: replace(each, groups=groups(each.groups, False))
        for name, each in configuration.cohorts.items()
    }
    flavors = {
        name: flavor(random, name) for each in configuration.flavors for name in (each, f"{each}-b")
    }
    settings = Settings(
        fair_sharing=configuration.settings.fair_sharing,
        gates=Gates(
            flavor_fungibility=random.random() < 0.9,
            fair_sharing_prioritize_non_borrowing=random.random() < 0.7,
            priority_sorting_within_cohort=random.random() < 0.8,
            recompute_assignment_upon_preemption_targets_overlap=random.random() < 0.8,
        ),
        ignore_undeclared=random.random() < 0.3,
    )
    admitted = []
    for workload in found.admitted:
        assert workload.admission is not None
        (pod_set,) = workload.admission.pod_sets
        renamed = {r: name_of(f, r) for r, f in pod_set.flavors.items()}
        kept = Admission(workload.admission.cluster_queue, (replace(pod_set, flavors=renamed),))
        admitted.append(replace(workload, admission=kept))
    heads = tuple(head(random, f"p{k:02}", random.choice(list(queues))) for k in range(9))
    made = replace(
        configuration, cluster_queues=queues, cohorts=cohorts, flavors=flavors, settings=settings
    )
    return replace(found, configuration=made, admitted=tuple(admitted), pending=heads)


def flavor(random: Random, name: str) -> ResourceFlavor:
    return ResourceFlavor(
        name,
        {"type": name, **({"zone": random.choice("ab")} if random.random() < 0.5 else {})},
        tuple(t for t in TAINTS if random.random() < 0.12),
        tuple(t for t in TOLERATIONS if random.random() < 0.04),
    )


def head(random: Random, name: str, queue: str) -> Workload:
    number = random.choice((1, 1, 2, 3))
    pod_sets = tuple(pods(random, f"s{k}") for k in range(number))
    if number > 1 and random.random() < 0.3:
        pod_sets = (
            replace(pod_sets[0], group="g"),
            *pod_sets[1:-1],
            replace(pod_sets[-1], group="g"),
        )
    reclaimable = {each.name: 1 for each in pod_sets if random.random() < 0.1}
    return Workload(
        "ns",
        name,
        uid=f"{random.randint(0, 10**9):010}-{name}",
        queue=f"ns/{queue}",
        priority=random.randint(-1, 3),
        created=Nanos(NOW - random.randint(0, 9) * SECOND),
        pod_sets=pod_sets,
        reclaimable=reclaimable,
    )


def pods(random: Random, name: str) -> PodSet:
    names = ("cpu", "nvidia.com/gpu", "memory", "example.com/odd")
    odds = (0.8, 0.4, 0.4, 0.08)
    requests = {
        resource: random.choice((0, 1, 1, 2, 3))
        for resource, likely in zip(names, odds, strict=True)
        if random.random() < likely
    }
    count = random.choice((0, 1, 1, 2, 3, 4))
    least = random.randint(1, count) if count and random.random() < 0.35 else None
    selector = {}
    if random.random() < 0.1:
        selector["zone"] = random.choice("ab")
    if random.random() < 0.1:
        selector["elsewhere"] = "x"
    affinity = None
    if random.random() < 0.15:
        affinity = tuple(
            tuple(
                NodeExpression(
                    random.choice(("zone", "zone", "type", "elsewhere")),
                    random.choice(("In", "NotIn")),
                    tuple(random.sample(("a", "b", "f0", "f1-b"), 2)),
                )
                for _ in range(random.randint(0, 2))
            )
            for _ in range(random.randint(1, 2))
        )
    tolerations = tuple(t for t in TOLERATIONS if random.random() < 0.15)
    return PodSet(name, count, requests, least, selector, affinity, tolerations)


def as_plain(case: Scene, entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the scene as the second opinion's case; `entries` say where scans of flavors go on."""
    configuration = case.configuration
    found = plain(replace(case, requests={}, need=frozenset()))
    for name, queue in configuration.cluster_queues.items():
        found["queues"][name]["groups"] = [
            {"covered": list(group.covered), "flavors": [each.flavor for each in group.flavors]}
            for group in queue.groups
        ]
        ways = queue.fungibility
        found["queues"][name]["fungibility"] = (
            str(ways.when_can_borrow),
            str(ways.when_can_preempt),
            str(ways.preference or ""),
        )
    gates = configuration.settings.gates
    found["settings"] = {
        "ignore_undeclared": configuration.settings.ignore_undeclared,
        "fungible": gates.flavor_fungibility,
        "prioritize_non_borrowing": gates.fair_sharing_prioritize_non_borrowing,
        "priority_sorting": gates.priority_sorting_within_cohort,
        "recompute": gates.recompute_assignment_upon_preemption_targets_overlap,
    }
    found["flavors"] = {
        name: {
            "labels": dict(each.labels),
            "taints": [(t.key, t.value, t.effect) for t in each.taints],
            "tolerations": _tolerations(each.tolerations),
        }
        for name, each in configuration.flavors.items()
    }
    found["heads"] = [_plain_head(each.workload, _resumed(each)) for each in entries]
    for one, each in zip(found["admitted"], case.admitted, strict=True):
        one["created"] = since(each, gates.priority_sorting_within_cohort)
    for one, each in zip(found["heads"], case.pending, strict=True):
        one["created"] = since(each, gates.priority_sorting_within_cohort)
    return found


def since(workload: Workload, sorting: bool) -> int:
    """Return the instant that the specification orders a workload by (section 4)."""
    evicted, preempted = workload.evicted, workload.preempted
    if evicted is not None and evicted.reason in ("PodsReadyTimeout", "AdmissionCheck"):
        return evicted.at
    behind = preempted is not None and preempted.reason == "InCohortReclaimWhileBorrowing"
    if behind and preempted is not None and not sorting:
        return preempted.at + 1_000_000
    return workload.created


def _tolerations(given: tuple[Toleration, ...]) -> list[tuple[str, str, str, str]]:
    return [(t.key, t.operator, t.value, t.effect) for t in given]


def _resumed(entry: Entry) -> dict[tuple[str, str], int]:
    resumed = entry.resumed or {}
    return {(name, r): at for name, of in resumed.items() for r, at in of.items() if at >= 0}


def _plain_head(workload: Workload, bookmark: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    return {
        "bookmark": bookmark,
        "key": workload.key,
        "uid": workload.uid,
        "queue": workload.queue.partition("/")[2],
        "priority": workload.priority,
        "created": workload.created,
        "reclaimable": dict(workload.reclaimable),
        "pod_sets": [
            {
                "name": each.name,
                "count": each.count,
                "least": each.min_count,
                "requests": dict(each.requests),
                "selector": dict(each.node_selector),
                "affinity": None
                if each.affinity is None
                else [[(e.key, e.operator, e.values) for e in term] for term in each.affinity],
                "tolerations": _tolerations(each.tolerations),
                "group": each.group,
            }
            for each in workload.pod_sets
        ],
    }


def told(assignment: Assignment) -> dict[str, Any]:
    return {
        "pod_sets": [
            {
                "name": each.name,
                "count": each.count,
                "requests": dict(each.requests),
                "flavors": {
                    r: (c.flavor, str(c.mode), c.level, c.tried) for r, c in each.flavors.items()
                },
                "reasons": list(each.reasons),
                "fits": each.fits,
            }
            for each in assignment.pod_sets
        ],
        "level": assignment.level,
        "message": assignment.message,
        "reason": str(assignment.no_fit_reason),
    }


def expected(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "pod_sets": [
            {
                **{name: each[name] for name in ("name", "count", "requests", "fits")},
                "reasons": sorted(each["reasons"]),
                "flavors": {
                    r: (c["flavor"], MODES.get(c["mode"], "Preempt"), c["level"], c["tried"])
                    for r, c in each["flavors"].items()
                },
            }
            for each in result["pod_sets"]
        ],
        **{name: result[name] for name in ("level", "message", "reason", "outcome", "targets")},
    }


def decided(entry: Entry) -> dict[str, Any]:
    assert entry.assignment is not None
    return {
        **told(entry.assignment),
        "outcome": OUTCOMES.get(entry.outcome, str(entry.outcome)),
        "targets": [(t.holder.key, str(t.reason)) for t in entry.targets],
    }


def contended(random: Random) -> Scene:
    """Return a scene in which some queues hold what others, of higher priority, want back."""
    found = flavored(random, SMALL)
    configuration = found.configuration
    names = sorted(configuration.cluster_queues)
    holders = random.sample(names, min(2, len(names)))
    roots = sorted(configuration.cohorts) or ["all"]
    reclaims = (Policy.ANY, Policy.ANY, Policy.LOWER_PRIORITY)
    queues = {
        name: replace(
            queue,
            cohort=queue.cohort or random.choice(roots),
            preemption=replace(queue.preemption, reclaim_within_cohort=random.choice(reclaims)),
        )
        for name, queue in configuration.cluster_queues.items()
    }
    cohorts = {
        name: replace(each, parent=each.parent or ("" if name == roots[0] else roots[0]))
        for name, each in configuration.cohorts.items()
    }
    admitted = tuple(
        replace(each, admission=replace(each.admission, cluster_queue=random.choice(holders)))
        for each in found.admitted
        if each.admission is not None
    )
    anything = (Toleration("", "Exists"),)
    pending = tuple(
        replace(
            each,
            priority=random.choice((2, 3)),
            pod_sets=tuple(
                replace(one, node_selector={}, affinity=None, tolerations=anything)
                for one in each.pod_sets
            ),
        )
        for each in found.pending
    )
    made = replace(configuration, cluster_queues=queues, cohorts=cohorts)
    return replace(found, configuration=made, admitted=admitted, pending=pending)


def test_cycles_decide_what_a_plain_reading_of_the_specification_decides() -> None:
    random = Random(20_261_121)
    seen: Counter[str] = Counter()
    for number in range(700):
        case = contended(random) if number % 2 else flavored(random)
        holdings, queues = Holdings(case.configuration), Queues(case.configuration)
        for workload in case.admitted:
            holdings.hold(workload)
        for workload in case.pending:
            queues.push(workload)
        for turn in range(3):
            now = Nanos(NOW + 60 * turn * SECOND)
            held = tuple(holder.workload for holder in holdings.holders.values())
            result = cycle(holdings, queues, now, turn)
            heads = tuple(entry.workload for entry in result.entries)
            here = replace(case, admitted=held, pending=heads)
            try:
                opinion = oracle.cycle(as_plain(here, result.entries))
            except oracle.Historical:
                seen["historical"] += 1
                break
            got = {entry.workload.key: decided(entry) for entry in result.entries}
            wanted = {key: expected(each) for key, each in opinion.items()}
            assert got == wanted, (number, turn)
            for key, each in opinion.items():
                note(seen, each, here, key)
            seen["resumed"] += sum(bool(_resumed(entry)) for entry in result.entries)
            stop(holdings, queues, random, now)
    scarce = {name: (seen[name], most) for name, most in WANTED.items() if seen[name] < most}
    assert not scarce, (scarce, seen)


def test_flavors_of_a_group_stay_when_its_targets_are_found_anew() -> None:
    """The first pod set of the group asks for none of what the second one got its flavor for.

    `zero` has all of the second flavor reclaimed and needs half of it, so that once its victim is
    gone the second flavor would simply fit. What `two` was nominated with is the first one.
    """

    def queue(name: str, quotas: Mapping[str, int]) -> ClusterQueue:
        flavors = tuple(FlavorQuotas(each, {"cpu": Quota(n)}) for each, n in quotas.items())
        taking = Preemption(Policy.NEVER, Policy.ANY)
        return ClusterQueue(name, "all", (ResourceGroup(("cpu",), flavors),), preemption=taking)

    made = (
        queue("zero", {"second": 4}),
        queue("one", {"first": 4}),
        queue("two", {"first": 4, "second": 4}),
        queue("three", {"first": 0, "second": 0}),
    )
    configuration = Configuration(
        {each.name: each for each in made},
        {},
        {name: ResourceFlavor(name) for name in ("first", "second")},
        {f"ns/{each.name}": LocalQueue(f"ns/{each.name}", each.name) for each in made},
        {"ns": {}},
        Settings(),
    )
    holdings, queues = Holdings(configuration), Queues(configuration)
    for name, on, amount in (("low0", "first", 4), ("low1", "first", 4), ("big", "second", 8)):
        kept = Admission("three", (AdmittedPodSet("main", 1, {"cpu": on}, {"cpu": amount}),))
        holdings.hold(Workload("ns", name, uid=name, admission=kept, reserved_at=NOW))
    grouped = (PodSet("leader", 1, {}, group="g"), PodSet("workers", 1, {"cpu": 4}, group="g"))
    for priority, name in enumerate(("two", "one", "zero")):
        door = f"ns/{name}"
        queues.push(Workload("ns", name, uid=name, queue=door, priority=priority, pod_sets=grouped))
    result = cycle(holdings, queues, NOW)
    assert [
        (
            entry.workload.name,
            [target.holder.workload.name for target in entry.targets],
            entry.assignment and entry.assignment.pod_sets[1].flavors["cpu"].flavor,
        )
        for entry in result.entries
    ] == [
        ("zero", ["big"], "second"),
        ("one", ["low0"], "first"),
        ("two", ["low1"], "first"),
    ]
    assert list(result.recomputations) == [("two", Recomputation.NEW_TARGETS)]


# How often each interesting situation has to come up.
WANTED = {
    "admitted": 400,
    "preempting": 100,
    "no fit": 400,
    "no candidates": 80,
    "skipped": 30,
    "deferred": 1,
    "overlap": 10,
    "reduced": 15,
    "resumed": 30,
    "several groups": 100,
    "several pod sets": 400,
    "shared group": 100,
    "ExceedsMaxQuota": 100,
    "WaitingForQuota": 50,
    "NoMatchingFlavor": 100,
    "PreemptionOverBorrowing": 100,
    "more flavors to try": 100,
}


def note(seen: Counter[str], wanted: Mapping[str, Any], case: Scene, key: str) -> None:
    workload = next(each for each in case.pending if each.key == key)
    queue = case.configuration.cluster_queues[workload.queue.partition("/")[2]]
    chosen = [c for each in wanted["pod_sets"] for c in each["flavors"].values()]
    asked = {each.name: each.count for each in workload.pod_sets}
    for name, is_so in (
        (wanted["outcome"], True),
        (wanted["reason"], True),
        ("overlap", wanted["overlap"]),
        (
            "reduced",
            wanted["outcome"] in ("admitted", "preempting")
            and not workload.reclaimable
            and any(each["count"] < asked[each["name"]] for each in wanted["pod_sets"]),
        ),
        ("several groups", len(queue.groups) > 1 and len(chosen) > 1),
        ("several pod sets", len(wanted["pod_sets"]) > 1),
        ("shared group", any(each.group for each in workload.pod_sets)),
        ("more flavors to try", any(c["tried"] != -1 for c in chosen)),
        (str(queue.fungibility.preference), bool(chosen)),
    ):
        seen[name] += bool(is_so)
