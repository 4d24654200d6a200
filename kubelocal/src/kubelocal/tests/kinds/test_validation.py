"""Checks of built-in kinds, in the real server's words."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.tests.kinds.objects import (
    Object,
    admit_update,
    container,
    deployment,
    job,
    kind_of,
    pod,
    refusal,
    stored,
    update_refusal,
)

_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
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
        ({"name": "Bad_Name"}, [f'metadata.name: Invalid value: "Bad_Name": {_SUBDOMAIN}']),
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


def test_a_job_must_say_when_its_pods_restart() -> None:
    silent = job()
    del silent["spec"]["template"]["spec"]["restartPolicy"]
    assert refusal(silent) == [
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    ]


def test_numbers_below_zero_are_refused_together() -> None:
    assert refusal(job(parallelism=-1, completions=-2)) == [
        "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
        "spec.completions: Invalid value: -2: must be greater than or equal to 0",
    ]


def test_a_selector_must_match_its_template() -> None:
    assert refusal(deployment(selector={"matchLabels": {"app": "other"}})) == [
        (
            'spec.template.metadata.labels: Invalid value: {"app":"d"}: '
            "`selector` does not match template `labels`"
        )
    ]


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


def test_a_pod_keeps_its_spec_but_for_images_deadline_and_new_tolerations() -> None:
    moved = update_refusal(pod(nodeName="x"), pod())
    assert len(moved) == 1
    assert moved[0].startswith("spec: Forbidden: pod updates may not change fields other than")
    toleration = {"key": "a", "operator": "Exists"}
    changed = pod(containers=[container(image="b:2")], tolerations=[toleration])
    admit_update(kind_of(changed), stored(changed), stored(pod()))
    assert update_refusal(pod(), pod(tolerations=[toleration])) == [
        (
            "spec.tolerations: Forbidden: existing toleration can not be modified except its "
            "tolerationSeconds"
        )
    ]


def test_a_toleration_keeps_all_but_its_seconds() -> None:
    toleration = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
    before = pod(tolerations=[{**toleration, "tolerationSeconds": 5}])
    longer = pod(tolerations=[{**toleration, "tolerationSeconds": 50}])
    admit_update(kind_of(longer), stored(longer), stored(before))


@pytest.mark.parametrize(
    ("deadline", "text"),
    [
        (50, "Invalid value: 50: must be less than or equal to previous value"),
        (None, "Invalid value: null: must not update from a positive integer to nil value"),
    ],
)
def test_a_deadline_is_only_brought_forward(deadline: int | None, text: str) -> None:
    later = pod() if deadline is None else pod(activeDeadlineSeconds=deadline)
    assert update_refusal(later, pod(activeDeadlineSeconds=5)) == [
        f"spec.activeDeadlineSeconds: {text}"
    ]
    sooner = pod(activeDeadlineSeconds=4)
    admit_update(kind_of(sooner), stored(sooner), stored(pod(activeDeadlineSeconds=5)))


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


@pytest.mark.parametrize(
    ("rule", "texts"),
    [
        (
            {"action": "FailJob"},
            [
                (
                    ': Invalid value: {"Action":"FailJob","OnExitCodes":null,'
                    '"OnPodConditions":null}: specifying one of OnExitCodes and '
                    "OnPodConditions is required"
                )
            ],
        ),
        (
            {"action": "Count", "onExitCodes": {"operator": "In", "values": []}},
            [".onExitCodes.values: Invalid value: []: at least one value is required"],
        ),
        (
            {"action": "Count", "onExitCodes": {"operator": "In", "values": [2, 0, 2]}},
            [
                (".onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator"),
                ".onExitCodes.values[2]: Duplicate value: 2",
                ".onExitCodes.values: Invalid value: [2,0,2]: must be ordered",
            ],
        ),
        (
            {"action": "Ignore", "onPodConditions": [{"type": "A", "status": "X"}]},
            [
                (
                    '.onPodConditions[0].status: Unsupported value: "X": supported values: '
                    '"False", "True", "Unknown"'
                )
            ],
        ),
        (
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}},
            [('.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set')],
        ),
    ],
)
def test_a_failure_policy_says_on_what_it_acts(rule: Object, texts: list[str]) -> None:
    template = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    failing = job(template=template, podFailurePolicy={"rules": [rule]})
    assert refusal(failing) == [f"spec.podFailurePolicy.rules[0]{text}" for text in texts]


def test_only_indexed_jobs_count_failures_by_index() -> None:
    template = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    assert refusal(job(template=template, backoffLimitPerIndex=1)) == [
        "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"
    ]
    assert stored(
        job(template=template, backoffLimitPerIndex=1, completionMode="Indexed", completions=2)
    )


def _cron_job(**spec: Any) -> Object:
    template = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}, **spec},
    }


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ("61 * * * *", "end of range (61) above maximum (59): 61"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        (
            "a * * * *",
            'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax',
        ),
        ("bad", "expected exactly 5 fields, found 1: [bad]"),
        ("@often", "unrecognized descriptor: @often"),
        (
            "TZ=UTC * * * * *",
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ),
    ],
)
def test_a_schedule_that_never_comes_is_refused(schedule: str, text: str) -> None:
    assert refusal(_cron_job(schedule=schedule)) == [
        f'spec.schedule: Invalid value: "{schedule}": {text}'
    ]


@pytest.mark.parametrize(
    "schedule",
    [
        "*/5 * * * *",
        "0 0 1,15 jan-MAR Mon",
        "? 1-5/2 * * 0",
        "@hourly",
        "@every 90s",
        "5/10 * * * *",
    ],
)
def test_schedules_have_ranges_steps_and_names(schedule: str) -> None:
    assert stored(_cron_job(schedule=schedule, timeZone="Europe/Berlin"))


def test_a_time_zone_is_a_known_one() -> None:
    assert refusal(_cron_job(timeZone="No/Where")) == [
        'spec.timeZone: Invalid value: "No/Where": unknown time zone No/Where'
    ]


@pytest.mark.parametrize(
    ("more", "texts"),
    [
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
            [
                (
                    "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 "
                    "when `maxSurge` is 0"
                )
            ],
        ),
        (
            {"strategy": {"rollingUpdate": {"maxUnavailable": "200%", "maxSurge": "200%"}}},
            [
                (
                    'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "200%": must not '
                    "be greater than 100%"
                )
            ],
        ),
        (
            {"progressDeadlineSeconds": 5, "minReadySeconds": 5},
            [
                (
                    "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than "
                    "minReadySeconds"
                )
            ],
        ),
        (
            {"selector": {}},
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
        ),
    ],
)
def test_a_rollout_must_be_able_to_go_on(more: Object, texts: list[str]) -> None:
    assert refusal(deployment(**more)) == texts


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


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("kubernetes.io/job-controller", []),
        ("kueue.x-k8s.io/multikueue", []),
        ("", ["Required value"]),
        (
            "kueue",
            ['Invalid value: "kueue": must be a domain-prefixed path (such as "acme.io/foo")'],
        ),
        (
            "acme.io/",
            ['Invalid value: "acme.io/": must be a domain-prefixed path (such as "acme.io/foo")'],
        ),
        (
            "Acme/foo bar",
            [
                f'Invalid value: "Acme": {_SUBDOMAIN}',
                (
                    "Invalid value: \"foo bar\": Invalid path (e.g. 'acme.io/foo', regex used for "
                    "validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
                ),
            ],
        ),
        ("acme.io/" + "a" * 56, ["Too long: may not be more than 63 bytes"]),
    ],
)
def test_the_controller_of_a_job_is_a_domain_and_a_path(name: str, texts: list[str]) -> None:
    wrong = [f"spec.managedBy: {text}" for text in texts]
    if wrong:
        assert refusal(job(managedBy=name)) == wrong
    else:
        assert stored(job(managedBy=name))["spec"]["managedBy"] == name


def test_who_runs_a_job_and_when_it_succeeds_stays() -> None:
    policy = {"rules": [{"succeededCount": 1}]}
    indexed: Object = {"completionMode": "Indexed", "completions": 2}
    old = job(**indexed)
    new = job(**indexed, backoffLimitPerIndex=1, managedBy="acme.io/foo", successPolicy=policy)
    shown = '{"rules":[{"succeededCount":1}]}'
    assert update_refusal(new, old) == [
        "spec.backoffLimitPerIndex: Invalid value: 1: field is immutable",
        'spec.managedBy: Invalid value: "acme.io/foo": field is immutable',
        f"spec.successPolicy: Invalid value: {shown}: field is immutable",
    ]


def test_gates_are_only_taken_away() -> None:
    gated = pod(schedulingGates=[{"name": "example.org/a"}])
    more = pod(schedulingGates=[{"name": "example.org/a"}, {"name": "example.org/b"}])
    assert update_refusal(more, gated) == [
        (
            "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new "
            "scheduling gate 'example.org/b'"
        )
    ]


def test_a_jobs_template_is_fixed_once_it_may_start() -> None:
    changed = job()
    changed["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    refused = update_refusal(changed, job())
    assert [text.split(":")[0] for text in refused] == ["spec.template"]
    assert refused[0].endswith("field is immutable")


def test_a_waiting_jobs_placement_may_change() -> None:
    changed = job(suspend=True)
    changed["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    admit_update(kind_of(changed), stored(changed), stored(job(suspend=True)))


def test_a_selector_never_changes() -> None:
    other = deployment()
    other["spec"]["selector"] = {"matchLabels": {"b": "c"}}
    other["spec"]["template"]["metadata"]["labels"] = {"b": "c"}
    assert update_refusal(other, deployment()) == [
        'spec.selector: Invalid value: {"matchLabels":{"b":"c"}}: field is immutable'
    ]


def test_a_uid_never_changes() -> None:
    old, new = pod(), pod()
    old["metadata"]["uid"], new["metadata"]["uid"] = "a", "b"
    assert update_refusal(new, old) == ['metadata.uid: Invalid value: "b": field is immutable']
