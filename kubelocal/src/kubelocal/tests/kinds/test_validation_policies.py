"""Checks of services, quotas, budgets, taints and events, in the real server's words."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.tests.kinds.objects import (
    Object,
    admit_update,
    kind_of,
    refusal,
    stored,
    update_refusal,
)


def test_a_budget_has_one_bound() -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": "200%"},
    }
    assert refusal(budget) == [
        'spec.minAvailable: Invalid value: "200%": must not be greater than 100%'
    ]
    budget["spec"] = {"minAvailable": 1, "maxUnavailable": 1}
    assert refusal(budget) == [
        (
            'spec: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":1,'
            '"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set'
        )
    ]


def test_a_taint_has_a_known_effect() -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "a", "effect": "Nope"}]},
    }
    assert refusal(node) == [
        (
            'metadata.taints[0].effect: Unsupported value: "Nope": supported values: '
            '"NoSchedule", "PreferNoSchedule", "NoExecute"'
        )
    ]


def test_a_gang_counts_its_minimum() -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {}}},
    }
    assert refusal(group) == ["spec.schedulingPolicy.gang.minCount: Required value"]
    group["spec"] = {"schedulingPolicy": {"gang": {"minCount": 1}, "basic": {}}}
    assert refusal(group) == [
        (
            'spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: '
            "`basic`, `gang`"
        )
    ]


def test_an_event_lives_beside_its_object() -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "a"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "b"},
    }
    assert refusal(event) == [
        'involvedObject.namespace: Invalid value: "b": does not match event.namespace'
    ]


def test_a_note_has_at_most_a_kilobyte() -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "a"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "a"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        **dict.fromkeys(("reportingController", "reportingInstance", "action", "reason"), "x"),
        "type": "Normal",
        "note": "é" * 512,
    }
    assert stored(event)
    event["note"] = "é" * 512 + "x"
    assert refusal(event) == ['message: Invalid value: "": can have at most 1024 characters']


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        (
            {"hard": {"foo": "1"}},
            [
                (
                    'spec.hard[foo]: Invalid value: "foo": must be a standard resource type or '
                    "fully qualified"
                ),
                'spec.hard[foo]: Invalid value: "foo": must be a standard resource for quota',
            ],
        ),
        (
            {"hard": {"pods": "1"}, "scopes": ["Nope"]},
            ['spec.scopes: Invalid value: ["Nope"]: unsupported scope'],
        ),
        (
            {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]},
            ['spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource'],
        ),
        (
            {"scopes": ["Terminating", "NotTerminating"]},
            ['spec.scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes'],
        ),
        ({"hard": {"count/jobs.batch": "1", "requests.nvidia.com/gpu": "4", "pods": "2"}}, []),
    ],
)
def test_a_quota_limits_what_quotas_can(spec: Object, texts: list[str]) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": spec,
    }
    if texts:
        assert refusal(quota) == texts
    else:
        assert stored(quota)


def test_a_node_port_is_one_of_its_range() -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 99}]},
    }
    assert refusal(service) == [
        (
            "spec.ports[0].nodePort: Invalid value: 99: provided port is not in the valid range. "
            "The range of valid ports is 30000-32767"
        )
    ]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (
            {"type": "Foo"},
            'type: Invalid value: "Foo": must be a standard limit type or fully qualified',
        ),
        (
            {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "2"}},
            'default[cpu]: Invalid value: "2": default value 2 is greater than max value 1',
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}},
            'maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1',
        ),
    ],
)
def test_the_bounds_of_a_limit_range_agree(item: Object, text: str) -> None:
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "default"},
        "spec": {"limits": [item]},
    }
    assert f"spec.limits[0].{text}" in refusal(limits)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]},
            (
                'spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,'
                '"Port":80,"TargetPort":0,"NodePort":0}'
            ),
        ),
        ({"type": "ExternalName"}, "spec.externalName: Required value"),
        (
            {"ports": [{"port": 80}], "sessionAffinity": "X"},
            'spec.sessionAffinity: Unsupported value: "X": supported values: "ClientIP", "None"',
        ),
        (
            {"ports": [{"port": 80, "targetPort": 70000}]},
            (
                "spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, "
                "inclusive"
            ),
        ),
        (
            {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]},
            'spec.ports[1].name: Duplicate value: "a"',
        ),
        (
            {"ports": [{"port": 80, "protocol": "tcp"}]},
            (
                'spec.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", '
                '"TCP", "UDP"'
            ),
        ),
        (
            {"ports": [{"port": 80, "nodePort": 30080}]},
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (
            {
                "type": "NodePort",
                "ports": [
                    {"port": 80, "name": "a", "nodePort": 30080},
                    {"port": 81, "name": "b", "nodePort": 30080},
                ],
            },
            "spec.ports[1].nodePort: Duplicate value: 30080",
        ),
        (
            {"ports": [{"port": 80}], "clusterIP": "abc"},
            (
                'spec.clusterIPs[0]: Invalid value: "abc": must be a valid IP address, (e.g. '
                "10.9.8.7 or 2001:db8::ffff)"
            ),
        ),
        (
            {"ports": [{"port": 80}], "clusterIP": "10.96.0.010"},
            'spec.clusterIPs[0]: Invalid value: "10.96.0.010": must not have leading 0s',
        ),
        (
            {"ports": [{"port": 80}], "clusterIP": "::ffff:10.96.0.1"},
            (
                'spec.clusterIPs[0]: Invalid value: "::ffff:10.96.0.1": must not be an '
                "IPv4-mapped IPv6 address"
            ),
        ),
        (
            {"ports": [{"port": 80}], "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.2"]},
            'spec.clusterIPs: Invalid value: ["10.96.0.2"]: first value must match `clusterIP`',
        ),
        (
            {"ports": [{"port": 80}], "clusterIPs": ["10.96.0.2"]},
            (
                'spec.clusterIPs: Invalid value: ["10.96.0.2"]: must be empty when `clusterIP` '
                "is not specified"
            ),
        ),
        (
            {"clusterIP": "None", "clusterIPs": ["None", "10.96.0.2"], "ports": [{"port": 80}]},
            (
                'spec.clusterIPs: Invalid value: ["None","10.96.0.2"]: '
                "'None' must be the first and only value"
            ),
        ),
        (
            {
                "clusterIP": "10.96.0.1",
                "clusterIPs": ["10.96.0.1", "10.96.0.2"],
                "ports": [{"port": 80}],
            },
            (
                'spec.clusterIPs: Invalid value: ["10.96.0.1","10.96.0.2"]: may specify no more '
                "than one IP for each IP family"
            ),
        ),
        (
            {"ports": [{"port": 80}], "clusterIP": "None", "type": "NodePort"},
            (
                "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for "
                "NodePort services"
            ),
        ),
        (
            {"type": "ExternalName", "externalName": "a.example", "clusterIP": "10.96.0.1"},
            "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
        ),
        (
            {"ports": [{"port": 80}], "ipFamilies": ["IPv4", "IPv4"]},
            'spec.ipFamilies[1]: Duplicate value: "IPv4"',
        ),
        (
            {"ports": [{"port": 80}], "ipFamilyPolicy": "Dual"},
            (
                'spec.ipFamilyPolicy: Unsupported value: "Dual": supported values: '
                '"PreferDualStack", "RequireDualStack", "SingleStack"'
            ),
        ),
        (
            {"ports": [{"port": 80}], "externalIPs": ["300.1.2.3"]},
            (
                'spec.externalIPs[0]: Invalid value: "300.1.2.3": must be a valid IP address, '
                "(e.g. 10.9.8.7 or 2001:db8::ffff)"
            ),
        ),
        (
            {"ports": [{"port": 80}], "allocateLoadBalancerNodePorts": True},
            (
                "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is "
                "'LoadBalancer'"
            ),
        ),
        (
            {"ports": [{"port": 80}], "externalTrafficPolicy": "Local"},
            (
                'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for '
                "externally-accessible services"
            ),
        ),
        (
            {"ports": [{"port": 80}], "internalTrafficPolicy": "Far"},
            (
                'spec.internalTrafficPolicy: Unsupported value: "Far": supported values: '
                '"Cluster", "Local"'
            ),
        ),
        (
            {
                "ports": [{"port": 80}],
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}},
            },
            (
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must "
                "be greater than 0 and less than 86400"
            ),
        ),
    ],
)
def test_a_service_that_cannot_be_is_refused(spec: Object, text: str) -> None:
    assert refusal(_service(**spec)) == [text]


def _service(**spec: Any) -> Object:
    metadata = {"name": "s", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def test_ports_of_two_protocols_may_share_a_number_and_affinity_has_its_time() -> None:
    ports = [
        {"port": 53, "name": "u", "protocol": "UDP", "nodePort": 30053},
        {"port": 53, "name": "t", "protocol": "TCP", "nodePort": 30053},
    ]
    made = stored(_service(type="NodePort", ports=ports, sessionAffinity="ClientIP"))
    assert made["spec"]["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}


def test_the_address_of_a_service_stays() -> None:
    old = _service(ports=[{"port": 80}], clusterIP="10.96.0.1")
    new = _service(ports=[{"port": 80}], clusterIP="10.96.0.2")
    headless = _service(ports=[{"port": 80}], clusterIP="None")
    outside = _service(type="ExternalName", externalName="a.example")
    assert update_refusal(new, old) == [
        'spec.clusterIPs[0]: Invalid value: ["10.96.0.2"]: may not change once set'
    ]
    assert update_refusal(headless, old) == [
        'spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set'
    ]
    admit_update(kind_of(outside), stored(outside), stored(old))
