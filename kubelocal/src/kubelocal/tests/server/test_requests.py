"""HTTP around the objects: users, refusals, counters, hooks, faults and malformed requests."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import ClientError, ClientSession
from yarl import URL

from kubelocal.cluster import EmbeddedCluster, Stage, Write
from kubelocal.tests.server.builders import (
    CONFIG_MAPS,
    PODS,
    Client,
    config_map,
    definition,
    pod,
    task,
)

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def test_a_token_names_its_user_and_a_made_up_one_nobody(cluster: EmbeddedCluster) -> None:
    async with Client(cluster, "alice") as alice:
        code, review = await alice.request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"kind": "SelfSubjectReview"},
        )
        alice.session.headers["Authorization"] = "Bearer YWRtaW4.0000"
        forged, status = await alice.request("GET", PODS)

    assert (code, review["status"]["userInfo"]["username"]) == (201, "alice")
    assert (forged, status["reason"]) == (401, "Unauthorized")


async def test_a_denied_request_is_named_as_the_authorizer_does(cluster: EmbeddedCluster) -> None:
    cluster.deny("alice", "list", "", "pods")
    cluster.deny("alice", "create", "", "pods/eviction")
    asked = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}
    async with Client(cluster, "alice") as alice, Client(cluster) as admin:
        await admin.create(PODS, pod())
        listed, status = await alice.request("GET", PODS)
        evicted, _ = await alice.request("POST", f"{PODS}/a/eviction", {})
        got, _ = await alice.request("GET", f"{PODS}/a")
        _, denied = await alice.request("POST", REVIEW, asked)
        cluster.allow("alice", "list", "", "pods")
        again, _ = await alice.request("GET", PODS)
        _, allowed = await alice.request("POST", REVIEW, asked)

    assert (listed, evicted, got, again) == (403, 403, 200, 200)
    assert status["message"] == (
        'pods is forbidden: User "alice" cannot list resource "pods" in API group "" '
        'in the namespace "default"'
    )
    assert (denied["status"]["allowed"], allowed["status"]["allowed"]) == (False, True)


async def test_requests_are_counted_by_user_verb_and_resource(cluster: EmbeddedCluster) -> None:
    async with Client(cluster, "alice") as alice:
        await alice.get(PODS)
        await alice.get(PODS)
        await alice.create(PODS, pod())
        await alice.merge(f"{PODS}/a/status", {"status": {"phase": "Running"}})
        (await alice.watch(PODS, resourceVersion="0")).close()

    assert {key: count for key, count in cluster.requests.items() if key[0] == "alice"} == {
        ("alice", "list", "", "pods"): 2,
        ("alice", "create", "", "pods"): 1,
        ("alice", "patch", "", "pods/status"): 1,
        ("alice", "watch", "", "pods"): 1,
    }


async def test_each_write_is_told_before_stored_and_answered(
    cluster: EmbeddedCluster, client: Client
) -> None:
    told: list[tuple[int, str, str, bool]] = []

    async def note(write: Write, stage: Stage) -> None:
        there = cluster.store.get("configmaps", "default", "a") is not None
        told.append((write.index, write.verb, stage.value, there))

    cluster.on_write = note
    await client.create(CONFIG_MAPS, config_map())
    await client.get(CONFIG_MAPS)
    await client.request("DELETE", f"{CONFIG_MAPS}/a")

    assert told == [
        (1, "create", "before", False),
        (1, "create", "stored", True),
        (1, "create", "answered", True),
        (2, "delete", "before", True),
        (2, "delete", "stored", False),
        (2, "delete", "answered", False),
    ]


async def test_faults_are_seeded_and_meet_one_user_only(cluster: EmbeddedCluster) -> None:
    async def codes(user: str) -> list[int]:
        cluster.faults.configure(user="alice", seed=7, too_many=0.2, error=0.2)
        async with Client(cluster, user) as asking:
            return [(await asking.request("GET", PODS))[0] for _ in range(40)]

    first, second, other = await codes("alice"), await codes("alice"), await codes("bob")

    assert first == second
    assert {200, 429, 500} == set(first)
    assert set(other) == {200}


async def test_a_watch_can_be_dropped_and_expired(cluster: EmbeddedCluster) -> None:
    async with Client(cluster, "alice") as alice, Client(cluster) as admin:
        cluster.faults.configure(user="alice", seed=1, drop_watch=1.0)
        stream = await alice.watch(CONFIG_MAPS, resourceVersion=str(cluster.store.revision))
        await admin.create(CONFIG_MAPS, config_map())
        events = await stream.rest()
        cluster.faults.configure(user="alice", seed=1, expire_watch=1.0)
        code, status = await alice.request("GET", CONFIG_MAPS, watch="true")

    assert [event["type"] for event in events] == ["ADDED"]
    assert (code, status["reason"]) == (410, "Expired")
    assert cluster.faults.counts == {"drop_watch": 1, "expire_watch": 1}


async def test_a_kubeconfig_is_for_its_owner_only(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "config"
    cluster.write_kubeconfig(path, "alice", "team")
    config = yaml.safe_load(path.read_text())

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert config["clusters"][0]["cluster"]["server"] == cluster.url
    assert config["users"][0]["user"]["token"] == cluster.token("alice")
    assert config["contexts"][0]["context"]["namespace"] == "team"


DEEP = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%b]\n" % (97 + i, 97 + i, b",".join([b"*%c" % (96 + i)] * 9)) for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type"),
    [
        ("POST", CONFIG_MAPS, b'{"kind":"ConfigMap"', "application/json"),
        ("POST", CONFIG_MAPS, b"", "application/json"),
        ("POST", CONFIG_MAPS, b"[]", "application/json"),
        ("POST", CONFIG_MAPS, b"null", "application/json"),
        ("POST", CONFIG_MAPS, b'"\xff"', "application/json"),
        ("POST", CONFIG_MAPS, b'{"metadata":[]}', "application/json"),
        ("POST", CONFIG_MAPS, b'{"metadata":{"name":7}}', "application/json"),
        ("POST", CONFIG_MAPS, b'{"metadata":{"name":"a","labels":[]}}', "application/json"),
        ("POST", CONFIG_MAPS, b'{"metadata":{"name":"a"},"data":7}', "application/json"),
        ("POST", CONFIG_MAPS, b'{"metadata":{"name":"a","namespace":5}}', "application/json"),
        ("POST", CONFIG_MAPS, b'{"metadata":{"generateName":["a"]}}', "application/json"),
        ("POST", CONFIG_MAPS, b'{"apiVersion":5,"kind":[]}', "application/json"),
        ("POST", CONFIG_MAPS, DEEP, "application/json"),
        ("POST", CONFIG_MAPS, DEEP, "application/yaml"),
        ("POST", CONFIG_MAPS, BOMB, "application/yaml"),
        ("POST", CONFIG_MAPS, b"a: b: c", "application/yaml"),
        ("POST", CONFIG_MAPS, b"metadata: {name: a}\nx: !!set {a, b}", "application/yaml"),
        ("POST", CONFIG_MAPS, b"metadata: {name: a}\nx: !!binary YQ==", "application/yaml"),
        ("POST", CONFIG_MAPS, b'metadata: {name: "\\ud800"}', "application/yaml"),
        (
            "POST",
            CONFIG_MAPS,
            b"metadata: {name: a}\ndata: {x: %b}" % (b"9" * 99),
            "application/yaml",
        ),
        ("POST", CONFIG_MAPS, b"metadata: {1: a, [1]: b}", "application/yaml"),
        ("POST", CONFIG_MAPS, b"&a [*a]", "application/yaml"),
        ("POST", CONFIG_MAPS, b"&a {metadata: *a}", "application/yaml"),
        ("POST", CONFIG_MAPS, b"!!python/object:os.system {}", "application/yaml"),
        ("POST", CONFIG_MAPS, b"x", "text/plain"),
        ("POST", CONFIG_MAPS, b"k8s\0", "application/vnd.kubernetes.protobuf"),
        ("POST", CONFIG_MAPS, b"k8s\0\x0a\xff\xff\xff", "application/vnd.kubernetes.protobuf"),
        ("POST", CONFIG_MAPS, b"\0" * 100, "application/vnd.kubernetes.protobuf"),
        ("POST", PODS, b'{"metadata":{"name":"a"},"spec":7}', "application/json"),
        ("POST", PODS, b'{"metadata":{"name":"a"},"spec":{"containers":7}}', "application/json"),
        ("POST", PODS, b'{"metadata":{"name":"a"},"spec":{"containers":[7]}}', "application/json"),
        ("POST", PODS, b'{"metadata":{"name":"a"}}', "application/json"),
        ("POST", f"{PODS}/x/binding", b"{}", "application/json"),
        ("POST", f"{PODS}/x/binding", b'{"target":7}', "application/json"),
        ("POST", f"{PODS}/x/eviction", b'{"deleteOptions":7}', "application/json"),
        ("POST", f"{PODS}/x/nosuch", b"{}", "application/json"),
        ("POST", f"{PODS}/x", b"{}", "application/json"),
        ("PUT", f"{CONFIG_MAPS}/x", b"{}", "application/json"),
        ("PUT", CONFIG_MAPS, b"{}", "application/json"),
        ("PATCH", f"{CONFIG_MAPS}/x", b"{}", "application/json"),
        ("PATCH", f"{CONFIG_MAPS}/x?fieldManager=m", BOMB, "application/apply-patch+yaml"),
        ("PATCH", f"{CONFIG_MAPS}/x?fieldManager=m", DEEP, "application/apply-patch+yaml"),
        ("PATCH", f"{CONFIG_MAPS}/x?fieldManager=m", b"- 1", "application/apply-patch+yaml"),
        ("DELETE", f"{CONFIG_MAPS}/x", b"7", "application/json"),
        ("DELETE", f"{CONFIG_MAPS}/x", b'{"gracePeriodSeconds":"a"}', "application/json"),
        ("DELETE", f"{CONFIG_MAPS}/x", b'{"preconditions":7}', "application/json"),
        ("GET", f"{CONFIG_MAPS}?limit=x", None, ""),
        ("GET", f"{CONFIG_MAPS}?limit=-1", None, ""),
        ("GET", f"{CONFIG_MAPS}?continue=x", None, ""),
        ("GET", f"{CONFIG_MAPS}?resourceVersion=abc", None, ""),
        ("GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=x", None, ""),
        ("GET", f"{CONFIG_MAPS}?fieldSelector=%00", None, ""),
        ("GET", f"{CONFIG_MAPS}/%2e%2e/secrets", None, ""),
        ("GET", f"{CONFIG_MAPS}/..%2f..%2fsecrets", None, ""),
        ("GET", f"{CONFIG_MAPS}/%ff", None, ""),
        ("GET", f"{CONFIG_MAPS}//a", None, ""),
        ("GET", "/api/v1/namespaces/default/nosuch", None, ""),
        ("GET", "/apis/nosuch/v1/things", None, ""),
        ("GET", "/api/v1/pods/a", None, ""),
        ("GET", "/api/v1/namespaces/default/nodes", None, ""),
        ("DELETE", "/version", None, ""),
        ("TRACE", CONFIG_MAPS, None, ""),
        ("OPTIONS", CONFIG_MAPS, None, ""),
    ],
)
async def test_a_malformed_request_is_refused_with_a_status(
    client: Client, method: str, path: str, body: bytes | None, content_type: str
) -> None:
    url = URL(f"{client.session._base_url}".rstrip("/") + path, encoded=True)
    headers = {"Content-Type": content_type} if content_type else {}
    async with client.session.request(method, url, data=body, headers=headers) as response:
        answer = await response.json()

    assert 400 <= response.status < 500, answer
    assert (answer["kind"], answer["status"]) == ("Status", "Failure")
    assert answer["code"] == response.status
    assert (await client.get(CONFIG_MAPS))["items"] == []


async def test_a_huge_body_is_refused_unread(client: Client) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 1_000_000

    codes = []
    for data in (io.BytesIO(b" " * 4 * 1024 * 1024), endless()):
        try:
            async with client.session.post(CONFIG_MAPS, data=data) as response:
                codes.append((response.status, (await response.json())["reason"]))
        except ClientError:
            # The server has closed the connection while the client still wrote.
            codes.append((413, "RequestEntityTooLarge"))

    assert codes == [(413, "RequestEntityTooLarge")] * 2


async def test_health_and_version_need_no_token(client: Client) -> None:
    client.session.headers.pop("Authorization")
    answers = []
    for path in ("/healthz", "/readyz", "/livez"):
        async with client.session.get(path) as response:
            answers.append((response.status, await response.text()))

    assert answers == [(200, "ok")] * 3
    assert (await client.get("/version"))["minor"] == "37"


async def test_the_log_of_a_pod_says_that_nothing_runs(client: Client) -> None:
    await client.create(PODS, pod(nodeName="n1"))
    async with client.session.get(f"{PODS}/a/log") as response:
        text = await response.text()

    assert (response.status, "runs no containers" in text) == (200, True)
    assert os.linesep in text


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 200),
        ({"Host": "localhost:8001"}, 200),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "127.8.9.1:1"}, 200),
        ({"Host": "[::1]:8001"}, 200),
        ({"Host": "Api.LocalHost."}, 200),
        ({"Host": "cluster.example.com:8001"}, 200),
        ({"Host": "rebound.example.org"}, 403),
        ({"Host": "localhost.example.org:80"}, 403),
        ({"Host": "10.0.0.1"}, 403),
        ({"Host": "127.0.0.1.example.org"}, 403),
        ({"Host": "[::1"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "https://cluster.example.com"}, 200),
        ({"Origin": "https://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[bad"}, 403),
    ],
)
async def test_web_pages_cannot_ask_as_administrator(headers: dict[str, str], code: int) -> None:
    async with (
        EmbeddedCluster(hosts=["cluster.example.com"]) as cluster,
        ClientSession(cluster.url, headers=headers) as session,
    ):
        codes = set()
        for path in (PODS, "/version", "/api"):
            async with session.get(path) as answer:
                codes.add(answer.status)
        async with session.post(CONFIG_MAPS, json=config_map()) as answer:
            written = answer.status
    assert codes == {code}
    assert written == (201 if code == 200 else 403)


async def test_over_tls_the_token_decides_and_no_name(tmp_path: Path) -> None:
    async with EmbeddedCluster(tls=True) as cluster, Client(cluster) as client:
        client.session.headers["Host"] = "rebound.example.org"
        async with client.session.get(PODS, ssl=False) as answer:
            assert answer.status == 200


async def test_an_object_that_etcd_would_refuse_is_refused(cluster: EmbeddedCluster) -> None:
    async with Client(cluster) as client:
        await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
        tasks = "/apis/example.com/v1/namespaces/default/tasks"
        await client.create(tasks, task("a"))
        large = {"spec": {"steps": [{"name": f"{i}-" + "x" * 1000} for i in range(900)]}}
        patched = await client.request("PATCH", f"{tasks}/a", large, "application/merge-patch+json")
        unchanged = await client.get(f"{tasks}/a")
    assert patched == (
        500,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "etcdserver: request is too large",
            "code": 500,
        },
    )
    assert "steps" not in unchanged["spec"]


async def test_metrics_count_requests_as_a_real_server_names_them(cluster: EmbeddedCluster) -> None:
    async with Client(cluster) as client:
        await client.create(PODS, pod("a"))
        await client.create(PODS, pod("b"), dryRun="All")
        await client.get(PODS)
        await client.get("/api/v1/pods")
        await client.get("/api/v1/nodes")
        await client.request("GET", f"{PODS}/missing")
        await client.merge(f"{PODS}/a/status", {"status": {"message": "x"}})
        await client.apply(CONFIG_MAPS + "/a", config_map("a"), "tester")
        watch = await client.watch(PODS)
        watch.close()
        await client.request("DELETE", PODS)
        async with client.session.get("/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            text = await answer.text()
    found = {
        line.removeprefix("apiserver_request_total")
        for line in text.splitlines()
        if line.startswith("apiserver_request_total{") and 'verb="WATCH"' not in line
    }

    def line(code: int, resource: str, scope: str, verb: str, sub: str = "", dry: str = "") -> str:
        return (
            f'{{code="{code}",component="apiserver",dry_run="{dry}",group="",resource="{resource}",'
            f'scope="{scope}",subresource="{sub}",verb="{verb}",version="v1"}} 1.0'
        )

    assert found == {
        line(201, "pods", "resource", "POST"),
        line(201, "pods", "resource", "POST", dry="All"),
        line(200, "pods", "namespace", "LIST"),
        line(200, "pods", "cluster", "LIST"),
        line(200, "nodes", "cluster", "LIST"),
        line(404, "pods", "resource", "GET"),
        line(200, "pods", "resource", "PATCH", sub="status"),
        line(201, "configmaps", "resource", "APPLY"),
        line(200, "pods", "namespace", "DELETECOLLECTION"),
    }
    assert "process_cpu_seconds_total" in text
