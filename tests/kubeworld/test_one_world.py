"""The embedded server and a plan's copy of a cluster give the same answers to the same questions.

Plans are proven on the embedded server: where the two read a rule of the API in two ways, a plan
promises what does not happen. Each question is put to both, through what a plane goes through.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from kubelocal.server.writing.options import PatchType
from kubeworld.objects.paths import set_at
from kubeworld.objects.requests import pod_requests
from kubeworld.objects.selectors import matches_labels
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from kubeworld.units.quantities import parse_milli
from kubeworld.writes.refusals import Refused
from reprieve.api import kueue
from reprieve.intake.quota import label_selector
from reprieve.jobs.table import job_kinds
from reprieve.kube.resource import PODS
from reprieve.whatif.questions.asked import requests_of_spec
from reprieve.whatif.submitting.pod_quotas import QuotaObject, left_of, subtracted
from tests.kubeworld.worlds import BUDGETS, RESOURCES, Copied, Embedded, Object, copied, embedded
from tests.quota_plane.kind_stories import MANIFESTS, manifest
from tests.whatif.test_kinds import runtime

GPU = "nvidia.com/gpu"
ROWS = {kind.kind: kind for kind in job_kinds()}


def container(name: str = "main", **resources: Any) -> Object:
    return {"name": name, "image": "example.org/app:1", "resources": resources}


def both(**amounts: str) -> Object:
    named = {name.replace("gpu", GPU): amount for name, amount in amounts.items()}
    return {"requests": named, "limits": dict(named)}


#: Specs of pods that differ in what they ask for.
ASKING: Mapping[str, Object] = {
    "nothing": {"containers": [container()]},
    "cpu": {"containers": [container(requests={"cpu": "1500m"})]},
    "cpu and memory, limited": {"containers": [container(**both(cpu="1", memory="1Gi"))]},
    "GPUs alone": {"containers": [container(**both(gpu="2"))]},
    "limits alone": {"containers": [container(limits={"cpu": "2", "memory": "1Gi"})]},
    "one of two limited": {"containers": [container(limits={"cpu": "2"}), container("b")]},
    "zero": {"containers": [container(requests={"cpu": "0"})]},
    "the whole pod": {"containers": [container()], "resources": both(cpu="20", memory="1Gi")},
    "the whole pod, requests": {
        "containers": [container(requests={"cpu": "1"})],
        "resources": {"requests": {"cpu": "20"}},
    },
    "the whole pod, limits": {
        "containers": [container(requests={"cpu": "1"})],
        "resources": {"limits": {"cpu": "20"}},
    },
    "the whole pod, beside GPUs": {
        "containers": [container(**both(gpu="1"))],
        "resources": both(cpu="8", memory="8Gi"),
    },
    "an init container": {
        "containers": [container(requests={"cpu": "1"})],
        "initContainers": [container("init", requests={"cpu": "3", "memory": "2Gi"})],
    },
    "a sidecar": {
        "containers": [container(requests={"cpu": "1"})],
        "initContainers": [
            {**container("side", requests={"cpu": "500m"}), "restartPolicy": "Always"},
            container("init", requests={"cpu": "2"}),
        ],
    },
    "an end": {"containers": [container()], "activeDeadlineSeconds": 60},
    "an end and cpu": {
        "containers": [container(requests={"cpu": "1"})],
        "activeDeadlineSeconds": 60,
    },
    "a class": {"containers": [container()], "priorityClassName": "high"},
    "another class": {"containers": [container()], "priorityClassName": "low"},
    "affinity to namespaces": {
        "containers": [container()],
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {"a": "b"}},
                        "topologyKey": "zone",
                        "namespaces": ["other"],
                    }
                ]
            }
        },
    },
    "affinity to labelled namespaces": {
        "containers": [container()],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": {"a": "b"}},
                            "topologyKey": "zone",
                            "namespaceSelector": {},
                        },
                    }
                ]
            }
        },
    },
    "affinity to its own": {
        "containers": [container()],
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
                ]
            }
        },
    },
}

SCOPES: Mapping[str, Object] = {
    **{
        name: {"scopes": [name]}
        for name in ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort")
    },
    "both": {"scopes": ["Terminating", "BestEffort"]},
    "any class": {"scopes": ["PriorityClass"]},
    "across namespaces": {"scopes": ["CrossNamespacePodAffinity"]},
    **{
        f"class {operator}": {
            "scopeSelector": {
                "matchExpressions": [
                    {
                        "scopeName": "PriorityClass",
                        "operator": operator,
                        **({"values": ["high"]} if operator.endswith("In") else {}),
                    }
                ]
            }
        }
        for operator in ("In", "NotIn", "Exists", "DoesNotExist")
    },
}

CLASSES: list[Object] = [
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    for name, value in (("low", 1), ("high", 100))
]
AMOUNTS = (
    *("pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"),
    f"requests.{GPU}",
)


def pod(name: str, spec: Object, **more: Any) -> Object:
    metadata = {"name": name, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def quota(name: str, hard: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard, **spec},
    }


def named(number: int) -> str:
    return f"pod-{number}"


# Quotas


async def _embedded_scopes(world: Embedded) -> dict[tuple[str, str], bool]:
    for each in CLASSES:
        await world.create(each)
    found = {}
    for scope, spec in SCOPES.items():
        assert isinstance(await world.create(quota("q", {"pods": "0"}, **spec)), dict), scope
        for number, (asks, body) in enumerate(ASKING.items()):
            said = await world.create(pod(named(number), body))
            assert isinstance(said, dict) or "exceeded quota" in said, (asks, said)
            found[scope, asks] = isinstance(said, str)
            await world.objects.delete("pods", "default", named(number))
        await world.objects.delete("resourcequotas", "default", "q")
    return found


async def _copied_scopes(world: Copied) -> dict[tuple[str, str], bool]:
    pods = {
        asks: world.create(pod(named(number), body))
        for number, (asks, body) in enumerate(ASKING.items())
    }
    found = {}
    for scope, spec in SCOPES.items():
        one = quota("q", {"pods": "0"}, **spec)
        said = msgspec.convert({**one, "status": {"hard": {"pods": "0"}, "used": {}}}, QuotaObject)
        for asks, each in pods.items():
            found[scope, asks] = subtracted(each, 1, left_of([said])) is not None
    return found


def test_the_same_pods_are_in_the_scope_of_a_quota() -> None:
    here, there = embedded(_embedded_scopes), copied(_copied_scopes, CLASSES)
    assert {key for key in here if here[key] != there[key]} == set()
    assert len(here) == len(SCOPES) * len(ASKING) >= 200
    counted = {scope: {asks for asks in ASKING if here[scope, asks]} for scope in SCOPES}
    assert {"nothing", "GPUs alone", "zero"} < counted["BestEffort"]
    assert counted["BestEffort"] | counted["NotBestEffort"] == set(ASKING)
    assert "the whole pod, beside GPUs" in counted["NotBestEffort"]
    assert counted["across namespaces"] == {
        "affinity to namespaces",
        "affinity to labelled namespaces",
    }


async def _embedded_amounts(world: Embedded) -> dict[str, Any]:
    for each in CLASSES:
        await world.create(each)
    found = {}
    # One quota for each name: that one has to be said is another question.
    for number, (asks, body) in enumerate(ASKING.items()):
        assert isinstance(await world.create(pod(named(number), body)), dict)
        for name in AMOUNTS:
            await world.create(quota("q", {name: "1000Gi"}))
            (one,) = await world.all("resourcequotas")
            found[f"{asks}: {name}"] = one["status"]["used"][name]
            await world.objects.delete("resourcequotas", "default", "q")
        await world.objects.delete("pods", "default", named(number), grace_seconds=0)
    return found


async def _copied_amounts(world: Copied) -> dict[str, Any]:
    found = {}
    for number, (asks, body) in enumerate(ASKING.items()):
        each = world.create(pod(named(number), body))
        for name in AMOUNTS:
            hard = {name: "1000Gi"}
            said = msgspec.convert(
                {**quota("q", hard), "status": {"hard": hard, "used": {}}}, QuotaObject
            )
            (left,) = quotas = left_of([said])
            before = left.amounts[name]
            assert subtracted(each, 1, quotas) is None
            found[f"{asks}: {name}"] = before - left.amounts[name]
    return found


def test_the_same_amounts_are_counted() -> None:
    here, there = embedded(_embedded_amounts), copied(_copied_amounts, CLASSES)
    read = {key: parse_milli(value) for key, value in here.items()}
    assert {key: (read[key], there[key]) for key in read if read[key] != there[key]} == {}
    assert read["the whole pod: cpu"] == 20_000
    assert read["a sidecar: requests.cpu"] == 2_500


# Pods as they are stored


RANGES = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "range"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "max": {"cpu": "30"},
                "default": {"cpu": "4"},
                "defaultRequest": {"cpu": "250m"},
            }
        ]
    },
}
DEFAULT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "usual"},
    "value": 7,
    "globalDefault": True,
    "preemptionPolicy": "Never",
}
#: What else there is when a pod is created.
SURROUNDED: Mapping[str, list[Object]] = {
    "classes": CLASSES,
    "a default class": [*CLASSES, DEFAULT],
    "a LimitRange": [*CLASSES, RANGES],
}
#: Pods that differ in more than what they ask for.
OTHERS: Mapping[str, Object] = {
    "tolerations": {
        "containers": [container()],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
    },
    "a toleration of everything": {
        "containers": [container()],
        "tolerations": [{"operator": "Exists"}],
    },
    "a toleration of another effect": {
        "containers": [container()],
        "tolerations": [
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoSchedule",
            }
        ],
    },
    "ports of the host": {
        "hostNetwork": True,
        "containers": [{**container(), "ports": [{"containerPort": 80}]}],
    },
    "limits of an init container": {
        "containers": [container(requests={"cpu": "1"})],
        "initContainers": [container("init", limits={"cpu": "2"})],
        "resources": {"limits": {"cpu": "9", "memory": "1Gi"}},
    },
}


def _made() -> Iterator[tuple[str, Object]]:
    for number, (asks, body) in enumerate([*ASKING.items(), *OTHERS.items()]):
        yield asks, pod(named(number), body)


def _embedded_pods(there: list[Object]) -> dict[str, Object]:
    async def ask(world: Embedded) -> dict[str, Object]:
        for each in there:
            assert isinstance(await world.create(each), dict)
        found = {}
        for asks, each in _made():
            said = await world.create(each)
            assert isinstance(said, dict), (asks, said)
            found[asks] = said
        return found

    return embedded(ask)


def _copied_pods(there: list[Object]) -> dict[str, Object]:
    async def ask(world: Copied) -> dict[str, Object]:
        return {asks: world.create(each) for asks, each in _made()}

    return copied(ask, there)


def _facts(one: Object) -> Object:
    """Return what decisions read of a pod as it is stored."""
    spec = one["spec"]
    groups = [*spec["containers"], *(spec.get("initContainers") or ())]
    return {
        "quality": one["status"]["qosClass"],
        "phase": one["status"]["phase"],
        **{
            name: spec.get(name)
            for name in ("priority", "priorityClassName", "preemptionPolicy", "tolerations")
        },
        "resources": [each.get("resources") or {} for each in (*groups, spec)],
        "ports": [port.get("hostPort") for each in groups for port in each.get("ports") or ()],
        "kubelet": pod_requests(one),
        "planes": {name: amount for name, amount in requests_of_spec(spec).items() if amount},
    }


@pytest.mark.parametrize("there", SURROUNDED)
def test_a_pod_is_stored_with_the_same_requests_class_and_quality(there: str) -> None:
    here, other = _embedded_pods(SURROUNDED[there]), _copied_pods(SURROUNDED[there])
    wrong = {
        f"{asks}: {name}": (value, _facts(other[asks])[name])
        for asks, one in here.items()
        for name, value in _facts(one).items()
        if value != _facts(other[asks])[name]
    }
    assert wrong == {}
    read = {asks: _facts(one) for asks, one in here.items()}
    assert {asks for asks, one in read.items() if one["kubelet"] != one["planes"]} == set()


# Selectors

SELECTORS: list[Object] = [
    {},
    {"matchLabels": {"app": "a"}},
    {"matchLabels": {"app": "a", "tier": "x"}},
    *(
        {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
        for key in ("app", "none")
        for operator, values in (
            ("In", ["a", "b"]),
            ("In", []),
            ("NotIn", ["a"]),
            ("Exists", []),
            ("DoesNotExist", []),
        )
    ),
    {
        "matchLabels": {"app": "a"},
        "matchExpressions": [{"key": "tier", "operator": "Exists"}],
    },
]
LABELS: list[dict[str, str]] = [
    {},
    {"app": "a"},
    {"app": "b", "tier": "x"},
    {"app": "", "none": "1"},
]


@pytest.mark.parametrize("selector", SELECTORS, ids=str)
def test_a_selector_selects_the_same(selector: Object) -> None:
    read = label_selector(msgspec.convert(selector, kueue.LabelSelector))
    for labels in LABELS:
        assert matches_labels(selector, labels) == (read is not None and read.matches(labels)), (
            labels
        )


def test_no_selector_selects_nothing() -> None:
    assert not matches_labels(None, {"app": "a"}) and label_selector(None) is None


# Budgets

ALLOWED: list[Object] = [
    {"minAvailable": 0},
    {"minAvailable": 2},
    {"minAvailable": 9},
    {"minAvailable": "50%"},
    {"minAvailable": "0%"},
    {"minAvailable": "34%"},
    {"maxUnavailable": 0},
    {"maxUnavailable": 1},
    {"maxUnavailable": "30%"},
    {"maxUnavailable": "100%"},
    {},
]
#: How long ago the pods of a budget were evicted that have not gone yet, in seconds.
EVICTED: list[dict[str, int]] = [{}, {"db-0": 5}, {"db-0": 500}, {"other": 5}]


def _budget(spec: Object) -> Object:
    selector = {"matchLabels": {"app": "db"}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget"},
        "spec": {"selector": selector, **spec},
    }


def _set(replicas: int) -> Object:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [container()]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template,
        },
    }


def _instant(clock: Any, seconds_ago: int) -> str:
    return format_instant(Nanos(clock.wall() - seconds_ago * SECOND))


def _said(status: Object) -> Object:
    names = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
    conditions = {
        each["type"]: (each["status"], each["reason"]) for each in status.get("conditions") or ()
    }
    return {
        **{name: status.get(name, 0) for name in names},
        "disrupted": sorted(status.get("disruptedPods") or {}),
        **conditions,
    }


BUDGET_QUESTIONS = list(itertools.product(range(len(ALLOWED)), range(len(EVICTED))))


async def _embedded_budgets(world: Embedded) -> list[Object]:
    found = []
    await world.create(_set(3))
    await world.wait(20)
    for allowed, evicted in BUDGET_QUESTIONS:
        stored = await world.create(_budget(ALLOWED[allowed]))
        assert isinstance(stored, dict), stored
        await world.wait(1)
        (stored,) = await world.all("poddisruptionbudgets.policy")
        noted = {name: _instant(world.clock, ago) for name, ago in EVICTED[evicted].items()}
        status = {**stored["status"], "disruptedPods": noted}
        await world.objects.update(
            "poddisruptionbudgets.policy", {**stored, "status": status}, subresource="status"
        )
        await world.wait(1)
        (stored,) = await world.all("poddisruptionbudgets.policy")
        found.append(_said(stored["status"]))
        await world.objects.delete("poddisruptionbudgets.policy", "default", "budget")
    return found


async def _copied_budgets(world: Copied) -> list[Object]:
    found = []
    world.create(_set(3))
    await world.wait(20)
    world.place_all()
    await world.wait(20)
    for allowed, evicted in BUDGET_QUESTIONS:
        world.create(_budget(ALLOWED[allowed]))
        await world.wait(1)
        (stored,) = world.overlay.all(BUDGETS)
        noted = {name: _instant(world.clock, ago) for name, ago in EVICTED[evicted].items()}
        status = {**(stored.get("status") or {}), "disruptedPods": noted}
        world.overlay.change(BUDGETS, {**stored, "status": status})
        # What is counted anew is a budget whose pods have changed.
        one = world.overlay.get(PODS, "default", "db-1")
        assert one is not None
        notes = {**(one["metadata"].get("annotations") or {}), "turn": f"{allowed} {evicted}"}
        world.overlay.change(PODS, {**one, "metadata": {**one["metadata"], "annotations": notes}})
        await world.wait(1)
        (stored,) = world.overlay.all(BUDGETS)
        found.append(_said(stored["status"]))
        world.overlay.delete((BUDGETS.group, BUDGETS.plural), ("default", "budget"))
    return found


def test_budgets_allow_the_same() -> None:
    here, there = embedded(_embedded_budgets, machines=True), copied(_copied_budgets)
    asked = [(ALLOWED[a], EVICTED[e]) for a, e in BUDGET_QUESTIONS]
    wrong = [
        (question, mine, other)
        for question, mine, other in zip(asked, here, there, strict=True)
        if mine != other
    ]
    assert wrong == []


# Patches


PATCHED: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "a",
        "labels": {"x": "1", "y": "2"},
        "annotations": {"n": "1"},
        "finalizers": ["example.org/one"],
    },
    "spec": {
        "containers": [container(), container("b")],
        "schedulingGates": [{"name": "g"}, {"name": "h"}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
}
PATCHES: list[tuple[str, Object]] = [
    ("labels", {"metadata": {"labels": {"x": None, "z": "3"}}}),
    ("annotations", {"metadata": {"annotations": {"n": None}}}),
    ("all labels", {"metadata": {"labels": None}}),
    ("finalizers", {"metadata": {"finalizers": ["example.org/two"]}}),
    ("no finalizers", {"metadata": {"finalizers": None}}),
    ("image", {"spec": {"containers": [{"name": "b", "image": "example.org/app:2"}]}}),
    ("a gate less", {"spec": {"schedulingGates": [{"name": "g", "$patch": "delete"}]}}),
    ("gates", {"spec": {"schedulingGates": [{"name": "g"}]}}),
    ("no gates", {"spec": {"schedulingGates": None}}),
    ("uid", {"metadata": {"uid": "another"}}),
    ("version", {"metadata": {"resourceVersion": "1"}}),
    ("name", {"metadata": {"name": "b"}}),
    ("empty", {}),
]
HOW = {PatchType.MERGE: False, PatchType.STRATEGIC: True}
ENVELOPE = ("labels", "annotations", "finalizers")


def _shape(obj: Object | int) -> Any:
    if isinstance(obj, int):
        return obj
    metadata, spec = obj["metadata"], obj["spec"]
    return {
        **{name: metadata.get(name) or None for name in ENVELOPE},
        "containers": [(each["name"], each["image"]) for each in spec["containers"]],
        "gates": [each["name"] for each in spec.get("schedulingGates") or ()],
        "tolerations": len(spec.get("tolerations") or ()),
    }


#: A merge patch replaces lists: these ones leave pods that no API server stores.
ONLY_STRATEGIC = {"image", "a gate less"}


def _patches() -> Iterator[tuple[str, Object, PatchType]]:
    for how in HOW:
        for name, patch in PATCHES:
            if how is PatchType.STRATEGIC or name not in ONLY_STRATEGIC:
                yield f"{name} ({how.name})", patch, how


async def _embedded_patches(world: Embedded) -> dict[str, Any]:
    found = {}
    for number, (name, patch, how) in enumerate(_patches()):
        obj = {**PATCHED, "metadata": {**PATCHED["metadata"], "name": f"a-{number}"}}
        said = await world.create(obj)
        assert isinstance(said, dict), said
        found[name] = _shape(await world.patch(obj, patch, how))
    return found


async def _copied_patches(world: Copied) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind = (PODS.group, PODS.plural)
    for number, (name, patch, how) in enumerate(_patches()):
        obj = {**PATCHED, "metadata": {**PATCHED["metadata"], "name": f"a-{number}"}}
        world.create(obj)
        try:
            said = world.overlay.patch(
                kind, ("default", f"a-{number}"), patch, "", strategic=HOW[how]
            )
            found[name] = _shape(said)
        except Refused as refusal:
            found[name] = refusal.code
    return found


def test_a_patch_leaves_the_same() -> None:
    here, there = embedded(_embedded_patches), copied(_copied_patches)
    assert {key: (here[key], there[key]) for key in here if here[key] != there[key]} == {}


# Device claims

CLAIM_TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu"},
    "spec": {
        "metadata": {"labels": {"for": "tests"}, "annotations": {"note": "kept"}},
        "spec": {
            "devices": {
                "requests": [
                    {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 1}}
                ]
            }
        },
    },
}
CLAIMING = {
    "containers": [container()],
    "resourceClaims": [
        {"name": "first", "resourceClaimTemplateName": "one-gpu"},
        {"name": "second", "resourceClaimTemplateName": "one-gpu"},
        {"name": "none", "resourceClaimTemplateName": "unknown"},
        {"name": "given", "resourceClaimName": "there"},
    ],
}


def _claims_said(claims: list[Object], pods: list[Object]) -> Any:
    titles = {
        each["name"]: each["resourceClaimName"]
        for one in pods
        for each in one["status"].get("resourceClaimStatuses") or ()
    }
    made = {
        each["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"]: (
            each["metadata"].get("labels"),
            each["metadata"]["annotations"].get("note"),
            [owner["kind"] for owner in each["metadata"]["ownerReferences"]],
            [asked["name"] for asked in each["spec"]["devices"]["requests"]],
            titles.get(each["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"])
            == each["metadata"]["name"],
        )
        for each in claims
    }
    return made, sorted(titles)


async def _embedded_claims(world: Embedded) -> Any:
    await world.create(CLAIM_TEMPLATE)
    await world.create(pod("user", CLAIMING))
    await world.wait(5)
    return _claims_said(await world.all("resourceclaims.resource.k8s.io"), await world.all("pods"))


async def _copied_claims(world: Copied) -> Any:
    world.create(pod("user", CLAIMING))
    await world.wait(5)
    claims = RESOURCES["resource.k8s.io/v1", "ResourceClaim"]
    return _claims_said(list(world.overlay.all(claims)), world.pods())


def test_a_pod_gets_the_same_claims() -> None:
    here = embedded(_embedded_claims, machines=True)
    assert here == copied(_copied_claims, [CLAIM_TEMPLATE])
    assert here[1] == ["first", "second"]


# Children


def _pods_described(pods: list[Object]) -> Counter[str]:
    """Return what decides about pods, whatever their names: how many of each there are."""
    return Counter(
        str(
            [
                sorted(requests_of_spec(pod["spec"]).items()),
                [each["name"] for each in pod["spec"]["containers"]],
                pod["spec"].get("nodeSelector"),
                pod["spec"].get("priority"),
            ]
        )
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
    )


def _work(kind: str, *, suspended: bool = False) -> Object:
    obj = manifest(kind, "work")
    obj["metadata"]["namespace"] = "default"
    if suspended:
        set_at(obj, ROWS[kind].suspend, True)
    return obj


def _resource(kind: str) -> str:
    return f"{ROWS[kind].plural}.{ROWS[kind].group}".rstrip(".")


#: Kinds with their own pods, of the table of jobs; a pod is its own.
PLAYED = sorted(kind for kind in ROWS if kind != "Pod" and kind in MANIFESTS)


def _embedded_children(kind: str, suspended: bool) -> Counter[str]:
    async def ask(world: Embedded) -> Counter[str]:
        await world.create(runtime())
        said = await world.create(_work(kind, suspended=suspended))
        assert isinstance(said, dict), said
        await world.wait(60)
        return _pods_described(await world.all("pods"))

    return embedded(ask, machines=True)


def _copied_children(kind: str, suspended: bool) -> Counter[str]:
    async def ask(world: Copied) -> Counter[str]:
        world.create(_work(kind, suspended=suspended))
        for _ in range(4):
            await world.wait(60)
            world.place_all()
        return _pods_described(world.pods())

    return copied(ask, [runtime()])


@pytest.mark.parametrize("kind", PLAYED)
def test_a_kind_has_the_same_pods(kind: str) -> None:
    here, there = _embedded_children(kind, False), _copied_children(kind, False)
    assert here == there
    assert here.total() > 0


@pytest.mark.parametrize("kind", sorted(kind for kind in PLAYED if ROWS[kind].suspend))
def test_what_is_suspended_has_none(kind: str) -> None:
    assert _embedded_children(kind, True) == _copied_children(kind, True) == Counter()


def test_every_kind_of_the_table_is_played() -> None:
    """By the embedded cluster, or by nobody, with a reason."""
    unplayed = {kind for kind in ROWS if kind not in PLAYED} - {"Pod"}
    assert unplayed == set()
