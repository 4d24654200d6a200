"""Checks of built-in kinds, in the real server's words."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.tests.kinds.objects import (
    SUBDOMAIN,
    Object,
    container,
    pod,
    refusal,
    stored,
)


def _soft(**more: Any) -> Object:
    return {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", **more}


def _resources(**resources: Any) -> Object:
    return pod(containers=[container(resources=resources)])


@pytest.mark.parametrize(
    ("wrong", "texts"),
    [
        (pod(containers=[]), ["spec.containers: Required value"]),
        (pod(containers=[{"image": "a"}]), ["spec.containers[0].name: Required value"]),
        (pod(containers=[{"name": "a"}]), ["spec.containers[0].image: Required value"]),
        (
            pod(containers=[container(), container()]),
            ['spec.containers[1].name: Duplicate value: "main"'],
        ),
        (
            pod(restartPolicy="Sometimes"),
            [
                (
                    'spec.restartPolicy: Unsupported value: "Sometimes": supported values: '
                    '"Always", "OnFailure", "Never"'
                )
            ],
        ),
        (
            _resources(requests={"cpu": "2"}, limits={"cpu": "1"}),
            [
                (
                    'spec.containers[0].resources.requests: Invalid value: "2": '
                    "must be less than or equal to cpu limit of 1"
                )
            ],
        ),
        (
            _resources(requests={"amd.com/gpu": "1"}),
            [
                (
                    "spec.containers[0].resources.limits: Required value: "
                    "Limit must be set for non overcommitable resources"
                )
            ],
        ),
        (
            _resources(requests={"amd.com/gpu": "1"}, limits={"amd.com/gpu": "2"}),
            [
                (
                    'spec.containers[0].resources.requests: Invalid value: "1": '
                    "must be equal to amd.com/gpu limit of 2"
                )
            ],
        ),
        (
            _resources(limits={"amd.com/gpu": "500m"}),
            [
                f'spec.containers[0].resources.{word}[amd.com/gpu]: Invalid value: "500m": '
                "must be an integer"
                for word in ("limits", "requests")
            ],
        ),
        (
            pod(tolerations=[{"operator": "Exists", "key": "a", "value": "b"}]),
            [
                (
                    'spec.tolerations[0].operator: Invalid value: "b": '
                    "value must be empty when `operator` is 'Exists'"
                )
            ],
        ),
        (
            pod(containers=[container(volumeMounts=[{"name": "v", "mountPath": "/v"}])]),
            ['spec.containers[0].volumeMounts[0].name: Not found: "v"'],
        ),
        (
            pod(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "z"}]),
            [
                (
                    'spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "": '
                    'supported values: "DoNotSchedule", "ScheduleAnyway"'
                )
            ],
        ),
        (
            pod(topologySpreadConstraints=[_soft(minDomains=0, nodeTaintsPolicy="Maybe")]),
            [
                (
                    "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: "
                    "must be greater than zero"
                ),
                (
                    "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: "
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
                ),
                (
                    "spec.topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: "
                    '"Maybe": supported values: "Honor", "Ignore"'
                ),
            ],
        ),
        (
            pod(topologySpreadConstraints=[_soft(matchLabelKeys=["a"])]),
            [
                (
                    "spec.topologySpreadConstraints[0].matchLabelKeys: Forbidden: "
                    "must not be specified when labelSelector is not set"
                )
            ],
        ),
    ],
)
def test_a_pod_that_cannot_be_is_refused(wrong: Object, texts: list[str]) -> None:
    assert refusal(wrong) == texts


@pytest.mark.parametrize(
    ("metadata", "texts"),
    [
        ({}, ["metadata.name: Required value: name or generateName is required"]),
        ({"name": "Bad_Name"}, [f'metadata.name: Invalid value: "Bad_Name": {SUBDOMAIN}']),
        (
            {"name": "a" * 254},
            [f'metadata.name: Invalid value: "{"a" * 254}": must be no more than 253 characters'],
        ),
        (
            {"name": "a", "annotations": {"/x": "1"}},
            ['metadata.annotations: Invalid value: "/x": prefix part must be non-empty'],
        ),
        (
            {"name": "a", "finalizers": ["nope"]},
            [
                (
                    'metadata.finalizers[0]: Invalid value: "nope": name is neither a standard '
                    "finalizer name nor is it fully qualified"
                )
            ],
        ),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "b"}]},
            ["metadata.ownerReferences[0].uid: Required value: must not be empty"],
        ),
    ],
)
def test_metadata_that_cannot_be_is_refused(metadata: Object, texts: list[str]) -> None:
    assert refusal({**pod(), "metadata": metadata}) == texts


def test_a_generated_name_need_not_be_there_yet() -> None:
    generated = {**pod(), "metadata": {"generateName": "p-"}}
    assert stored(generated)["metadata"] == {"generateName": "p-"}


def _spread(**more: Any) -> Object:
    return {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", **more}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            {"dnsPolicy": "None"},
            ("spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
        ),
        (
            {
                "containers": [
                    container(ports=[{"containerPort": 80, "hostPort": 80}]),
                    container(name="b", ports=[{"containerPort": 80, "hostPort": 80}]),
                ]
            },
            'spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//80"',
        ),
        (
            {
                "hostNetwork": True,
                "containers": [container(ports=[{"containerPort": 80, "hostPort": 81}])],
            },
            (
                "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match "
                "`containerPort` when `hostNetwork` is true"
            ),
        ),
        (
            {"containers": [container(ports=[{"containerPort": 80, "name": "Bad"}])]},
            (
                'spec.containers[0].ports[0].name: Invalid value: "Bad": must contain only '
                "alpha-numeric characters (a-z, 0-9), and hyphens (-)"
            ),
        ),
        (
            {
                "containers": [
                    container(
                        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.no"}}}]
                    )
                ]
            },
            (
                'spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "status.no"'
                ": error converting fieldPath: field label not supported: status.no"
            ),
        ),
        (
            {"containers": [container(livenessProbe={"periodSeconds": 5})]},
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            {
                "containers": [
                    container(readinessProbe={"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}})
                ]
            },
            (
                "spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more "
                "than 1 handler type"
            ),
        ),
        (
            {"containers": [container(lifecycle={"preStop": {"exec": {}}})]},
            "spec.containers[0].lifecycle.preStop.exec.command: Required value",
        ),
        (
            {"containers": [container(resources={"claims": [{"name": "a"}]})]},
            (
                'spec.containers[0].resources.claims[0]: Not found: "a": must be one of the names '
                "in pod.spec.resourceClaims which is empty"
            ),
        ),
        (
            {"topologySpreadConstraints": [_spread(), _spread(maxSkew=2)]},
            (
                "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate "
                'value: "{z, DoNotSchedule}"'
            ),
        ),
        (
            {"schedulingGates": [{"name": "a/b"}], "nodeName": "n"},
            ("spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"),
        ),
        (
            {"os": {"name": "beos"}},
            'spec.os.name: Unsupported value: "beos": supported values: "linux", "windows"',
        ),
        (
            {"securityContext": {"runAsUser": -1}},
            (
                "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and "
                "2147483647, inclusive"
            ),
        ),
    ],
)
def test_what_a_kubelet_could_not_run_is_refused(wrong: Object, text: str) -> None:
    assert refusal(pod(**wrong)) == [text]


def test_a_node_is_named_by_one_value_of_its_one_field() -> None:
    def by(key: str, *values: str) -> Object:
        term = {"matchFields": [{"key": key, "operator": "In", "values": list(values)}]}
        needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return pod(affinity={"nodeAffinity": needed})

    assert stored(by("metadata.name", "n"))
    assert [each.rpartition("matchFields[0]")[2] for each in refusal(by("name", "a", "b"))] == [
        (
            ".values: Required value: must be only one value when `operator` is 'In' or 'NotIn' "
            "for node field selector"
        ),
        '.key: Invalid value: "name": not a valid field selector key',
    ]
