"""Malformed requests by the handful: each source makes requests that must be refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from kubelocal.tests.fuzz.wire import Request
from kubelocal.tests.server.builders import config_map, definition, job, pod, task

API = "/api/v1/namespaces/default"
PODS, MAPS = f"{API}/pods", f"{API}/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
TASKS = "/apis/example.com/v1/namespaces/default/tasks"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"

# There before the first request: a Pod, a ConfigMap, a Job and a Task named "a".
EXISTING = ((PODS, pod()), (MAPS, config_map(step="1")), (JOBS, job()), (TASKS, task(replicas=1)))
# Every value of these has a type that the server must insist on.
_LABELLED = pod("new", {"app": "a"}, nodeSelector={"zone": "a"}, priority=1)
_LABELLED["spec"]["containers"][0] |= {
    "env": [{"name": "A", "value": "1"}],
    "ports": [{"containerPort": 80}],
    "resources": {"limits": {"cpu": "1"}},
}
TYPED = (
    (PODS, _LABELLED),
    (JOBS, job("new")),
    (TASKS, task("new", replicas=3, mode="Batch", steps=[{"name": "x", "gpus": 1}])),
    (MAPS, config_map("new", step="1")),
    (DEFINITIONS, definition("things", "Thing")),
)


def requests(seed: int, count: int) -> Iterator[Request]:
    """Yield `count` malformed requests, the same for the same seed."""
    random = Random(seed)
    names = [source for source, weight in SOURCES for _ in range(weight)]
    for _ in range(count):
        yield random.choice(names)(random)


def bad_json(random: Random) -> Request:
    path, obj = random.choice(TYPED)
    good = json.dumps(obj).encode()
    while True:
        at = random.randrange(len(good))
        body = random.choice(
            (
                good[:at],
                good + good[:at] + b"}",
                good[:at] + random.randbytes(random.randrange(1, 6)) + good[at:],
                good[:at] + b'"\xff\xfe' + good[at:],
                good.replace(b"default", b"\\ud800"),
                good.replace(b'"', b"'"),
                b"[" * random.randrange(1, 2_000),
                b"\0" * random.randrange(1, 100),
                b'{"a": %b}' % random.choice((b"NaN", b"-Infinity", b"01", b"1.", b"0x1", b"tru")),
                b"",
            )
        )
        if _is_no_json(body):
            return _write(random, path, body, JSON, "bad JSON")


def bad_yaml(random: Random) -> Request:
    path, _ = random.choice(TYPED)
    depth = random.choice((250, 3_000, 100_000))
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
    )
    body = random.choice(
        (
            "a: [1, 2",
            "a:\n\t- b: c",
            "{a: b",
            "a: *nothing",
            "- just\n- a list",
            "just words",
            "a: &a [*a]",
            "a: !!python/object/apply:os.getpid []",
            "? {a: b}\n: c",
            "a: 'open",
            "%YAML 9.9\n---\na",
            "--- a\n--- b\n--- c",
            "\x01\x02",
            bomb,
            "[" * depth + "]" * depth,
            "\n".join("  " * level + "a:" for level in range(min(depth, 400))),
        )
    )
    return _write(random, path, body.encode(), YAML, "bad YAML")


def bad_protobuf(random: Random) -> Request:
    path, _ = random.choice(TYPED)
    # runtime.Unknown: typeMeta {apiVersion, kind} and the raw message.
    meta = b"\x0a\x02v1\x12\x03Pod"
    raw = random.choice(
        (
            b"\x0a\xff\xff\xff\xff\x0f",
            b"\x0a\x05ab",
            b"\xff" * random.randrange(1, 60),
            b"\x0b" * random.randrange(1, 5_000),
            b"\x0a\x02\x0a\x7f",
            b"\x80" * 20 + b"\x01",
            b"\x0a\x04\x0a\x02\xff\xfe",
        )
    )
    envelope = b"k8s\0\x0a%c%b\x12%c%b" % (len(meta), meta, len(raw) % 128, raw)
    body = random.choice(
        (
            b"",
            b"k8s",
            b"k8s\0",
            random.randbytes(random.randrange(1, 200)),
            b"k8s\0" + random.randbytes(random.randrange(1, 200)),
            envelope[: random.randrange(4, len(envelope))],
            envelope,
            b"k8s\0\x0a\x0b\x0a\x02v1\x12\x05Thing\x12\x00",
            json.dumps(pod()).encode(),
        )
    )
    return _write(random, path, body, PROTOBUF, "bad protobuf")


def wrong_type(random: Random) -> Request:
    """One value of a good object is of another type."""
    path, good = random.choice(TYPED)
    obj = copy.deepcopy(good)
    places = list(_places(obj))
    holder, key = random.choice(places)
    old = holder[key]
    choices: list[Any] = [{"x": {}}, [[1]], [{"a": 1}, None, 3], 10**30]
    if isinstance(old, dict):
        choices = ["text", 7, True, 1.5, [1], ["a"], -1]
    elif isinstance(old, list):
        choices = ["text", 7, False, {"a": "b"}, 1e300]
    elif isinstance(old, bool):
        choices = ["true", 1, {}, []]
    elif isinstance(old, int):
        choices = ["many", {"a": 1}, [1], 1.5, True]
    holder[key] = random.choice(choices)
    return _write(random, path, json.dumps(obj).encode(), JSON, f"wrong type of {key}")


def no_object(random: Random) -> Request:
    path, _ = random.choice(TYPED)
    body = random.choice((b"null", b"[]", b"7", b'"text"', b"true", b"[{}]", b"1e5", b'[{"a":1}]'))
    return _write(random, path, body, random.choice((JSON, YAML)), "no object")


def other_object(random: Random) -> Request:
    """A good object at the path of another kind."""
    (path, _), (_, obj) = random.sample(TYPED, 2)
    return _write(random, path, json.dumps(obj).encode(), JSON, "another kind")


def invalid_object(random: Random) -> Request:
    name = random.choice(("A", "-a", "a_b", "a" * 300, "a..b", "ä", "a/b", "", " ", ".", "a\0b"))
    obj: dict[str, Any]
    path, obj = random.choice(
        (
            (MAPS, config_map(name)),
            (PODS, pod(name)),
            (TASKS, task(name)),
            (PODS, pod("new", containers=[])),
            (PODS, pod("new", restartPolicy="Sometimes")),
            (PODS, pod("new", {"a b": "c"})),
            (PODS, pod("new", {"a": "x" * 64})),
            (TASKS, task("new", replicas=-1)),
            (TASKS, task("new", mode="Never")),
            (TASKS, task("new", steps=[{"name": "a"}, {"name": "a"}])),
            (TASKS, task("new", steps=[{}])),
            (MAPS, config_map("a")),
            (MAPS, config_map("new") | {"metadata": {"name": "new", "namespace": "other"}}),
            ("/api/v1/namespaces/missing/configmaps", {"metadata": {"name": "new"}}),
        )
    )
    return Request("invalid object", "POST", path, json.dumps(obj).encode(), {"Content-Type": JSON})


def bad_definition(random: Random) -> Request:
    crd = definition("things", "Thing")
    spec = crd["spec"]
    schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
    match random.randrange(10):
        case 0:
            schema["properties"]["spec"]["type"] = random.choice(("thing", "", "any"))
        case 1:
            schema["properties"]["spec"]["pattern"] = random.choice(("(", "[", "*", "(?P<"))
            schema["properties"]["spec"]["type"] = "string"
        case 2:
            rule = random.choice(("self.", "))", "1 +", "nothing(self)", ""))
            schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": rule}]
        case 3:
            spec["versions"] = []
        case 4:
            spec["versions"].append(copy.deepcopy(spec["versions"][0]))
        case 5:
            crd["metadata"]["name"] = random.choice(("things", "other.example.com", "x.y.z"))
        case 6:
            spec["scope"] = random.choice(("", "Everywhere"))
        case 7:
            spec["names"]["kind"] = random.choice(("", "thing kind", "a/b"))
        case 8:
            del schema["type"]
        case _:
            schema["properties"]["spec"]["x-kubernetes-list-type"] = "heap"
    return Request(
        "bad definition", "POST", DEFINITIONS, json.dumps(crd).encode(), {"Content-Type": JSON}
    )


def deep(random: Random) -> Request:
    depth = random.choice((250, 900, 1_100, 5_000, 100_000))
    opening, closing = random.choice((('{"a":', "}"), ("[", "]")))
    nested = opening * depth + "1" + closing * depth
    path, obj = random.choice(TYPED)
    body = json.dumps(obj)[:-1] + f', "more": {nested}}}'
    content_type = random.choice((JSON, MERGE, STRATEGIC, APPLY, JSON_PATCH, YAML))
    if content_type in (JSON, YAML):
        return _write(random, path, body.encode(), content_type, "deep nesting")
    if content_type == JSON_PATCH:
        body = f'[{{"op": "add", "path": "/metadata/labels", "value": {nested}}}]'
    path = random.choice((MAPS, JOBS))
    return Request(
        "deep nesting",
        "PATCH",
        f"{path}/a?fieldManager=fuzz",
        body.encode(),
        {"Content-Type": content_type},
    )


def huge(random: Random) -> Request:
    path = random.choice((MAPS, PODS, TASKS))
    size = random.choice((3 * 1024 * 1024 + 1, 5_000_000))
    headers = {"Content-Type": random.choice((JSON, YAML, PROTOBUF))}
    match random.randrange(3):
        case 0:
            # Announced and never sent.
            headers["Content-Length"] = random.choice(("4000000", "99999999999", "9" * 18))
            return Request("huge body", "POST", path, b"{", headers)
        case 1:
            return Request("huge body", "POST", path, b" " * size, headers, chunked=True)
        case _:
            body = b'{"data":{"a":"%b"}}' % (b"x" * size)
            return Request("huge body", "PUT", f"{path}/a", body, headers)


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


def _write(random: Random, path: str, body: bytes, content_type: str, what: str) -> Request:
    method = random.choice(("POST", "POST", "PUT"))
    full = path if method == "POST" else f"{path}/a"
    chunked = random.random() < 0.1
    return Request(what, method, full, body, {"Content-Type": content_type}, chunked)


def _is_no_json(body: bytes) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError):
        return True
    return b"\\ud800" in body


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the holder and the key of each value inside that has a type."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, held in list(inner):
        if key in ("default", "enum"):
            continue
        yield value, key
        if isinstance(held, dict | list):
            yield from _places(held)
