"""Objects with very long lists and maps: reading them takes steps in proportion, and bounded room.

The API server takes objects of 1.5 MB; a list in one may have 100,000 entries. Each list and map of
each seed is made long and then four times as long, and lines are counted: a reader that looks at
every entry for every entry takes sixteen times as many. What compares in C is counted by texts that
know how often they were compared.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
import pytest
import yaml

from reprieve.api.core import Pod
from reprieve.api.scheduling import PodObject
from reprieve.engine.cluster.rows import Gone, Kind
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.idle.resources import DEFAULT_VENDORS
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.intake import pods as idle_pods
from reprieve.intake.cluster.pods import counted_pod_row, pod_row
from reprieve.jobs import reading, writing
from reprieve.jobs.model import JobKind
from reprieve.jobs.pod_sets import found_pod_sets, pod_sets_of
from reprieve.jobs.table import BUILT_IN
from reprieve.jobs.training import RUNTIME, job_set_of
from reprieve.units.ids import Uid
from reprieve.wording.kube_scheduler import pod_condition
from tests.engine.builders import cluster_of, node, pod, snapshot_of

Json = dict[str, Any]
KINDS: Final = Path(__file__).parents[1] / "quota_plane" / "kinds.yaml"
FEW: Final = 40
#: Times as many steps as for a fourth of the entries: four for each, and some for what is sorted.
MOST: Final = 6.0

REQUIREMENT: Final = {"key": "app", "operator": "In", "values": ["a"]}
SELECTOR: Final = {"matchLabels": {"a": "b"}, "matchExpressions": [REQUIREMENT]}
TERM: Final = {"topologyKey": "zone", "namespaces": ["w"], "labelSelector": SELECTOR}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
RESOURCES: Final = {
    "requests": {"cpu": "1", "x.example/y": "1"},
    "limits": {"x.example/y": "1"},
    "claims": [{"name": "r"}],
}
POD: Final[Json] = {
    "metadata": {
        "name": "a",
        "namespace": "w",
        "uid": "u",
        "labels": {"app": "q"},
        "annotations": {"a": "b"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}],
        "finalizers": ["a"],
    },
    "spec": {
        "nodeName": "node",
        "schedulingGates": [{"name": "g"}],
        "nodeSelector": {"a": "b"},
        "containers": [
            {
                "name": "c",
                "image": "i",
                "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                "resources": RESOURCES,
            }
        ],
        "initContainers": [
            {"name": "s", "image": "i", "restartPolicy": "Always", "resources": RESOURCES},
        ],
        "overhead": {"cpu": "1"},
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v"}],
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [REQUIREMENT]}]},
                PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [REQUIREMENT]}}],
            },
            "podAffinity": {
                REQUIRED: [TERM],
                PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}],
            },
            "podAntiAffinity": {REQUIRED: [TERM]},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": SELECTOR,
                "matchLabelKeys": ["app"],
            }
        ],
        "resourceClaims": [{"name": "t", "resourceClaimTemplateName": "x"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "resourceClaimStatuses": [{"name": "t", "resourceClaimName": "y"}],
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}],
    },
}


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python are run."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def places(obj: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the lists and maps of texts of an object are."""
    if isinstance(obj, list):
        if obj:
            yield at
        for number, each in enumerate(obj):
            yield from places(each, (*at, number))
    elif isinstance(obj, dict):
        if obj and all(isinstance(value, str) for value in obj.values()):
            yield at
        for name, each in obj.items():
            yield from places(each, (*at, name))


def long_one(seed: Json, at: tuple[Any, ...], count: int) -> Json:
    """Return the object with so many entries there, each named otherwise."""
    made = copy.deepcopy(seed)
    there: Any = made
    for part in at:
        there = there[part]
    if isinstance(there, dict):
        value = next(iter(there.values()))
        there.update({f"x{number}.example/y": value for number in range(count)})
    else:
        there[:] = [_renamed(there[0], number) for number in range(count)]
    return made


def _renamed(entry: Any, number: int) -> Any:
    if isinstance(entry, str):
        return f"{entry}{number}"
    made = copy.deepcopy(entry)
    for name in ("name", "key", "topologyKey", "uid"):
        if isinstance(made.get(name), str):
            made[name] += str(number)
    if isinstance(made.get("resources"), dict):
        made["resources"] = {"requests": {f"x{number}.example/y": "1"}}
    return made


def too_many_steps(seed: Json, read: Callable[[Json], object]) -> dict[str, float]:
    found = {}
    for at in places(seed):
        few, many = (steps(partial(read, long_one(seed, at, count))) for count in (FEW, 4 * FEW))
        if many > MOST * few:
            found[".".join(map(str, at))] = many / few
    return found


def read_pod(obj: Json) -> None:
    scheduled = msgspec.convert(obj, PodObject)
    pod_row(scheduled)
    counted_pod_row(scheduled)
    idle = msgspec.convert(obj, Pod)
    idle_pods.pod_row(idle, idle_pods.gpus_of(idle, DEFAULT_VENDORS), ())


def test_a_pod_is_read_in_steps_in_proportion_to_each_of_its_lists() -> None:
    assert too_many_steps(POD, read_pod) == {}


def manifests() -> Iterator[Json]:
    text = KINDS.read_text(encoding="utf-8").replace("NAME", "a")
    for obj in filter(None, yaml.safe_load_all(text)):
        if obj["kind"] == "TrainJob":
            obj |= train_job("a")
        yield obj


