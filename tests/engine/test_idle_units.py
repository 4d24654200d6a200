"""Gangs that are evicted whole, demands of other planes, and the set with the fewest GPUs."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from reprieve.engine.idle.check import Fault, check, check_all
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.gangs import tied
from reprieve.engine.idle.model import Fit, IdleSnapshot, NodeRow, Policy, Released, Workload
from reprieve.engine.idle.outcome import Reason
from reprieve.engine.plan import Plane
from reprieve.units.ids import GpuWorkloadKey, Uid
from tests.engine.rows import NOW, ago, demand, pod, snapshot, workload

GPU = "amd.com/gpu"
SIZES = (1, 2, 4, 8)
ON_NODES = Policy(fit=Fit.NODE)


def running(
    name: str, gpus: int, node: str = "n0", *, age: float = 3600, unit: str = ""
) -> Workload:
    pods = [pod(f"{name}-0", "Running", node=node, gpus={GPU: gpus})]
    row = workload(name, gpus=gpus, idle_since=ago(age), pods=pods)
    return replace(row, unit=unit)


def wanting(gpus: int, name: str = "wanted") -> Workload:
    pods = [pod(f"{name}-0", "Pending", gpus={GPU: gpus}, demand=True)]
    return demand(name, gpus, pods=pods)


def seen(*rows: Workload, free: int = 0, nodes: int = 1, **facts: Any) -> IdleSnapshot:
    found = snapshot(*rows)
    return replace(found, nodes=tuple(NodeRow(f"n{k}", {GPU: free}) for k in range(nodes)), **facts)


def victims(view: IdleSnapshot, policy: Policy = ON_NODES) -> list[str]:
    plans = evaluate(view, policy, NOW).plans
    assert check_all(plans, view, policy, NOW) == ()
    return [victim.subject.name for plan in plans for victim in plan.victims]


def reasons(view: IdleSnapshot) -> dict[str, Reason]:
    return {e.subject.name: e.reason for e in evaluate(view, ON_NODES, NOW).declined}


def test_all_members_of_a_unit_go_though_one_would_do() -> None:
    ring = [running(f"r{k}", 4, unit="ml-team/ring") for k in range(2)]
    view = seen(*ring, wanting(4))
    (plan,) = evaluate(view, ON_NODES, NOW).plans
    assert [(v.subject.name, v.unit) for v in plan.victims] == [
        ("r0", "ml-team/ring"),
        ("r1", "ml-team/ring"),
    ]
    assert check(plan, view, ON_NODES, NOW) == ()


def test_a_unit_of_which_one_member_is_not_idle_stays() -> None:
    young = running("r1", 4, age=1, unit="ml-team/ring")
    view = seen(running("r0", 4, unit="ml-team/ring"), young, wanting(4))
    assert victims(view) == []
    assert reasons(view)["r0"] is Reason.PART_OF_GANG


def test_a_unit_with_a_pod_that_is_known_to_stay_stays() -> None:
    ring = running("r0", 4, unit="ml-team/ring")
    view = seen(ring, wanting(4), busy_units=frozenset({"ml-team/ring"}))
    assert (victims(view), reasons(view)["r0"]) == ([], Reason.PART_OF_GANG)


def test_who_shares_a_claim_is_told_so() -> None:
    ring = running("r0", 4, unit="claim ml-team/both")
    view = seen(ring, wanting(4), busy_units=frozenset({"claim ml-team/both"}))
    assert (victims(view), reasons(view)["r0"]) == ([], Reason.SHARES_DEVICES)


def test_the_check_refuses_a_plan_that_tears_a_unit() -> None:
    ring = [running(f"r{k}", 4, unit="ml-team/ring") for k in range(2)]
    (plan,) = evaluate(seen(ring[0], wanting(4)), ON_NODES, NOW).plans
    faults = {each.fault for each in check(plan, seen(*ring, wanting(4)), ON_NODES, NOW)}
    assert faults == {Fault.TORN_GANG}


def test_nobody_goes_for_a_demand_of_another_plane_or_one_that_returns() -> None:
    key = GpuWorkloadKey("ml-team/wanted")
    rows = running("idle", 4), wanting(4)
    assert victims(seen(*rows)) == ["idle"]
    owned = seen(*rows, owned={key: Plane.QUOTA})
    back = seen(*rows, displaced=frozenset({key}))
    assert (victims(owned), reasons(owned)["wanted"]) == ([], Reason.OWNED)
    assert (victims(back), reasons(back)["wanted"]) == ([], Reason.DISPLACED)


def test_with_fewest_the_smaller_set_goes_and_among_equals_the_oldest() -> None:
    rows = running("old", 8, age=7200), running("small", 4, "n1"), wanting(4)
    assert victims(seen(*rows, nodes=2)) == ["old"]
    assert victims(seen(*rows, nodes=2), replace(ON_NODES, fewest=True)) == ["small"]
    equal = running("old", 4, age=7200), running("new", 4, "n1"), wanting(4)
    assert victims(seen(*equal, nodes=2), replace(ON_NODES, fewest=True)) == ["old"]


def test_one_unit_alone_goes_before_two_that_serve_as_well() -> None:
    """What the oldest makes room for is placed there, though the other would do for all of it."""
    pods = [pod(f"wanted-{n}", "Pending", gpus={GPU: 2}, demand=True) for n in range(2)]
    rows = (running("old", 2, "n0"), running("both", 4, "n1", age=600))
    view = seen(*rows, demand("wanted", 4, pods=pods), nodes=2)
    assert victims(view) == ["old", "both"]
    assert victims(view, replace(ON_NODES, fewest=True)) == ["both"]


def test_several_small_units_go_before_a_large_one() -> None:
    rows = (
        running("old", 8, "n0"),
        running("first", 2, "n1", age=900),
        running("second", 2, "n1", age=600),
    )
    view = seen(*rows, wanting(4), nodes=2)
    assert victims(view) == ["old"]
    assert sorted(victims(view, replace(ON_NODES, fewest=True))) == ["first", "second"]


def test_a_set_is_tried_again_without_each_of_its_victims() -> None:
    pods = [pod(f"wanted-{n}", "Pending", gpus={GPU: 2}, demand=True) for n in range(3)]
    rows = (
        running("old", 2, "n0"),
        running("pair", 4, "n1", age=900),
        running("other", 2, "n2", age=600),
        running("last", 2, "n3", age=300),
    )
    view = seen(*rows, demand("wanted", 6, pods=pods), nodes=4)
    fewest = replace(ON_NODES, fewest=True)
    taken = victims(view, fewest)
    held = {row.ref.name: sum(row.gpus.values()) for row in rows}
    assert sum(held[name] for name in taken) == 6


def test_what_the_quota_plane_names_goes_and_nobody_else() -> None:
    wants = demand("wanted", 4)
    roots = {name: running(name, 4) for name in ("old", "young")}
    owned = {wants.key: Plane.QUOTA}
    view = seen(*roots.values(), wants, owned=owned)
    assert (victims(view), reasons(view)["wanted"]) == ([], Reason.OWNED)
    named = {wants.key: Released((roots["young"].root.uid,))}
    assert victims(replace(view, released=named)) == ["young"]
    gone = {wants.key: Released((roots["young"].root.uid, Uid("gone")))}
    assert victims(replace(view, released=gone)) == []


def test_the_check_refuses_others_than_the_quota_plane_named() -> None:
    wants = demand("wanted", 4)
    rows = {name: running(name, 4) for name in ("old", "young")}
    view = seen(*rows.values(), wants, owned={wants.key: Plane.QUOTA})

    def naming(*names: str) -> IdleSnapshot:
        roots = tuple(rows[name].root.uid for name in names)
        return replace(view, released={wants.key: Released(roots)})

    (plan,) = evaluate(naming("old"), ON_NODES, NOW).plans
    assert check(plan, naming("old"), ON_NODES, NOW) == ()
    for said, fault in (
        (("young",), {Fault.NOT_FEASIBLE, Fault.REDUCIBLE}),
        (("old", "young"), {Fault.NOT_FEASIBLE}),
        ((), {Fault.REDUCIBLE}),
    ):
        found = check(plan, naming(*said), ON_NODES, NOW)
        assert {each.fault for each in found} == fault


def test_fewest_never_takes_more_and_always_serves_whom_the_oldest_serve() -> None:
    random, fewer = Random(7), 0
    for _ in range(400):
        nodes = random.randint(1, 4)
        rows = [
            running(
                f"w{k}", random.choice((1, 2, 4, 8)), f"n{random.randrange(nodes)}", age=3600 + k
            )
            for k in range(random.randint(1, 7))
        ]
        view = seen(*rows, wanting(random.choice(SIZES)), nodes=nodes)
        sizes = {row.ref.name: sum(row.gpus.values()) for row in rows}
        oldest = victims(view)
        fewest = victims(view, replace(ON_NODES, fewest=True))
        assert bool(oldest) == bool(fewest)
        assert sum(map(sizes.__getitem__, fewest)) <= sum(map(sizes.__getitem__, oldest))
        fewer += sum(map(sizes.__getitem__, fewest)) < sum(map(sizes.__getitem__, oldest))
    assert fewer > 40, "the two orders hardly ever differ"


def test_ties_that_lead_to_each_other_are_one_unit() -> None:
    ties = {
        Uid("a"): ["claim x"],
        Uid("b"): ["claim x", "gang"],
        Uid("c"): ["gang"],
        Uid("d"): ["claim y"],
        Uid("e"): [],
    }
    first = "claim x"
    assert tied(ties) == {"a": first, "b": first, "c": first, "d": "claim y"}
    assert tied(dict(reversed(ties.items()))) == tied(ties)
