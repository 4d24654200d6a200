"""The cluster of one vector: objects as the API writes them, and what the API would answer."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from reprieve.api.core import KueueWorkload, OwnedObject, Pod
from reprieve.api.kaiwo import GpuWorkload
from reprieve.engine.idle.discovery import (
    Answer,
    Forbidden,
    Found,
    Lookup,
    Missing,
    ResolutionError,
    owns,
)
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.intake.owners import found
from reprieve.intake.pods import gpus_of
from reprieve.units.references import Reference

Json = dict[str, Any]
Result = TypeVar("Result")


class World:
    """Objects by kind, namespace and name; `forbidden` are verbs and kinds that answer 403."""

    def __init__(self, objects: Iterable[Json], forbidden: Iterable[Json] = ()) -> None:
        self.objects = [dict(each) for each in objects]
        self.forbidden = {(each["verb"], each["kind"]) for each in forbidden}
        self.deleted: list[str] = []

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        for each in self.objects:
            metadata = each["metadata"]
            if (
                each["kind"] == kind
                and metadata["name"] == name
                and metadata.get("namespace", namespace) == namespace
            ):
                return each
        return None

    def read(self, wanted: Lookup) -> Answer:
        if ("get", wanted.kind) in self.forbidden:
            return Forbidden("the service account may not get it")
        each = self.get(wanted.kind, wanted.namespace, wanted.name)
        if each is None or each["apiVersion"] != wanted.api_version:
            return Missing()
        return found(msgspec.json.decode(msgspec.json.encode(each), type=OwnedObject))

    def walk(self, steps: Generator[Lookup, Answer, Result]) -> Result:
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(self.read(wanted))
        except StopIteration as end:
            result: Result = end.value
            return result

    def delete(self, each: Json) -> None:
        metadata = each["metadata"]
        self.objects.remove(each)
        self.deleted.append(f"{each['kind']}/{metadata.get('namespace', '')}/{metadata['name']}")

    def pods(self, namespace: str) -> list[Pod]:
        return [pod for pod in self._all("Pod", Pod) if pod.metadata.namespace == namespace]

    def owned_pods(self, root: Reference, literal: LiteralSwitches) -> list[Pod]:
        return [pod for pod in self.pods(root.namespace) if self.owned(root, pod, literal)]

    def owned(self, root: Reference, pod: Pod, literal: LiteralSwitches) -> bool:
        try:
            return self.walk(owns(root, found(pod), bool(gpus_of(pod)), literal))
        except ResolutionError:
            return False

    def kueue_workloads(self) -> list[KueueWorkload]:
        return [
            msgspec.convert(each, KueueWorkload)
            for each in self.objects
            if each["kind"] == "Workload" and each["apiVersion"].startswith("kueue.x-k8s.io/")
        ]

    def gpu_workloads(self) -> list[GpuWorkload]:
        return self._all("GpuWorkload", GpuWorkload)

    def annotations(self, kind: str, namespace: str, name: str) -> Mapping[str, str]:
        each = self.get(kind, namespace, name) or {}
        found_annotations: Mapping[str, str] = each.get("metadata", {}).get("annotations") or {}
        return found_annotations

    def _all(self, kind: str, struct: type[Result]) -> list[Result]:
        return [msgspec.convert(each, struct) for each in self.objects if each["kind"] == kind]


def as_found(pod: Json) -> Found:
    return found(msgspec.convert(pod, Pod))
