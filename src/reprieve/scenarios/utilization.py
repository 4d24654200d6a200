"""What the exporter reports for the pods below a root, also for pods that appear later.

Rules are kept in the order in which they were given; for each pod and GPU the last rule that
covers it wins. They are applied again whenever a pod appears or goes, because `pod_index` counts in
the order of the names of the pods that exist then.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from reprieve.local.machines.objects import Objects
from reprieve.scenarios.observer import Object, Observer
from reprieve.scenarios.stage import ExporterControl

__all__ = ["Rule", "Utilization"]


@dataclass(frozen=True, slots=True)
class Rule:
    """From now on `value` percent; `pod_index` and `gpu` None mean all."""

    root: str
    value: float
    pod_index: int | None = None
    gpu: int | None = None


@dataclass(slots=True)
class _Report:
    everywhere: float | None = None
    gpus: dict[int, float] = field(default_factory=dict)


class Utilization:
    """Applies the rules of one namespace to an exporter, for as long as `run` runs."""

    def __init__(
        self, namespace: str, objects: Objects, observer: Observer, exporter: ExporterControl
    ) -> None:
        self._namespace = namespace
        self._objects = objects
        self._observer = observer
        self._exporter = exporter
        self._rules: list[Rule] = []
        self._reported: dict[str, _Report] = {}  # by uid of the pod
        self._roots: dict[str, str] = {}  # uid of a pod -> Kind/name of its root owner
        self._pods_changed = asyncio.Event()
        self._applying = asyncio.Lock()
        observer.listen(self._heard)

    async def add(self, rule: Rule) -> None:
        """Put a rule in force."""
        self._rules.append(rule)
        await self._apply()

    async def run(self) -> None:
        """Apply the rules to pods that appear, until cancelled."""
        while True:
            await self._pods_changed.wait()
            self._pods_changed.clear()
            await self._apply()

    def _heard(self, resource: str, item: Object | None) -> None:
        if resource == "pods" and self._rules:
            self._pods_changed.set()

    async def _apply(self) -> None:
        async with self._applying:
            below: dict[str, list[Object]] = {}
            for pod in self._observer.all("pods", self._namespace):
                below.setdefault(await self._root_of(pod), []).append(pod)
            reports: dict[str, tuple[str, _Report]] = {}
            for rule in self._rules:
                for index, pod in enumerate(below.get(rule.root, ())):
                    if rule.pod_index not in (None, index):
                        continue
                    metadata = pod["metadata"]
                    _, report = reports.setdefault(metadata["uid"], (metadata["name"], _Report()))
                    if rule.gpu is None:
                        report.everywhere = rule.value
                        report.gpus.clear()
                    else:
                        report.gpus[rule.gpu] = rule.value
            for uid, (name, report) in reports.items():
                if self._reported.get(uid) != report:
                    await self._exporter.report(
                        self._namespace, name, report.everywhere, report.gpus
                    )
                    self._reported[uid] = report

    async def _root_of(self, pod: Object) -> str:
        uid = pod["metadata"]["uid"]
        if uid not in self._roots:
            self._roots[uid] = await self._climb(pod)
        return self._roots[uid]

    async def _climb(self, item: Object) -> str:
        here = f"Pod/{item['metadata']['name']}"
        owner = _controller(item)
        while owner is not None:
            here = f"{owner['kind']}/{owner['name']}"
            resource = self._objects.resource_of(owner["apiVersion"], owner["kind"])
            above = (
                await self._objects.get(resource, self._namespace, owner["name"])
                if resource is not None
                else None
            )
            owner = _controller(above) if above is not None else None
        return here


def _controller(item: Object) -> dict[str, Any] | None:
    for reference in item["metadata"].get("ownerReferences", ()):
        if reference.get("controller"):
            return dict(reference)
    return None
