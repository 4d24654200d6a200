"""Objects that no schema would let through, and faults of ours about one object: others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.engine.scheduling.session import Session
from reprieve.execution.pod_victims import PodVictims
from reprieve.intake.cluster.pods import pod_row
from reprieve.planes.scheduling import kinds
from reprieve.planes.scheduling.cycle import decisions
from reprieve.planes.scheduling.cycle.victims import SchedulingVictims
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod

_NONSENSE = ("", "-1", "0", "1e400", "99999999999999999999", "NaN", "true", "{}", "\x00", "ä" * 300)
_KEYS = (
    "reprieve.dev/disruption-floor",
    "reprieve.dev/disruption",
    "reprieve.dev/preempt-min-runtime",
    "reprieve.dev/last-checkpoint",
    "reprieve.dev/min-available",
    "gang.scheduling.koordinator.sh/name",
    "gang.scheduling.koordinator.sh/min-available",
    "gang.scheduling.koordinator.sh/groups",
    "gang.scheduling.koordinator.sh/waiting-time",
    "kubectl.kubernetes.io/default-container",
)


def _requests(made: Object, **amounts: Any) -> Object:
    made["spec"]["containers"][0]["resources"] = {"requests": amounts}
    return made


def _odd_pods() -> dict[str, Object]:
    """Pods of the default scheduler, each odd in one way."""
    found: dict[str, Object] = {}
    for number, value in enumerate(_NONSENSE):
        found[f"quantity-{number}"] = _requests(pod(f"quantity-{number}", 1), cpu=value)
        found[f"device-{number}"] = _requests(
            pod(f"device-{number}", 1), **{"nvidia.com/gpu": value}
        )
        said = pod(f"annotations-{number}", 50)
        said["metadata"]["annotations"] = dict.fromkeys(_KEYS, value)
        found[f"annotations-{number}"] = said
    wrong: dict[str, Any] = {
        "priority": "high",
        "containers": None,
        "nodeName": 7,
        "tolerations": [{"operator": "Perhaps", "tolerationSeconds": "long"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
        "topologySpreadConstraints": [{"maxSkew": -3, "topologyKey": "", "whenUnsatisfiable": "?"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {}}],
        "resourceClaims": [{"name": 3}],
        "schedulingGroup": {"podGroupName": ["g"]},
        "overhead": {"cpu": "-5"},
        "terminationGracePeriodSeconds": -1,
        "nodeSelector": {"a": None},
    }
    for name, value in wrong.items():
        made = pod(f"wrong-{name.lower()}", 50)
        made["spec"][name] = value
        found[made["metadata"]["name"]] = made
    for name, metadata in {
        "labels": {"labels": {"a": 1}},
        "annotations": {"annotations": ["a"]},
        "created": {"creationTimestamp": "yesterday"},
        "deleted": {"deletionTimestamp": "soon"},
        "generation": {"generation": -(2**70)},
        "owners": {"ownerReferences": [{"controller": "yes"}]},
    }.items():
        made = pod(f"metadata-{name}", 50)
        made["metadata"].update(metadata)
        found[made["metadata"]["name"]] = made
    return found


def _odd_others() -> list[tuple[str, Object]]:
    """Nodes, groups and budgets that are odd; each with its kind."""
    found: list[tuple[str, Object]] = []
    for number, value in enumerate(_NONSENSE):
        amounts = {"cpu": value, "memory": value, "pods": value}
        found.append(
            (
                "nodes",
                {
                    "metadata": {"name": f"odd-{number}"},
                    "spec": {"taints": [{"key": value, "effect": "NoSchedule"}]},
                    "status": {"allocatable": amounts, "capacity": amounts},
                },
            )
        )
        odd = group(f"odd-{number}", min_count=-number, priority=value)
        odd["metadata"].update(namespace=NAMESPACE, annotations=dict.fromkeys(_KEYS, value))
        found.append(("podgroups.scheduling.k8s.io", odd))
        spec = {"minAvailable": value, "selector": {"matchLabels": {"app": value}}}
        budget = {"metadata": {"name": f"odd-{number}", "namespace": NAMESPACE}, "spec": spec}
        found.append(("poddisruptionbudgets.policy", {**budget, "status": {}}))
    found.append(("nodes", {"metadata": {"name": "bare"}, "spec": None, "status": None}))
    return found


def _put_odd(cluster: Memory) -> int:
    odd = _odd_pods()
    for made in odd.values():
        metadata = {**made["metadata"], "namespace": NAMESPACE}
        cluster.api.put("pods", {**made, "metadata": metadata, "status": {"phase": "Pending"}})
    others = _odd_others()
    for kind, made in others:
        cluster.api.put(kind, made)
    return len(odd) + len(others)


@pytest.mark.parametrize("first", [True, False], ids=["in the first list", "in the watch"])
async def test_odd_objects_cost_nobody_else_anything(first: bool) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(pod("low", 4, priority="low"), "node-0")
        if first:
            assert _put_odd(cluster) > 70
        cluster.start()
        await cluster.pass_time(SECOND)
        if not first:
            assert _put_odd(cluster) > 70
            await cluster.pass_time(SECOND)
        cluster.create(pod("high", 4, priority="high"))
        await cluster.until(lambda: "low" in cluster.victims(), MINUTE)
        cluster.end_all()
        await cluster.until(lambda: cluster.placed().get("high") == "node-0", MINUTE)


def _faulty(monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    """Let deciding about one pod raise what nobody expects."""
    decide = Session.attempt

    def attempt(self: Session, unit: Any) -> Any:
        if any(uid.startswith(who) for uid in unit.pods):
            raise ZeroDivisionError("the test says so")
        return decide(self, unit)

    monkeypatch.setattr(Session, "attempt", attempt)


async def test_a_fault_in_deciding_about_one_pod_is_that_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _faulty(monkeypatch, "poisoned")
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        cluster.create(pod("poisoned", 1, priority="high"))
        await cluster.pass_time(SECOND)
        cluster.create(pod("other", 1))
        await cluster.until(lambda: "other" in cluster.placed(), MINUTE)
        assert "poisoned" not in cluster.placed()


Broken = Callable[..., Any]


def _break(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, times: int) -> list[int]:
    """Let the first calls of a function raise; return a list that grows with each."""
    calls: list[int] = []
    real: Broken = getattr(module, name)

    def broken(*args: Any, **kwargs: Any) -> Any:
        if len(calls) < times:
            calls.append(1)
            raise ZeroDivisionError("the test says so")
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, broken)
    return calls


async def test_a_fault_that_is_no_pods_is_tried_again_with_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = _break(monkeypatch, decisions, "decide", 3)
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        cluster.create(pod("some", 1))
        with caplog.at_level(logging.ERROR):
            await cluster.until(lambda: "some" in cluster.placed(), MINUTE)
        assert len(calls) == 3
        assert "the test says so" in caplog.text


async def test_a_pod_that_cannot_be_read_costs_the_others_of_its_list_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(found: Any, classes: Any) -> Any:
        if found.metadata.name == "poisoned":
            raise ZeroDivisionError("the test says so")
        return pod_row(found, classes)

    monkeypatch.setattr(kinds, "pod_row", broken)
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.create(pod("poisoned", 1), pod("early", 1))
        cluster.start()
        await cluster.until(lambda: "early" in cluster.placed(), MINUTE)
        cluster.create(pod("late", 1))
        await cluster.until(lambda: "late" in cluster.placed(), MINUTE)
        cluster.end("poisoned")
        await cluster.pass_time(SECOND)
        assert "poisoned" not in cluster.placed()


async def test_a_fault_about_one_victim_is_tried_again_without_a_hot_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0

    def told(self: SchedulingVictims, *about: Any) -> None:
        raise ZeroDivisionError("the test says so")

    monkeypatch.setattr(SchedulingVictims, "_evicted", told)
    mark = PodVictims._mark

    async def marked(self: PodVictims, found: Any, *rest: Any, **more: Any) -> Any:
        nonlocal calls
        if found["metadata"]["name"] == "unit-1" and calls < 4:
            calls += 1
            raise ZeroDivisionError("the test says so")
        return await mark(self, found, *rest, **more)

    monkeypatch.setattr(PodVictims, "_mark", marked)
    async with memory() as cluster:
        cluster.nodes([4, 4])
        cluster.create(group("unit", mode="all", priority="low"))
        for number in range(2):
            made = pod(f"unit-{number}", 4, group="unit", priority="low")
            cluster.running(made, f"node-{number}")
        cluster.start()
        cluster.create(pod("high", 4, priority="high"))
        await cluster.pass_time(2 * SECOND)
        assert not cluster.victims(), "nobody goes while one of the unit cannot be told"
        assert 1 <= calls <= 3, "it is tried again, but not without a pause"
        await cluster.until(lambda: len(cluster.victims()) == 2, MINUTE)
        cluster.end_all()
        await cluster.until(lambda: "high" in cluster.placed(), MINUTE)
