"""What else strangers say in manifests: drawn on top of those of `strange_work`.

Sidecars, resources of whole pods, scheduling gates, affinity that is only preferred, Jobs with more
parallelism than completions or a limit for each index, and Jobs that their owner holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from tests.whatif.playing import Object
from tests.whatif.strange_work import STRANGE

__all__ = ["STRANGER", "wider"]

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def wider(random: Random, planes: str, name: str) -> Sequence[Object]:
    """Return a submission that says more than one of `strange_work`."""
    found = STRANGE.work(random, planes, name)
    for document in found:
        for spec in _specs(document):
            _widen(random, spec)
        if document["kind"] == "Job":
            _of_job(random, document["spec"])
        if document["kind"] == "Pod" and random.random() < 0.06:
            document["spec"]["schedulingGates"] = [{"name": "example.org/later"}]
    return found


def _widen(random: Random, spec: Object) -> None:
    if random.random() < 0.15:
        sidecar: Object = {
            "name": "sidecar",
            "image": "registry.example/app:1",
            "restartPolicy": "Always",
            "resources": {"requests": {"cpu": random.choice(("250m", "500m"))}},
        }
        spec.setdefault("initContainers", []).append(sidecar)
    if random.random() < 0.1:
        spec["resources"] = {"requests": {"cpu": random.choice(("3", "3500m"))}}
    if random.random() < 0.15:
        term = {"key": "disk", "operator": "In", "values": [random.choice(("fast", "slow"))]}
        wish = {"weight": random.randint(1, 100), "preference": {"matchExpressions": [term]}}
        spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})[_PREFERRED] = [wish]
    if random.random() < 0.1:
        beside = {"labelSelector": {"matchLabels": {"tier": "guarded"}}, "topologyKey": "zone"}
        wish = {"weight": random.randint(1, 100), "podAffinityTerm": beside}
        spec.setdefault("affinity", {}).setdefault("podAffinity", {})[_PREFERRED] = [wish]


def _of_job(random: Random, spec: Object) -> None:
    if random.random() < 0.15:
        spec["parallelism"] = spec["completions"] + random.randint(1, 2)
    if random.random() < 0.1:
        spec["suspend"] = True
    if random.random() < 0.1:
        spec["backoffLimitPerIndex"], spec["completionMode"] = 1, "Indexed"


def _specs(part: object) -> Iterator[Object]:
    """Yield the specs of pods within a document."""
    if isinstance(part, dict):
        if "containers" in part:
            yield part
        for each in part.values():
            yield from _specs(each)
    elif isinstance(part, list):
        for each in part:
            yield from _specs(each)


#: Every kind, saying more.
STRANGER = replace(STRANGE, work=wider)
