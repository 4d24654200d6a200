"""What kube-scheduler 1.37 was seen to do on a real API server, done again here.

The recorded objects are created anew on the embedded cluster, and conditions, messages and events
are compared, up to names of equal nodes and pods.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.scheduling.site import POD_GROUPS, Object, Site, node, priority_class, site

_RECORDED = Path(__file__).parents[2].parent / "shared" / "observed"
_PREFIX = "kube-scheduler-1.37-"
_NAMES = sorted(
    path.name.removeprefix(_PREFIX).removesuffix(".1-before.yaml")
    for path in _RECORDED.glob(f"{_PREFIX}*.1-before.yaml")
)
_SERVER_MADE = ("uid", "resourceVersion", "creationTimestamp", "generation", "finalizers")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_STATUS_OF_NODES = ("Initialized", "ContainersReady", "Ready")


def _read(name: str, stage: str) -> list[Object]:
    text = (_RECORDED / f"{_PREFIX}{name}.{stage}.yaml").read_text()
    items: list[Object] = yaml.safe_load(text)["items"]
    return items


def _fresh(obj: Object) -> Object:
    """Return the object as somebody would create it."""
    metadata = obj["metadata"]
    for key in (*_SERVER_MADE, "deletionTimestamp", "deletionGracePeriodSeconds"):
        metadata.pop(key, None)
    obj.pop("status", None)
    spec = obj["spec"]
    spec.pop("nodeName", None)
    if obj["kind"] != "PodDisruptionBudget":
        spec.pop("priority", None)
        spec.pop("preemptionPolicy", None)
    return obj


def _classes(items: Iterable[Object]) -> list[Object]:
    found = {}
    for item in items:
        spec = item.get("spec") or {}
        if item["kind"] == "Pod" and spec.get("priorityClassName"):
            name = spec["priorityClassName"]
            found[name] = priority_class(name, spec["priority"], spec["preemptionPolicy"])
    return list(found.values())


def _conditions(items: Iterable[Object], scenario: str) -> Counter[tuple[Any, ...]]:
    """Count the conditions that a scheduler writes; equal pods of the low side are one name."""
    found: Counter[tuple[Any, ...]] = Counter()
    for item in items:
        if item["kind"] not in ("Pod", "PodGroup"):
            continue
        for each in (item.get("status") or {}).get("conditions") or ():
            if each["type"] in _STATUS_OF_NODES:
                continue
            name = _role(item["metadata"]["name"])
            message = _same(each.get("message") or "", scenario)
            found[
                item["kind"], name, each["type"], each["status"], each.get("reason") or "", message
            ] += 1
    return found


def _events(items: Iterable[Object], scenario: str) -> set[tuple[Any, ...]]:
    found = set()
    for item in items:
        if item["kind"] != "Event" or item.get("reportingComponent") != "default-scheduler":
            continue
        related = item.get("related") or {}
        about = item["involvedObject"]
        # A plain pod as preemptor is recorded as related here; the real one cannot name it.
        found.add(
            (
                item["type"],
                item["reason"],
                item["action"],
                about["kind"],
                _role(about["name"]),
                related.get("kind", "") if related.get("kind") != "Pod" else "",
                _same(item["message"], scenario),
                (item.get("firstTimestamp"), item.get("lastTimestamp")),
                bool(item.get("eventTime")),
            )
        )
    return found


def _role(name: str) -> str:
    return "low" if name.startswith("low-") else name


def _same(text: str, scenario: str) -> str:
    text = _UID.sub("UID", text)
    text = re.sub(r"\blow-\d\b", "low", text)
    return re.sub(rf"\b{re.escape(scenario)}-[01]\b", "NODE", text)


@pytest.mark.skipif(not _NAMES, reason="no recordings of kube-scheduler in ../shared/observed")
@pytest.mark.parametrize("name", _NAMES)
async def test_the_plane_does_what_kube_scheduler_was_seen_to_do(name: str, tmp_path: Path) -> None:
    before, during = _read(name, "1-before"), _read(name, "2-preempting")
    namespace = f"ks-{name}"
    zones = {f"{name}-{i}": {"topology.kubernetes.io/zone": f"zone-{i}"} for i in range(2)}
    nodes = [node(node_name, 4, **labels) for node_name, labels in zones.items()]
    async with site(nodes, tmp_path) as cluster:
        await cluster.create(
            {"kind": "Namespace", "metadata": {"name": namespace}}, *_classes([*before, *during])
        )
        await cluster.operator()
        low = [item for item in before if item["kind"] != "Event"]
        await cluster.create(*(_fresh(item) for item in low))
        low_pods = {item["metadata"]["name"] for item in low if item["kind"] == "Pod"}

        async def low_runs() -> bool:
            return (await cluster.placed(namespace)).keys() == low_pods

        await cluster.until("the low side runs", low_runs)
        await cluster.run(namespace)
        known = {(item["kind"], item["metadata"]["name"]) for item in low}
        high = [
            item
            for item in during
            if item["kind"] != "Event" and (item["kind"], item["metadata"]["name"]) not in known
        ]
        victims = sum("deletionTimestamp" in item["metadata"] for item in during)
        wanted = _conditions(during, name)
        await cluster.create(*(_fresh(item) for item in high))

        async def as_recorded() -> bool:
            return _conditions(await _items(cluster, namespace), name) == wanted

        try:
            await cluster.until("the recorded conditions", as_recorded)
        except AssertionError:
            assert _conditions(await _items(cluster, namespace), name) == wanted
            raise

        async def deleted() -> bool:
            return len(await cluster.victims(namespace)) == victims

        await cluster.until("the recorded number of victims", deleted)
        expected = _events(during, name)

        async def events_as_recorded() -> bool:
            return _events(await _items(cluster, namespace), name) == expected

        try:
            await cluster.until("the recorded events", events_as_recorded)
        except AssertionError:
            assert _events(await _items(cluster, namespace), name) == expected
            raise
        high_pods = {item["metadata"]["name"] for item in high if item["kind"] == "Pod"}
        if not victims:

            async def any_victim() -> bool:
                return bool(await cluster.victims(namespace))

            await cluster.never("a victim", any_victim, 3)
            return
        before_end = await cluster.victims(namespace)
        for victim in sorted(before_end):
            await cluster.end(victim, namespace=namespace)

        async def bound() -> bool:
            return high_pods <= (await cluster.placed(namespace)).keys()

        await cluster.until("the high side is bound", bound)
        after = _conditions(_read(name, "3-after"), name)

        async def ends_as_recorded() -> bool:
            return _conditions(await _items(cluster, namespace), name) == after

        try:
            await cluster.until("the recorded end", ends_as_recorded)
        except AssertionError:
            assert _conditions(await _items(cluster, namespace), name) == after
            raise
        assert not await cluster.victims(namespace), "somebody else had to go"
        pods = (await cluster.pods(namespace)).values()
        assert not any(pod["status"].get("nominatedNodeName") for pod in pods)


async def _items(cluster: Site, namespace: str) -> list[Object]:
    groups = (await cluster.client.list(POD_GROUPS, dict, namespace=namespace)).items
    pods = list((await cluster.pods(namespace)).values())
    events = await cluster.events(namespace)
    for kind, items in (("PodGroup", groups), ("Pod", pods), ("Event", events)):
        for item in items:
            item["kind"] = kind
    return [*groups, *pods, *events]
