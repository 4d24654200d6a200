"""Objects and a client for the tests of the embedded API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import ClientResponse, ClientSession

from kubelocal.cluster import EmbeddedCluster
from kubelocal.server.types.kinds import Kind

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


def pod(name: str = "a", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "image": "example.com/worker:1"}], **spec},
    }


def job(name: str = "a") -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/worker:1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def definition(plural: str = "tasks", kind: str = "Task") -> dict[str, Any]:
    spec = {
        "type": "object",
        "properties": {
            "replicas": {"type": "integer", "minimum": 0, "default": 1},
            "mode": {"type": "string", "enum": ["Batch", "Serve"]},
            "steps": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "gpus": {"type": "integer"}},
                },
            },
        },
    }
    status = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}
        },
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
            },
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [version],
        },
    }


def task(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Task",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def kind_of(cluster: EmbeddedCluster, path: str) -> Kind:
    """`pods`, `batch/v1/jobs`."""
    group_version, _, plural = path.rpartition("/")
    group, _, version = group_version.rpartition("/")
    kind = cluster.registry.find(group, version or "v1", plural)
    assert kind is not None
    return kind


class Client:
    """HTTP as a user: answers are the code and the decoded body."""

    def __init__(self, cluster: EmbeddedCluster, user: str = "admin") -> None:
        self._cluster, self.user = cluster, user
        headers = {"Authorization": f"Bearer {cluster.token(user)}", "User-Agent": "tester/1"}
        self.session = ClientSession(cluster.url, headers=headers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type, "Accept": accept}
        async with self.session.request(
            method, path, data=data, headers=headers, params=query
        ) as response:
            return response.status, json.loads(await response.text() or "{}")

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        code, body = await self.request("GET", path, **query)
        assert code == 200, body
        return body

    async def create(self, path: str, obj: dict[str, Any], **query: str) -> dict[str, Any]:
        code, body = await self.request("POST", path, obj, **query)
        assert code == 201, body
        return body

    async def merge(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        code, body = await self.request("PATCH", path, patch, "application/merge-patch+json")
        assert code == 200, body
        return body

    async def apply(
        self, path: str, obj: dict[str, Any], manager: str, **query: str
    ) -> tuple[int, dict[str, Any]]:
        return await self.request(
            "PATCH", path, obj, "application/apply-patch+yaml", fieldManager=manager, **query
        )

    async def watch(self, path: str, **query: str) -> Stream:
        response = await self.session.get(path, params={"watch": "true", **query})
        return Stream(response)


class Stream:
    """One open watch."""

    def __init__(self, response: ClientResponse) -> None:
        self.response = response

    async def take(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(60):
            return [json.loads(await self.response.content.readline()) for _ in range(count)]

    async def rest(self) -> list[dict[str, Any]]:
        """Everything until the server ends the stream."""
        async with asyncio.timeout(60):
            text = await self.response.text()
        return [json.loads(line) for line in text.splitlines()]

    def close(self) -> None:
        self.response.close()


async def until(condition: Callable[[], bool]) -> None:
    """Return when `condition` holds; what never does fails the test."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def seen(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Type and name of each event."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]
