"""Notice to real pods, over https and by a file: they save, and only then are they evicted.

The pods poll with the library, which they mount as the sources of this project. Whom the operator
evicted is counted from the API server's audit log.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.helm import ROOT
from tests.node.cluster import GPUS, Cluster
from tests.node.machine import NAME
from tests.node.release import NAMESPACE, VALUES, Object, Release
from tests.node.work import ON_N1, evicted, followed, gang, records, running, sweep

pytestmark = [pytest.mark.slow, pytest.mark.node]

NOTICE: Object = {
    "replicas": 2,
    "notice": {"enabled": True, "tls": {"enabled": True}, "files": True},
    "scheduling": {**VALUES["scheduling"], "notice": {"max": "5m"}},
}
SOURCES = ROOT / "reprieve-notice" / "src" / "reprieve_notice"
#: Saves when it is notified, but for a pod whose name ends with 1, which waits for a word.
PROGRAM = """
import os, pathlib, sys, time
sys.path.insert(0, "/library")
from reprieve_notice import Notices
notices, step = Notices(), 0
print("works", flush=True)
while not (notice := notices.due(step, every=5)):
    step += 1
    time.sleep(0.2)
while os.environ["HOSTNAME"].endswith("1") and not pathlib.Path("/tmp/word").exists():
    time.sleep(0.2)
notice.saved(step=step)
print("saved", flush=True)
time.sleep(3600)
"""
READ_FILE = (
    "echo works; until [ -s /etc/reprieve/notice ]; do sleep 1; done; sleep 3; echo saved; exit 0"
)
TOKEN: Object = {
    "serviceAccountToken": {"path": "token", "audience": "reprieve.dev", "expirationSeconds": 3600}
}
AUTHORITY: Object = {
    "configMap": {"name": "reprieve-notice-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
}


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Release:
    found = Release(cluster)
    found.helm("install", "--create-namespace", "--wait", "--timeout", "5m", **NOTICE)
    return found


def polling(cluster: Cluster, space: str, count: int) -> list[Object]:
    """Return pods that poll over https, and what they mount."""
    authority = cluster.get("configmap", "reprieve-notice-ca", "-n", NAMESPACE)["data"]
    library = {file.name: file.read_text() for file in SOURCES.glob("*.py")}
    mounted = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": space},
            "data": data,
        }
        for name, data in (("reprieve-notice-ca", authority), ("library", library))
    ]
    pods = sweep(space, count, GPUS, grace=5)
    for pod in pods:
        pod["metadata"]["annotations"] = {"reprieve.dev/notice": "4m"}
        (container,) = pod["spec"]["containers"]
        container |= {
            "image": NAME,
            "command": ["python", "-B", "-c", PROGRAM],
            "env": [
                {"name": "REPRIEVE_NOTICE_URL", "value": f"https://reprieve-notice.{NAMESPACE}"}
            ],
            "volumeMounts": [
                {"name": "notice", "mountPath": "/var/run/secrets/reprieve.dev"},
                {"name": "library", "mountPath": "/library/reprieve_notice"},
            ],
        }
        pod["spec"]["volumes"] = [
            {"name": "notice", "projected": {"sources": [TOKEN, AUTHORITY]}},
            {"name": "library", "configMap": {"name": "library"}},
        ]
    return [*mounted, *pods]


def notices(cluster: Cluster, space: str) -> dict[str, str]:
    """Return the state of each notice, by the pod that has it."""
    found = cluster.get("preemptionnotices.reprieve.dev", "-n", space)["items"]
    return {each["spec"]["subject"]["name"]: each["status"]["state"] for each in found}


def completed(cluster: Cluster, space: str) -> Object:
    """Return the only record, once its plan has been carried out."""

    def found() -> Any:
        (record,) = records(cluster, space)
        return record if record["status"]["phase"] == "Completed" else None

    record: Object = cluster.until("the plan is carried out", found)
    return record


@pytest.mark.usefixtures("classes", "release")
def test_a_pod_that_polls_over_https_is_evicted_as_soon_as_it_has_saved(
    cluster: Cluster, space: str
) -> None:
    *mounted, pod = polling(cluster, space, 1)
    pod["spec"] |= ON_N1
    cluster.apply(*mounted, pod)
    workers = followed(cluster, space, 1)
    group, preemptor = gang(space, 1, GPUS)
    preemptor["spec"] |= ON_N1
    cluster.apply(group, preemptor)
    followed(cluster, space, 1, "gang=train")
    record = completed(cluster, space)
    (victim,) = record["spec"]["victims"]
    assert record["status"]["finishedAt"] < victim["notice"]["deadline"]
    assert evicted(cluster, space) == ["sweep-0"]
    assert workers["sweep-0"].said() == ["works", "saved"]
    assert notices(cluster, space) == {"sweep-0": "Released"}


@pytest.mark.usefixtures("classes")
def test_what_one_leader_knows_to_be_saved_the_next_one_evicts_with_what_saves_later(
    release: Release, space: str
) -> None:
    cluster = release.cluster
    cluster.apply(*polling(cluster, space, 2))
    workers = followed(cluster, space, 2)
    cluster.apply(*gang(space, 2, GPUS))
    cluster.until(
        "one has saved",
        lambda: notices(cluster, space) == {"sweep-0": "Saved", "sweep-1": "Noticed"},
    )
    before = release.holder()
    cluster.kubectl(
        *("delete", "pod", before.partition("_")[0], "-n", NAMESPACE),
        *("--force", "--grace-period=0"),
    )
    cluster.until("another one leads", lambda: release.holder() not in ("", before))
    assert evicted(cluster, space) == []
    assert len(running(cluster, space, "app=sweep")) == 2
    cluster.kubectl("exec", "sweep-1", "-n", space, "--", "touch", "/tmp/word")
    followed(cluster, space, 2, "gang=train")
    record = completed(cluster, space)
    deadline = min(each["notice"]["deadline"] for each in record["spec"]["victims"])
    assert record["status"]["finishedAt"] < deadline
    assert sorted(evicted(cluster, space)) == ["sweep-0", "sweep-1"]
    assert [each.said() for each in workers.values()] == [["works", "saved"]] * 2


@pytest.mark.usefixtures("classes", "release")
def test_a_pod_that_reads_its_notice_from_a_file_saves_and_ends_by_itself(
    cluster: Cluster, space: str
) -> None:
    (pod,) = sweep(space, 1, GPUS, restartPolicy="Never", **ON_N1)
    pod["metadata"]["annotations"] = {
        "reprieve.dev/notice": "3m",
        "reprieve.dev/notice-file": "true",
    }
    (container,) = pod["spec"]["containers"]
    container["command"] = ["sh", "-c", READ_FILE]
    container["volumeMounts"] = [{"name": "notice", "mountPath": "/etc/reprieve"}]
    field = {"fieldPath": "metadata.annotations['reprieve.dev/notice-told']"}
    items = [{"path": "notice", "fieldRef": field}]
    pod["spec"]["volumes"] = [{"name": "notice", "downwardAPI": {"items": items}}]
    cluster.apply(pod)
    workers = followed(cluster, space, 1)
    group, preemptor = gang(space, 1, GPUS)
    preemptor["spec"] |= ON_N1
    cluster.apply(group, preemptor)
    followed(cluster, space, 1, "gang=train")
    assert workers["sweep-0"].said() == ["works", "saved"]
    assert evicted(cluster, space) == []
    (record,) = records(cluster, space)
    assert record["spec"]["victims"][0]["notice"]["deadline"]
