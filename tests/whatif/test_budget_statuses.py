"""What PodDisruptionBudgets allow follows their pods in a what-if, as on the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubeworld.time import LoopClock, run_virtually
from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.controllers.stand_ins import StandIns
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.snapshots.snapshot import Listed, Snapshot

Object = dict[str, Any]
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "set", "uid": "set"}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def _pod(name: str, owner: Object | None = None, *, ready: bool = True, app: str = "a") -> Object:
    metadata: Object = {"name": name, "namespace": "team", "uid": name, "labels": {"app": app}}
    if owner is not None:
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    spec = {"containers": [{"name": "c"}]}
    return {"metadata": metadata, "spec": spec, "status": READY if ready else {"phase": "Pending"}}


def _allowed(
    spec: Object, do: Callable[[Overlay], None], reason: str = "SufficientPods"
) -> tuple[int, int, int]:
    """Return how many may go, have to be healthy and are expected, once this was done.

    There are three ready pods of a StatefulSet of four, and one of another application.
    """
    pods = [*(_pod(f"set-{number}", SET) for number in range(3)), _pod("other", app="b")]
    said = {"type": "DisruptionAllowed", "status": "True", "reason": reason}
    budget: Object = {
        "metadata": {"name": "budget", "namespace": "team", "uid": "budget"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, **spec},
        "status": {
            "disruptionsAllowed": 9,
            "desiredHealthy": 9,
            "expectedPods": 9,
            "conditions": [said],
        },
    }
    one: Object = {
        "metadata": {"name": "set", "namespace": "team", "uid": "set"},
        "spec": {"replicas": 4},
    }
    there: list[tuple[Resource, list[Object]]] = [(PODS, pods), (BUDGETS, [budget]), (SETS, [one])]
    kinds = {
        (each.group, each.plural): Listed(
            each,
            {("team", obj["metadata"]["name"]): msgspec.json.encode(obj) for obj in objects},
            1,
        )
        for each, objects in there
    }

    async def main() -> tuple[int, int, int]:
        clock = LoopClock(asyncio.get_running_loop(), Nanos(0))
        overlay = Overlay(Snapshot(Nanos(0), kinds), clock)
        running = asyncio.create_task(StandIns(overlay, clock).run())
        do(overlay)
        await clock.sleep(MINUTE)
        running.cancel()
        (found,) = overlay.all(BUDGETS)
        status = found["status"]
        return status["disruptionsAllowed"], status["desiredHealthy"], status["expectedPods"]

    return run_virtually(main)


def _nothing(overlay: Overlay) -> None:
    overlay.create(PODS, _pod("another", app="b"))


def _one_more(overlay: Overlay) -> None:
    overlay.create(PODS, _pod("more"))


def _one_that_waits(overlay: Overlay) -> None:
    overlay.create(PODS, _pod("more", ready=False))


def _one_goes(overlay: Overlay) -> None:
    overlay.delete(("", "pods"), ("team", "set-0"), {"gracePeriodSeconds": 0})
    overlay.delete(("apps", "statefulsets"), ("team", "set"))


@pytest.mark.parametrize(
    ("spec", "do", "told"),
    [
        # As it was found, until one of its pods changes.
        ({"maxUnavailable": 1}, _nothing, (9, 9, 9)),
        # Four of the set and one more are expected: of these four have to be healthy, and are.
        ({"maxUnavailable": 1}, _one_more, (0, 4, 5)),
        ({"maxUnavailable": 2}, _one_more, (1, 3, 5)),
        ({"maxUnavailable": 2}, _one_that_waits, (0, 3, 5)),
        ({"maxUnavailable": "50%"}, _one_more, (2, 2, 5)),
        ({"minAvailable": "50%"}, _one_more, (1, 3, 5)),
        # A number is of the pods that there are.
        ({"minAvailable": 1}, _one_more, (3, 1, 4)),
        ({"minAvailable": 1}, _one_that_waits, (2, 1, 4)),
        ({"minAvailable": 3}, _one_that_waits, (0, 3, 4)),
        # An empty selector is of every pod in the namespace, a missing one of none.
        ({"minAvailable": 1, "selector": {}}, _one_more, (4, 1, 5)),
        ({"minAvailable": 1, "selector": None}, _one_more, (9, 9, 9)),
    ],
)
def test_what_a_budget_allows_follows_its_pods(
    spec: Object, do: Callable[[Overlay], None], told: tuple[int, int, int]
) -> None:
    assert _allowed(spec, do) == told


def test_a_budget_whose_last_pods_go_allows_nothing() -> None:
    # The pods of the set go with it.
    assert _allowed({"maxUnavailable": 1}, _one_goes) == (0, 0, 0)


def test_a_budget_of_which_the_cluster_cannot_tell_is_left_alone() -> None:
    assert _allowed({"maxUnavailable": 1}, _one_more, "SyncFailed") == (9, 9, 9)