def train_job(*arguments: str) -> Json:
    """Return a TrainJob whose patch adds arguments and tolerations to its runtime's pods."""

    def jobs(pods: Json) -> Json:
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
        template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": pods}}}
        return {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}}

    def pods(words: list[str]) -> Json:
        container = {"name": "node", "args": words, "env": [{"name": "e", "value": "1"}]}
        return {"containers": [container], "tolerations": [{"key": "a"}]}

    patch = {"manager": "m", "trainingRuntimeSpec": jobs(pods(list(arguments)))}
    return {
        "metadata": {"name": "a"},
        "spec": {"trainer": {"env": [{"name": "x", "value": "y"}]}, "runtimePatches": [patch]},
        RUNTIME: jobs(pods(["first"])),
    }


def read_job(kind: JobKind, job: Json) -> None:
    pod_sets = pod_sets_of(kind, job)
    reading.reclaimable(kind, job)
    reading.end(kind, job)
    reading.digest(pod_sets, tolerations=True)
    if kind.suspend:
        writing.is_restored(kind, job, pod_sets)
        writing.started(kind, job, {each["name"]: writing.Injection() for each in pod_sets})


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.kind)
def test_a_job_is_read_in_steps_in_proportion_to_each_of_its_lists(kind: JobKind) -> None:
    [seed] = [each for each in manifests() if each["kind"] == kind.kind]
    seed.setdefault("metadata", {}).setdefault("labels", {"a": "b"})
    assert too_many_steps(seed, lambda job: read_job(kind, job)) == {}


class Counted(str):
    """A text that counts how often it is compared."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_what_a_patch_adds_to_a_list_is_not_compared_with_all_of_it() -> None:
    Counted.compared = 0
    job = train_job(*(Counted(f"a{number}") for number in range(300)))
    made = job_set_of(job)
    assert made is not None
    [container] = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["args"] == ["first", *(f"a{number}" for number in range(300))]
    assert Counted.compared < 3_000


# What a wide object may take of others' time and memory.

[APP_WRAPPER] = (kind for kind in BUILT_IN if kind.kind == "AppWrapper")


def app_wrapper(paths: list[str], template: Json) -> Json:
    component = {"podSets": [{"path": path} for path in paths], "template": template}
    return {"metadata": {"name": "a"}, "spec": {"components": [component]}}


def test_the_path_of_a_pod_set_is_a_path_and_no_search() -> None:
    pods = {"spec": {"containers": [{"name": "c"}]}}
    job = app_wrapper(["template.*", "*.pods", "template.pods"], {"pods": pods})
    assert [each.template for each in found_pod_sets(APP_WRAPPER, job)] == [pods]
    wide = app_wrapper(["template.*.none"] * 100, {f"k{number}": 0 for number in range(1_000)})
    assert steps(lambda: found_pod_sets(APP_WRAPPER, wide)) < 5_000


def test_a_template_that_is_named_a_thousand_times_is_not_copied_a_thousand_times() -> None:
    job = app_wrapper(["template"] * 1_000, {"spec": {"containers": [{"name": "c"}]}})
    # One more than a Workload may have: the API server refuses it.
    assert len(pod_sets_of(APP_WRAPPER, job)) == 19


NAMES: Final = {f"x{number:04}.example/y": 2 for number in range(500)}
GPU: Final = "zz.example/gpu"


def attempt_of(snapshot: Snapshot) -> Attempt:
    attempt = Session(snapshot, Policy()).attempt(Unit((Uid("pod-p"),)))
    assert attempt is not None
    return attempt


def test_resources_that_pods_invent_take_no_room_for_every_node_and_pod() -> None:
    snapshot = snapshot_of(node("n1"), pod("odd", node="n1", extended=NAMES), pod(extended=NAMES))
    assert len(snapshot.resources) < 50
    [member] = attempt_of(snapshot).members
    assert not member.bind


def test_a_resource_that_a_node_offers_counts_although_pods_have_invented_many() -> None:
    """The pods that ask for it come first: their amounts, huge ones too, are summed up later."""
    asks = {**NAMES, GPU: 3}
    cluster = cluster_of(
        pod("odd", node="n1", extended=asks),
        pod("huge", node="n1", extended={GPU: 2**50}),
        pod("assumed", extended={GPU: 4}),
        node("n1"),
    )
    assert GPU not in cluster.snapshot().resources
    cluster.assume(Uid("pod-assumed"), "n1", deadline=1)
    cluster.apply([node("n2", extended={GPU: 8})])
    snapshot = cluster.snapshot()
    used = snapshot.used[:, snapshot.resources.index(GPU)].tolist()
    assert used == [3 + 2**50 + 4, 0]
    cluster.apply([Gone(Kind.POD, Uid("pod-huge"), "default", "huge")])
    snapshot = cluster.snapshot()
    assert snapshot.used[:, snapshot.resources.index(GPU)].tolist() == [7, 0]


def test_a_condition_says_no_more_of_thousands_of_resources_than_a_condition_may() -> None:
    names = {f"x{number:04}.example/{'y' * 30}": 1 for number in range(2_000)}
    snapshot = snapshot_of(node("n1"), pod(extended=names))
    attempt = attempt_of(snapshot)
    message = pod_condition(attempt, attempt.members[0]).message
    assert len(message) == 32_768
    assert message.startswith("0/1 nodes are available: 1 Insufficient x0000.example/yyy")
