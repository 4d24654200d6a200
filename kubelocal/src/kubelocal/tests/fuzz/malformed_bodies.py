"""Requests whose bodies must be refused: no JSON, YAML or protobuf, wrong types, wrong objects."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
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
            return write(random, path, body, JSON, "bad JSON")


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
    return write(random, path, body.encode(), YAML, "bad YAML")


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
    return write(random, path, body, PROTOBUF, "bad protobuf")


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
    return write(random, path, json.dumps(obj).encode(), JSON, f"wrong type of {key}")


def no_object(random: Random) -> Request:
    path, _ = random.choice(TYPED)
    body = random.choice((b"null", b"[]", b"7", b'"text"', b"true", b"[{}]", b"1e5", b'[{"a":1}]'))
    return write(random, path, body, random.choice((JSON, YAML)), "no object")


def other_object(random: Random) -> Request:
    """A good object at the path of another kind."""
    (path, _), (_, obj) = random.sample(TYPED, 2)
    return write(random, path, json.dumps(obj).encode(), JSON, "another kind")


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
        return write(random, path, body.encode(), content_type, "deep nesting")
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


def write(random: Random, path: str, body: bytes, content_type: str, what: str) -> Request:
    method = random.choice(("POST", "POST", "PUT"))
    full = path if method == "POST" else f"{path}/a"
    chunked = random.random() < 0.1
    return Request(what, method, full, body, {"Content-Type": content_type}, chunked)
