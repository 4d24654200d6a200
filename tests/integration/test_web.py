"""`reprieve web` as a process: it asks the API server who somebody is, and what they may see.

TokenReviews of bound service account tokens and SubjectAccessReviews are the API server's own, on
whichever one answers; the page itself reads as administrator.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from reprieve.kube.errors import AlreadyExists, Call, NotFound
from reprieve.kube.resource import PODS, Resource
from reprieve.kube.transport import Request
from reprieve.scenarios import with_parent
from tests.integration.site import NAMESPACE, Object, Site, job
from tests.ports import free_port

ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
OTHER = "other-team"
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Web:
    """The page, as one viewer asks it."""

    address: str
    client: aiohttp.ClientSession

    async def ask(self, path: str, token: str = "") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.client.get(f"{self.address}{path}", headers=headers) as answer:
            return answer.status, await answer.json()

    async def rows(self, path: str, table: str, token: str) -> list[dict[str, Any]]:
        status, page = await self.ask(path, token)
        assert status == 200, page
        found = page["tables"][table]
        names = [name for name, _ in found["columns"]]
        return [dict(zip(names, row, strict=True)) for row in zip(*found["data"], strict=True)]


@asynccontextmanager
async def serving(site: Site) -> AsyncIterator[Web]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *with_parent.command("reprieve", "web", "--kubeconfig", str(site.kubeconfig)),
        *("--listen", "127.0.0.1", "--port", str(port)),
    )
    try:
        async with aiohttp.ClientSession() as client:
            web = Web(f"http://127.0.0.1:{port}", client)

            async def answers() -> bool:
                try:
                    return (await web.ask("/api/session"))[0] == 401
                except aiohttp.ClientConnectionError:
                    return False

            await site.until(answers, "the page answers, and wants a login")
            yield web
    finally:
        process.terminate()
        assert await process.wait() == 0


async def post(site: Site, path: str, body: Object) -> Object:
    request = Request("POST", path, {}, json.dumps(body).encode(), "application/json")
    said = await site.client.transport.request(request, Call("create", path))
    answer: Object = json.loads(said)
    return answer


async def token_of(site: Site, name: str, audience: str) -> str:
    """Return a token of a service account for an audience, as `kubectl create token` makes it."""
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [audience], "expirationSeconds": 3600},
    }
    made = await post(site, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token", asked)
    return str(made["status"]["token"])


def binding() -> Object:
    """Return the binding by which the viewer may list pods."""
    meta = {"name": "viewer", "namespace": NAMESPACE}
    return {
        "metadata": meta,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", **meta}],
    }


@pytest.fixture
async def viewer(site: Site) -> AsyncIterator[str]:
    """A service account that may list the pods of its own namespace; two teams' Jobs run."""
    meta = {"name": "viewer", "namespace": NAMESPACE}
    made: list[tuple[str, Object]] = [
        (f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": meta}),
        (
            f"/apis/{RBAC}/v1/namespaces/{NAMESPACE}/roles",
            {
                "metadata": meta,
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
            },
        ),
        (
            f"/apis/{RBAC}/v1/namespaces/{NAMESPACE}/rolebindings",
            binding(),
        ),
        ("/api/v1/namespaces", {"metadata": {"name": OTHER}}),
    ]
    for path, body in made:
        try:
            await post(site, path, body)
        except AlreadyExists:
            continue
    foreign = job("secret-project", 1)
    foreign["metadata"]["namespace"] = OTHER
    await site.create(job("mine", 2), foreign)

    async def run() -> bool:
        pods = await site.all(PODS)
        return len(pods) == 2 and all(each["status"].get("phase") == "Running" for each in pods)

    await site.until(run, "both Jobs run")
    yield "viewer"
    with contextlib.suppress(NotFound):
        await site.client.delete(ROLE_BINDINGS, NAMESPACE, "viewer")


async def test_a_tenant_sees_his_own_work_and_none_of_others(site: Site, viewer: str) -> None:
    token = await token_of(site, viewer, "reprieve-web")
    async with serving(site) as web:
        rows = await web.rows(f"/api/page/now?ns={NAMESPACE}&ns={OTHER}", "holders", token)
        assert [(each["unit"], each["amount"]) for each in rows] == [(f"job/{NAMESPACE}/mine", 2)]
        for page in ("now", "waiting", "preemptions", "queues", "health"):
            status, said = await web.ask(f"/api/page/{page}?ns={NAMESPACE}&ns={OTHER}", token)
            assert status == 200
            assert "secret" not in json.dumps(said), page
        answers = []
        for name in ("secret-project", "not-there-at-all"):
            path = f"/api/page/workload?kind=job&namespace={OTHER}&name={name}"
            status, said = await web.ask(path, token)
            assert status == 404
            answers.append(json.dumps(said).replace(name, "NAME"))
        assert answers[0] == answers[1]


async def test_nobody_comes_in_without_a_token_made_for_the_page(site: Site, viewer: str) -> None:
    async with serving(site) as web:
        wrong = await token_of(site, viewer, "https://elsewhere.example")
        for token in ("", "not-a-token", wrong):
            for path in ("/api/page/now", "/api/session", "/api/download/now/holders.csv"):
                status, said = await web.ask(path, token)
                assert status == 401, (path, said)


@pytest.mark.slow  # answers about rights are kept for a minute
async def test_a_right_that_ends_is_not_used_any_more(site: Site, viewer: str) -> None:
    token = await token_of(site, viewer, "reprieve-web")
    async with serving(site) as web:
        path = f"/api/page/now?ns={NAMESPACE}"
        assert await web.rows(path, "holders", token)
        await site.client.delete(ROLE_BINDINGS, NAMESPACE, viewer)

        async def nothing() -> bool:
            status, said = await web.ask(path, token)
            return status in (401, 403) or not said["tables"]["holders"]["slots"]

        await site.until(nothing, "the page shows nothing of the namespace")
