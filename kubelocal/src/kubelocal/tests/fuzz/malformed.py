"""Malformed requests by the handful: each source makes requests that must be refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from kubelocal.tests.fuzz.malformed_bodies import (
    API,
    APPLY,
    JOBS,
    JSON,
    JSON_PATCH,
    MAPS,
    MERGE,
    PODS,
    STRATEGIC,
    TASKS,
    TYPED,
    YAML,
    bad_definition,
    bad_json,
    bad_protobuf,
    bad_yaml,
    deep,
    huge,
    invalid_object,
    no_object,
    other_object,
    wrong_type,
)
from kubelocal.tests.fuzz.wire import Request
from kubelocal.tests.server.builders import config_map, task


def requests(seed: int, count: int) -> Iterator[Request]:
    """Yield `count` malformed requests, the same for the same seed."""
    random = Random(seed)
    names = [source for source, weight in SOURCES for _ in range(weight)]
    for _ in range(count):
        yield random.choice(names)(random)


def path_trick(random: Random) -> Request:
    path = random.choice(
        (
            f"{MAPS}/..%2fsecrets",
            f"{MAPS}/%2e%2e/secrets",
            f"{MAPS}/../../../../etc/passwd",
            f"{MAPS}/a%00b",
            f"{MAPS}/%ff%fe",
            f"{MAPS}/%c0%af",
            f"{MAPS}//a",
            f"{MAPS}/a//status",
            f"{MAPS}/a/status",
            f"{MAPS}/a/scale",
            f"{PODS}/a/nothing",
            f"{PODS}/a/status/more",
            f"{PODS}/a%5c..%5cb",
            f"{MAPS}/%",
            f"{MAPS}/%zz",
            f"{MAPS}/{'a' * random.randrange(254, 7_000)}",
            f"{MAPS}/{'%41' * random.randrange(300, 2_000)}",
            "/api/v1/namespaces//configmaps/a",
            "/api/v1/namespaces/%2e%2e/configmaps/a",
            "/api/v2/pods",
            "/api/v1/nothings",
            "/apis/nothing.example.com/v1/things",
            "/apis/batch/v9/jobs",
            "/apis/batch//jobs",
            "/apis/../api/v1/pods",
            "/apis/apps/v1/namespaces/default/deployments/a/b/c/d",
            "/api/v1/nodes/a/b/c",
            "/api/v1/namespaces/default/nodes",
            "/" + "a/" * random.randrange(1, 2_000),
            "/nothing",
            "/apis/nothing",
            "/openapi/v3/apis/nothing/v1",
            "/openapi/v4",
            "/" + "".join(random.choice("abc%./\\~;,:@") for _ in range(random.randrange(5, 80))),
        )
    )
    method = random.choice(("GET", "GET", "PUT", "DELETE"))
    if method == "DELETE" and not path.startswith((MAPS, PODS)):
        method = "GET"
    body = json.dumps(config_map("none")).encode() if method == "PUT" else b""
    return Request("path trick", method, path, body, {"Content-Type": JSON} if body else {})


def bad_query(random: Random) -> Request:
    word = "".join(random.choice("=!(),<>&%+ ä\0\"'x") for _ in range(random.randrange(1, 12)))
    junk = "".join(f"%{byte:02x}" for byte in word.encode())
    read = random.choice(
        (
            "limit=-1",
            "limit=many",
            f"limit={'9' * 5_000}x",
            "continue=nothing",
            "continue=e30=",
            "continue=eyJydiI6MSwic3RhcnQiOjF9",
            "continue=%ff",
            "resourceVersion=new",
            "resourceVersion=-1",
            f"resourceVersion={'9' * 40}",
            "resourceVersion=1.5",
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=Nearly&resourceVersion=1",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "sendInitialEvents=true",
            "watch=true&sendInitialEvents=true",
            "watch=true&resourceVersion=x",
            "watch=true&timeoutSeconds=soon",
            "labelSelector=a%20b%20c",
            "labelSelector=a%20in%20(",
            "labelSelector=%3d%3d",
            "labelSelector=a%20in%20b",
            f"labelSelector=({junk}",
            f"labelSelector={'a' * 300}",
            "fieldSelector=spec.nothing%3da",
            "fieldSelector=metadata.name",
            f"fieldSelector=%3d{junk}",
        )
    )
    write = random.choice(
        (
            "fieldValidation=Sometimes",
            "dryRun=Some",
            f"dryRun={junk}",
            f"fieldValidation={junk}",
        )
    )
    remove = random.choice(
        ("gracePeriodSeconds=soon", "propagationPolicy=Sideways", "dryRun=Maybe")
    )
    path = random.choice((PODS, MAPS, TASKS, JOBS))
    match random.randrange(4):
        case 0:
            body = json.dumps(config_map("new")).encode()
            return Request("bad query", "POST", f"{MAPS}?{write}", body, {"Content-Type": JSON})
        case 1:
            return Request("bad query", "DELETE", f"{path}/a?{remove}")
        case _:
            return Request("bad query", "GET", f"{path}?{read}")


def bad_header(random: Random) -> Request:
    body = json.dumps(config_map("new")).encode()
    junk = "".join(chr(random.randrange(33, 127)) for _ in range(random.randrange(1, 60)))
    name, value = random.choice(
        (
            ("Accept", "text/html"),
            ("Accept", "application/json;as=Chair;v=v1;g=meta.k8s.io"),
            ("Accept", "image/png, text/plain"),
            ("Content-Type", "text/xml"),
            ("Content-Type", "application/msgpack"),
            ("Content-Type", ";;;=" + junk.replace("/", "")),
            ("Authorization", "Bearer " + junk),
            ("Authorization", "Basic YTpi"),
            ("Authorization", "Bearer"),
        )
    )
    headers = {"Content-Type": JSON, name: value}
    if name == "Accept":
        return Request("bad header", "GET", f"{MAPS}/a", b"", headers)
    return Request("bad header", "POST", MAPS, body, headers)


def bad_http(random: Random) -> Request:
    start = random.choice(
        (
            b"NO HTTP AT ALL\r\n\r\n",
            b"GET  / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"G\0T / HTTP/1.1\r\n\r\n",
            b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: \0\r\n\r\n",
            b"GET / HTTP/1.1\r\n bad: name\r\n\r\n",
            b"POST /api/v1/namespaces HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
            b"POST /api/v1/namespaces HTTP/1.1\r\nContent-Length: many\r\n\r\n",
            b"POST /api/v1/namespaces HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            b"POST /api/v1/namespaces HTTP/1.1\r\nTransfer-Encoding: nothing\r\n\r\n",
            b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"a" * random.randrange(9_000, 60_000)),
            b"GET / HTTP/1.1\r\nA: %b\r\n\r\n" % (b"a" * random.randrange(9_000, 60_000)),
            b"GET / HTTP/1.1\r\n%b\r\n" % b"".join(b"A%d: b\r\n" % n for n in range(300)),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x20" * 50 + b"\r\n\r\n",
        )
    )
    return Request("bad HTTP", raw=start)


def bad_method(random: Random) -> Request:
    method, path = random.choice(
        (
            ("BREW", MAPS),
            ("OPTIONS", MAPS),
            ("TRACE", f"{MAPS}/a"),
            ("POST", f"{MAPS}/a"),
            ("PUT", MAPS),
            ("PATCH", MAPS),
            ("DELETE", "/api"),
            ("POST", "/version"),
            ("POST", "/healthz"),
            ("PUT", "/apis"),
            ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
            ("POST", f"{PODS}/a/status"),
            ("DELETE", f"{PODS}/a/status"),
            ("PUT", f"{PODS}/a/eviction"),
        )
    )
    return Request("bad method", method, path, b"{}", {"Content-Type": JSON})


def bad_patch(random: Random) -> Request:
    junk = random.choice(("null", "7", "[7]", '"a"', "[[]]", '[{"op": 7}]', "{", "", "[null]"))
    operation: Any = random.choice(
        (
            {"op": "jump", "path": "/a"},
            {"op": "add", "path": "no/slash", "value": 1},
            {"op": "remove", "path": "/data/nothing"},
            {"op": "replace", "path": "/data/nothing/deep", "value": "1"},
            {"op": "test", "path": "/metadata/name", "value": "b"},
            {"op": "test", "path": "/metadata/name"},
            {"op": "copy", "from": "/nothing", "path": "/data/a"},
            {"op": "move", "from": 7, "path": "/data/a"},
            {"op": "add", "path": 7, "value": 1},
            {"op": "add", "path": "/data/~2", "value": {"a": [1]}},
            {"op": "add", "path": "/metadata/finalizers/9", "value": "a"},
            {"op": "replace", "path": "", "value": 7},
            {"op": "replace", "path": "/metadata", "value": None},
            {"op": "remove", "path": "/metadata"},
            {"path": "/data"},
        )
    )
    merged: Any = random.choice(
        (
            {"data": 7},
            {"data": {"a": {"b": 1}}},
            {"metadata": 7},
            {"metadata": {"name": "b"}},
            {"metadata": {"uid": "other"}},
            {"metadata": {"resourceVersion": "1"}},
            {"metadata": {"resourceVersion": "many"}},
            {"metadata": {"labels": ["a"]}},
            {"metadata": {"labels": {"a b": "c"}}},
            {"metadata": {"ownerReferences": [7]}},
            {"metadata": {"managedFields": {"a": 1}}},
            {"kind": "Secret"},
            {"apiVersion": 7},
        )
    )
    strategic: Any = random.choice(
        (
            {"$patch": "jump"},
            {"data": {"$patch": 7}},
            {"metadata": {"finalizers": {"$patch": "replace"}}},
            {"metadata": {"$setElementOrder/finalizers": 7, "finalizers": 7}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": "a", "labels": 7}},
            {"metadata": {"ownerReferences": [{"$patch": "delete"}, 7]}},
            *([merged] * 2),
        )
    )
    identity = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    applied: Any = random.choice(
        (
            {},
            {"kind": "ConfigMap"},
            identity | {"kind": "Secret"},
            identity | {"metadata": {"name": "b"}},
            identity | {"metadata": {"name": "a", "managedFields": [{"manager": "a"}]}},
            identity | {"data": ["a"]},
            identity | {"data": {"step": "2"}},
            identity | {"metadata": 7},
        )
    )
    content_type, body = random.choice(
        (
            (JSON_PATCH, json.dumps([operation])),
            (JSON_PATCH, json.dumps([operation, operation])),
            (JSON_PATCH, json.dumps(operation)),
            (JSON_PATCH, json.dumps([{"op": "copy", "from": "", "path": "/data/a"}] * 40)),
            (MERGE, json.dumps(merged)),
            (STRATEGIC, json.dumps(strategic)),
            (APPLY, json.dumps(applied)),
            (random.choice((JSON_PATCH, MERGE, STRATEGIC, APPLY)), junk),
            ("application/diff", "{}"),
            (JSON, "{}"),
        )
    )
    query = "?fieldManager=fuzz" if random.random() < 0.9 or content_type == APPLY else ""
    return Request(
        "bad patch", "PATCH", f"{MAPS}/a{query}", body.encode(), {"Content-Type": content_type}
    )


def bad_subresource(random: Random) -> Request:
    """Objects of subresources and reviews, of the wrong types."""
    wrong: Any = random.choice((7, "a", [1], True, {"a": {"b": 7}}, [{"spec": 1}]))
    method, path, body = random.choice(
        (
            ("POST", f"{PODS}/a/binding", {"target": random.choice((7, "a", [], {"name": 7}))}),
            ("POST", f"{PODS}/a/binding", {"metadata": {"uid": 7}, "target": {"name": "n"}}),
            ("POST", f"{API}/bindings", {"metadata": random.choice((7, {"name": "none"}))}),
            ("POST", f"{PODS}/none/eviction", {"metadata": {"name": "none"}}),
            ("POST", f"{PODS}/a/eviction", {"deleteOptions": random.choice((7, "a", [1]))}),
            ("POST", f"{API}/serviceaccounts/none/token", {"spec": wrong}),
            ("PUT", f"{TASKS}/a/scale", {"spec": {"replicas": random.choice(("a", {}, -1))}}),
            ("PUT", f"{TASKS}/a/scale", {"spec": random.choice((7, "a", [1]))}),
            ("PUT", f"{PODS}/a/status", {"metadata": {"name": "a"}, "status": [7]}),
            ("PUT", f"{TASKS}/a/status", task() | {"status": {"replicas": "a"}}),
            ("DELETE", f"{PODS}/a", {"gracePeriodSeconds": random.choice(("a", {}, [1]))}),
            ("DELETE", f"{PODS}/a", {"preconditions": random.choice((7, "a", {"uid": "other"}))}),
            ("DELETE", f"{PODS}/a", {"propagationPolicy": random.choice((7, "Up", {}, [1]))}),
            ("DELETE", f"{PODS}/a", {"dryRun": random.choice(("Some", 7, ["Some"], {"a": 1}))}),
            (
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                {"spec": random.choice((7, "a", [1], {"resourceAttributes": 7}))},
            ),
        )
    )
    return Request(
        "bad subresource", method, path, json.dumps(body).encode(), {"Content-Type": JSON}
    )


def wild(random: Random) -> Request:
    """A good request with some bytes changed, which may leave it good."""
    path, obj = random.choice(TYPED)
    body = bytearray(json.dumps(obj).encode())
    for _ in range(random.randrange(1, 4)):
        body[random.randrange(len(body))] = random.randrange(256)
    method, content_type = random.choice(
        (("POST", JSON), ("PUT", JSON), ("PATCH", MERGE), ("PATCH", APPLY), ("POST", YAML))
    )
    full = path if method == "POST" else f"{path}/new"
    return Request(
        "wild",
        method,
        f"{full}?fieldManager=fuzz&dryRun=All",
        bytes(body),
        {"Content-Type": content_type},
        may_be_good=True,
    )


SOURCES: tuple[tuple[Callable[[Random], Request], int], ...] = (
    (bad_json, 14),
    (bad_yaml, 9),
    (bad_protobuf, 9),
    (wrong_type, 16),
    (no_object, 4),
    (other_object, 3),
    (invalid_object, 6),
    (bad_definition, 4),
    (deep, 3),
    (huge, 1),
    (path_trick, 9),
    (bad_query, 9),
    (bad_header, 5),
    (bad_http, 4),
    (bad_method, 4),
    (bad_patch, 10),
    (bad_subresource, 8),
    (wild, 8),
)
