"""Objects that a hostile tenant may write: every plane's fields and annotations, each in odd forms.

`hostile` makes one of them by a seeded generator. What an API server would refuse is made as well:
tests count what was stored and what was refused, by kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from reprieve.api.kaiwo import ANNOTATION_PREFIX, DERIVED_ANNOTATION, SUFFIXES
from reprieve.api.reprieve import ON_PREEMPTION
from tests.fuzz.targets import POD_NOTES

TEAM: Final = "team"

Object = dict[str, Any]

_PIECES: Final = (
    *("1", "9", "1.", "1s", "[", '{"a":', "(.|.)", "a*", "\\", "ä", "٣", "\N{SNOWMAN}"),
    *("-", "1e9", "0x", "T", "%s", "${jndi:", "../", "\x1b[0m", "true", "null", "Ki"),
    *("0", "e", "1e", "9" * 19, "１", "\N{RIGHT-TO-LEFT OVERRIDE}", "\x7f", "a,", "=", '","'),
    *("(?=", "[[:alpha:]]", "(a+)+", "\U0001f600", "{}", "'", ";", "\t", "\r\n", "1h1m1s"),
)
_ENDS: Final = ("", "x", "s", "m", "e99999", "]", "Z", "!", '"', "E", "Ei", "n", "\0", "}", "ns")
_AMOUNTS: Final = (
    *("1m", "1", "9" * 40, "1e30", "9223372036854775807", "9223372036854775808", "1E", "8Ei"),
    *("1e-30", "0.0000000001", "9" * 120, "1n", "-1", "0", "1e31", "٣", ".", "+5", "1e+9"),
)
_INSTANTS: Final = (
    *(
        "2026-03-04T10:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "1969-12-31T23:59:59Z",
    ),
    *(
        "2026-02-30T00:00:00Z",
        "2026-03-04T10:00:00.999999999999999Z",
        "292277026596-12-04T15:30:07Z",
    ),
    *("2026-03-04T10:00:00+99:99", "-292277022399-01-01T00:00:00Z", "2026-03-04t10:00:60z"),
)
_DURATIONS: Final = (
    *("1h", "-1h", "9999999999h", "2562047h47m16.854775807s", "2562048h", "1ns", "0", "1e9s"),
    *("106751d", "1.7976931348623157e308s", "infs", "nan", "1h" * 100, ".s", "٣s", "1µs"),
)
_NUMBERS: Final = (0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**53, 2**63 - 1, -(2**63), 2**63)
_FEW: Final = (
    -(2**31),
    -1,
    0,
    1,
    3,
)  # what makes pods: the test's cluster makes all that it is asked
_ATTRIBUTE: Final = 'device.attributes["gpu.example.com"].b'
_CAPACITY: Final = 'device.capacity["gpu.example.com"].b'
_CEL: Final = (
    '{it}.matches("{text}")',
    '"{text}".matches("(a|aa)+$")',
    '{it}.lowerAscii().contains("{text}")',
    '{it}.startsWith("{text}") || {it}.endsWith("{text}")',
    'quantity("{text}").isGreaterThan({has})',
    'semver("{text}").compareTo(semver("1.0.0")) > 0',
    'device.driver in ["{text}", "{text}", "{text}"]',
    'cel.bind(a, "{text}", a.size() > 0 && a.split("").size() > 0)',
    '{it}.replace("{text}", "{text}").size() > 1',
    '{it}.find("{text}") == "" || "{text}".findAll("{text}") == []',
    'url("{text}").getHost() == "" || ip("{text}").family() == 4',
    '[1,2,3].all(a, [1,2,3].all(b, [1,2,3].all(c, "{text}".size() > a + b + c)))',
    "!" * 500 + "true",
    "(" * 500 + "true" + ")" * 500,
    " && ".join(["device.driver == 'a'"] * 400),
    "9223372036854775807 + 1 > 0",
    "1/0 == 1",
)


def texts(random: Random) -> str:
    """Return some hostile text."""
    if random.random() < 0.2:
        return random.choice((*_AMOUNTS, *_INSTANTS, *_DURATIONS, *map(str, _NUMBERS)))
    size = random.choice((1, 40, 40, 300, 300, 5_000, 5_000, 5_000, 60_000))
    return (random.choice(_PIECES) * size)[:size] + random.choice(_ENDS)


def parsed_texts(random: Random) -> str:
    """Return a text that begins as what an annotation holds: JSON, numbers, lists."""
    depth = random.choice((3, 30, 33, 3_000))
    return random.choice(
        (
            "[" * depth + "]" * depth,
            '{"a":' * depth + "1" + "}" * depth,
            json.dumps(["team/a"] * random.choice((1, 2_000))),
            json.dumps([f"team/odd-{random.randrange(10_000)}" for _ in range(200)]),
            json.dumps({"gracePeriod": texts(random), "policy": ["Always"] * 100}),
            json.dumps({str(number): {} for number in range(3_000)}),
            "[1e400, NaN, Infinity, -1e400]",
            '["\\ud800", "\\u0000"]',
            '{"a": 1, "a": 2, "": null}',
            f"[{'9' * 5_000}]",
            str(random.choice(_NUMBERS)),
        )
    )


def annotations_of(random: Random) -> dict[str, str]:
    """Return annotations that the operator reads."""
    keys = (
        *POD_NOTES,
        *(f"{ANNOTATION_PREFIX}{suffix}" for suffix in (*SUFFIXES, "unknown")),
        DERIVED_ANNOTATION,
        ON_PREEMPTION,
        "kueue.x-k8s.io/job-min-parallelism",
        "kueue.x-k8s.io/retriable-in-group",
        "kueue.x-k8s.io/podset-required-topology",
        "kueue.x-k8s.io/podset-preferred-topology",
        "reprieve.dev/kept-fields",
        "kueue.x-k8s.io/role-hash",
        "alpha.jobset.sigs.k8s.io/exclusive-topology",
    )
    make = (texts, texts, parsed_texts)
    chosen = random.sample(keys, random.choice((1, 3, 5)))
    return {key: random.choice(make)(random) for key in chosen}


def labels(random: Random) -> dict[str, str]:
    """Return labels that the operator reads; some are no labels at all."""
    keys = (
        *(
            "kueue.x-k8s.io/queue-name",
            "kueue.x-k8s.io/pod-group-name",
            "pod-group.scheduling.sigs.k8s.io",
        ),
        *("kueue.x-k8s.io/priority-class", "kueue.x-k8s.io/max-exec-time-seconds", "app", "k" * 63),
        *("scheduling.x-k8s.io/pod-group", "gang.scheduling.koordinator.sh/name", f"{'a' * 253}/b"),
    )
    values = ("q", "none", "a" * 63, "9" * 63, "a.-_b", "odd-1", texts(random))
    return {key: random.choice(values) for key in random.sample(keys, 2)}


def owners(random: Random, name: str) -> list[Object]:
    """Return owner references: to itself, in circles, of invented kinds, many."""
    number = random.randrange(10_000)
    kinds = (("batch/v1", "Job"), ("v1", "Pod"), ("apps/v1", "StatefulSet"), ("made.up/v1", "Up"))
    api, kind = random.choice((*kinds, (f"x{number}.example/v1", "K" * 63)))
    named = random.choice((name, f"odd-{number}", "good-idle-0", "a" * 253))
    one = {"apiVersion": api, "kind": kind, "name": named, "uid": f"uid-{number % 50}"}
    count = random.choice((1, 1, 500))
    return [
        {**one, "uid": f"{one['uid']}-{each}", "controller": each == 0} for each in range(count)
    ]


def requirement(random: Random) -> Object:
    """Return one requirement of a selector."""
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Other"))
    values = [texts(random)[:63] for _ in range(random.choice((0, 1, 1, 300)))]
    return {
        "key": random.choice(("app", "zone", texts(random)[:63])),
        "operator": operator,
        "values": values,
    }


def affinity(random: Random) -> Object:
    """Return terms that select the pod itself, everybody, or nobody, once or by hundreds."""
    selector = random.choice(
        ({}, {"matchLabels": {"app": "q"}}, {"matchExpressions": [requirement(random)]})
    )
    term = {
        "topologyKey": random.choice(("zone", "kubernetes.io/hostname")),
        "labelSelector": selector,
    }
    if random.random() < 0.3:
        term["namespaceSelector"] = {}
    count = random.choice((1, 2, 200))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    found: Object = {random.choice(("podAffinity", "podAntiAffinity")): {required: [term] * count}}
    if random.random() < 0.5:
        terms = [{"matchExpressions": [requirement(random)]} for _ in range(count)]
        found["nodeAffinity"] = {required: {"nodeSelectorTerms": terms}}
    return found


def pod_spec(random: Random, *, node: str = "", gpus: int = 0) -> Object:
    """Return the spec of a pod of one container, or of hundreds."""
    count = random.choice((1, 1, 1, 1, 300))
    containers = []
    for number in range(count):
        requests = {"cpu": random.choice((*_AMOUNTS, texts(random) if count == 1 else "1m"))}
        container: Object = {
            "name": f"c{number}",
            "image": "busybox",
            "resources": {"requests": requests},
        }
        if random.random() < 0.1:
            container["env"] = [
                {"name": f"E{each}", "value": "v" * 40} for each in range(1_000 // count)
            ]
        containers.append(container)
    if gpus:
        containers[0]["resources"]["limits"] = {"amd.com/gpu": str(gpus)}
    spec: Object = {"containers": containers, "terminationGracePeriodSeconds": 0}
    if node:
        spec["nodeName"] = node
    more: dict[str, Callable[[], Any]] = {
        "tolerations": lambda: [
            {
                "key": f"k{each}",
                "operator": random.choice(("Equal", "Gt", "Lt")),
                "value": texts(random)[:63],
            }
            for each in range(random.choice((1, 500)))
        ],
        "affinity": lambda: affinity(random),
        "topologySpreadConstraints": lambda: [
            {
                "maxSkew": random.choice((1, 2**31 - 1)),
                "topologyKey": f"zone{each}",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "q"}},
            }
            for each in range(random.choice((1, 100)))
        ],
        "nodeSelector": lambda: {texts(random)[:63]: texts(random)[:63], "zone": "a"},
        "overhead": lambda: {"cpu": random.choice(_AMOUNTS)},
        "priority": lambda: random.choice(_NUMBERS),
        "priorityClassName": lambda: random.choice(("none", "system-cluster-critical", "a" * 253)),
        "schedulingGates": lambda: [{"name": f"gate-{each}"} for each in range(300)],
        "resourceClaims": lambda: [
            {"name": f"r{each}", "resourceClaimName": f"odd-{random.randrange(10_000)}"}
            for each in range(random.choice((1, 30)))
        ],
        "schedulingGroup": lambda: {"podGroupName": f"odd-{random.randrange(10_000)}"},
        "resources": lambda: {"requests": {"cpu": random.choice(_AMOUNTS)}},
        "volumes": lambda: [
            {"name": f"v{each}", "persistentVolumeClaim": {"claimName": f"odd-{each}"}}
            for each in range(random.choice((1, 200)))
        ],
    }
    for key in random.sample(sorted(more), random.choice((0, 1, 1, 2, 4))):
        spec[key] = more[key]()
    return spec


def _job_set(random: Random) -> Object:
    job = {"parallelism": random.choice(_FEW), "template": {"spec": pod_spec(random)}}
    replicated = {"name": "r", "replicas": random.choice(_FEW), "template": {"spec": job}}
    return {"suspend": True, "replicatedJobs": [replicated] * random.choice((1, 20))}


def _gang(random: Random) -> Object:
    count = random.choice(_NUMBERS)
    return random.choice(
        (
            {"minMember": count, "scheduleTimeoutSeconds": random.choice(_NUMBERS)},
            {
                "minMember": 2,
                "minResources": {"cpu": random.choice(_AMOUNTS), texts(random)[:63]: "1"},
            },
        )
    )


def _workload(random: Random) -> Object:
    pods = [
        {
            "name": f"main{each}",
            "count": random.choice(_NUMBERS),
            "template": {"spec": pod_spec(random)},
        }
        for each in range(random.choice((1, 8)))
    ]
    return {
        "queueName": random.choice(("q", texts(random)[:253])),
        "podSets": pods,
        "priority": random.choice(_NUMBERS),
    }


def _cluster_queue(random: Random) -> Object:
    resource = {
        "name": "cpu",
        "nominalQuota": random.choice(_AMOUNTS),
        "borrowingLimit": random.choice(_AMOUNTS),
    }
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "default-flavor", "resources": [resource]}],
    }
    return {
        "cohortName": _loop(random),
        "namespaceSelector": {"matchExpressions": [requirement(random)]},
        "resourceGroups": [group] * random.choice((1, 2)),
        "fairSharing": {"weight": random.choice(_AMOUNTS)},
    }


def _gpu_workload(random: Random) -> Object:
    root = {"apiVersion": "v1", "kind": "Pod", "name": texts(random)[:253], "uid": "u"}
    return {
        "workloadRef": root,
        "gpuResources": {"amd.com/gpu": random.choice(_NUMBERS)},
        "gracePeriod": random.choice((texts(random), *_DURATIONS)),
        "ttlAfterFinished": random.choice((texts(random), *_DURATIONS)),
    }


def _claim(random: Random) -> Object:
    text = texts(random)[: random.choice((40, 4_000))].replace("\\", "").replace('"', "")
    expression = random.choice(_CEL)
    expression = expression.replace("{it}", _ATTRIBUTE).replace("{has}", _CAPACITY)
    expression = expression.replace("{text}", text)
    selectors = [{"cel": {"expression": expression}}] * random.choice((1, 1, 32))
    asked = {"deviceClassName": "gpu", "selectors": selectors, "count": random.choice((1, 2**31))}
    return {
        "devices": {
            "requests": [
                {"name": f"r{each}", "exactly": asked} for each in range(random.choice((1, 30)))
            ]
        }
    }


def _loop(random: Random) -> str:
    return f"loop-{random.randrange(3)}"


def _kaiwo_config(random: Random) -> Object:
    return {"gpuPreemption": {"gracePeriod": texts(random)}}


def _pod_group(random: Random) -> Object:
    count = random.choice((1, 2**31 - 1, 2**31, -1))
    spec: Object = {"schedulingPolicy": {"gang": {"minCount": count}}}
    if random.random() < 0.3:
        spec["priority"] = random.choice(_NUMBERS)
    if random.random() < 0.3:
        spec["parentCompositePodGroupName"] = f"odd-{random.randrange(10_000)}"
    return spec


def _template(random: Random, **more: Any) -> Object:
    spec = {**pod_spec(random, gpus=more.pop("gpus", 0)), "restartPolicy": "Never"}
    return {"template": {"spec": spec}, **more}


def _local_queue(random: Random) -> Object:
    weight = {"weight": random.choice(_AMOUNTS)}
    return {"clusterQueue": texts(random)[:253], "fairSharing": weight}


def _held_back(random: Random) -> Object:
    return _template(random, suspend=True, parallelism=random.choice(_FEW))


def _volume_claim(random: Random) -> Object:
    requests = {"storage": random.choice(_AMOUNTS)}
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": requests}}


def _budget(random: Random) -> Object:
    least = random.choice((1, "100%", "99999999999%", texts(random)[:40]))
    return {"minAvailable": least, "selector": {"matchExpressions": [requirement(random)]}}


_MAKERS: Final[tuple[tuple[str, str, Callable[[Random], Object]], ...]] = (
    *[("v1", "Pod", pod_spec)] * 4,
    *[("v1", "Pod", lambda random: pod_spec(random, node="odd"))] * 2,
    ("batch/v1", "Job", lambda random: _template(random, gpus=1)),
    ("batch/v1", "Job", _held_back),
    ("scheduling.k8s.io/v1alpha3", "PodGroup", _pod_group),
    ("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", _gang),
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup", _gang),
    *[("kueue.x-k8s.io/v1beta2", "Workload", _workload)] * 2,
    ("kueue.x-k8s.io/v1beta2", "LocalQueue", _local_queue),
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue", _cluster_queue),
    ("kueue.x-k8s.io/v1beta2", "Cohort", lambda random: {"parentName": _loop(random)}),
    *[("kaiwo.silogen.ai/v1alpha1", "GpuWorkload", _gpu_workload)] * 2,
    *[("resource.k8s.io/v1", "ResourceClaim", _claim)] * 2,
    ("jobset.x-k8s.io/v1alpha2", "JobSet", _job_set),
    ("config.kaiwo.silogen.ai/v1alpha1", "KaiwoConfig", _kaiwo_config),
    ("v1", "PersistentVolumeClaim", _volume_claim),
    ("policy/v1", "PodDisruptionBudget", _budget),
)
_CLUSTER_WIDE: Final = ("ClusterQueue", "Cohort", "KaiwoConfig")


def hostile(random: Random, number: int) -> Object:
    """Return an object that a tenant may write, or that an administrator was talked into."""
    api, kind, make = random.choice(_MAKERS)
    name = f"odd-{number}"
    if kind == "Cohort":
        name = _loop(random)  # circles of parents
    elif random.random() < 0.05:
        name = f"{name}-{'a' * 253}"[:253]
    metadata: Object = {"name": name, "annotations": annotations_of(random)}
    if kind not in _CLUSTER_WIDE:
        metadata["namespace"] = TEAM
    if random.random() < 0.4:
        metadata["labels"] = labels(random)
    if random.random() < 0.15 and kind not in _CLUSTER_WIDE:
        metadata["ownerReferences"] = owners(random, name)
    if random.random() < 0.05:
        metadata["finalizers"] = [f"example.com/f{each}" for each in range(500)]
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": make(random)}
