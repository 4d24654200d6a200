"""Defaults of built-in kinds, as `kubectl get -o yaml` shows them."""

from __future__ import annotations

from kubelocal.server.types.defaults import claim_job
from kubelocal.tests.kinds.objects import container, deployment, job, pod, stored


def test_a_pod_gets_the_documented_defaults() -> None:
    made = stored(pod())
    assert made["spec"] == {
        "containers": [
            {
                "name": "main",
                "image": "example.org/a:1",
                "imagePullPolicy": "IfNotPresent",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_requests_follow_limits_and_the_class_follows_both() -> None:
    limited = container(resources={"limits": {"cpu": "2", "memory": "1Gi", "amd.com/gpu": "4"}})
    made = stored(pod(containers=[limited]))
    resources = made["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    assert made["status"]["qosClass"] == "Guaranteed"


def test_an_image_without_a_fixed_tag_is_always_pulled() -> None:
    policies = [
        stored(pod(containers=[container(image=image)]))["spec"]["containers"][0]["imagePullPolicy"]
        for image in ("a", "a:latest", "host:5000/a", "a:1", "a@sha256:00")
    ]
    assert policies == ["Always", "Always", "Always", "IfNotPresent", "IfNotPresent"]


def test_a_job_runs_once_by_default() -> None:
    spec = stored(job())["spec"]
    assert {name: spec[name] for name in spec if name != "template"} == {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": 1,
        "manualSelector": False,
        "parallelism": 1,
        "podReplacementPolicy": "TerminatingOrFailed",
        "suspend": False,
    }
    assert "completions" not in stored(job(parallelism=3))["spec"]


def test_a_job_selects_pods_by_its_uid() -> None:
    made = stored(job())
    made["metadata"]["uid"] = "u-1"
    claim_job(made)
    labels = {
        "batch.kubernetes.io/controller-uid": "u-1",
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u-1",
        "job-name": "j",
    }
    assert made["spec"]["selector"] == {
        "matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}
    }
    assert made["spec"]["template"]["metadata"]["labels"] == labels
    assert made["metadata"]["labels"] == labels


def test_a_job_with_a_selector_of_its_own_keeps_it() -> None:
    manual = job(manualSelector=True, selector={"matchLabels": {"a": "b"}})
    manual["spec"]["template"]["metadata"] = {"labels": {"a": "b"}}
    made = stored(manual)
    made["metadata"]["uid"] = "u-1"
    claim_job(made)
    assert made["spec"]["selector"] == {"matchLabels": {"a": "b"}}
    assert made["spec"]["template"]["metadata"]["labels"] == {"a": "b"}


def test_a_deployment_rolls_by_quarters() -> None:
    spec = stored(deployment())["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
    }
    assert (spec["progressDeadlineSeconds"], spec["revisionHistoryLimit"]) == (600, 10)


def test_plain_text_of_a_secret_becomes_data() -> None:
    made = stored(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s"},
            "stringData": {"key": "value"},
        }
    )
    assert made["data"] == {"key": "dmFsdWU="}
    assert "stringData" not in made
    assert made["type"] == "Opaque"


def test_claim_templates_name_their_kind() -> None:
    labels = {"app": "s"}
    made = stored(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "s"},
            "spec": {
                "serviceName": "s",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container()]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            },
        }
    )
    claim = made["spec"]["volumeClaimTemplates"][0]
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")
    assert made["spec"]["podManagementPolicy"] == "OrderedReady"


def test_defaults_are_stable() -> None:
    for obj in (pod(), job(), deployment()):
        once = stored(obj)
        assert stored(once) == once
