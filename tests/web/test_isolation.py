"""No answer of any kind names what an access review denies: tenants with roles that change.

The reviews are those of an embedded cluster with roles, the pages are of a mirror that has work of
several tenants. Each of a tenant's texts (names, uids, labels, nodes) holds a mark that occurs
nowhere else; the judge knows from the stored roles alone whose marks an answer may hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
import pytest

from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import Preemption
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import Connection, Headers
from reprieve.kube.resource import NAMESPACES, Resource
from reprieve.kube.transport import HttpWire, Transport
from reprieve.web.history.sampling import Counted, moment_of
from reprieve.web.live.watching import Watching
from reprieve.web.login.attempts import Attempts
from reprieve.web.login.door import ClusterDoor
from reprieve.web.login.reviews import Reviews
from reprieve.web.login.rights import Rights
from reprieve.web.login.sessions import Sessions
from reprieve.web.login.tokens import Tokens
from reprieve.web.login.wire import ReviewingWire
from reprieve.web.pages.table import PAGES
from reprieve.web.server.application import Site
from reprieve.web.server.assets import Assets
from reprieve.web.server.mirrored import MirroredCluster
from reprieve.web.server.planning import Plans, as_viewer
from reprieve.web.server.process import page_runner
from tests.web.cluster import cluster_queue, idle, local_queue, node, pod, put, workload
from tests.web.stories import OpenedAtOnce, mirror_of
from tests.web.test_isolation_of_stories import (
    disruptions_of,
    identifiers,
    identifiers_seen,
    renamed,
)

_GROUP = "rbac.authorization.k8s.io"
_ROLES = Resource(_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
_BINDINGS = Resource(_GROUP, "v1", "rolebindings", "RoleBinding")
_EVERYWHERE = Resource(_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_USERS = tuple(f"viewer-{number}" for number in range(6))
_STRANGERS = ("invented", "")


class _Moved(SystemClock):
    """The machine's clock, moved on by hand; pauses are short."""

    moved = 0

    def monotonic(self) -> Nanos:
        return Nanos(super().monotonic() + self.moved)

    async def sleep(self, nanoseconds: int) -> None:
        await super().sleep(nanoseconds // 50)


@dataclass
class _World:
    """What there is, and who may see it: `rights` as the stored roles have them."""

    namespaces: list[str]
    records: list[Preemption]
    marks: dict[str, set[str]] = field(default_factory=dict)
    units: list[tuple[str, str, str]] = field(default_factory=list)
    rights: dict[str, set[str]] = field(default_factory=lambda: {user: set() for user in _USERS})
    everything: set[str] = field(default_factory=set)

    def denied(self, user: str) -> set[str]:
        """Return the marks that no answer to this user may hold."""
        if user in self.everything:
            return set()
        seen = self.rights.get(user, set())
        viewer = _Seen(seen)
        stories = list(disruptions_of(self.records))
        found = identifiers(self.records, stories, viewer)  # type: ignore[arg-type]
        found -= identifiers_seen(self.records, viewer)  # type: ignore[arg-type]
        # Their own names stand in what viewers themselves ask for, and come back in refusals.
        found -= set(self.namespaces)
        for namespace, marks in self.marks.items():
            if namespace not in seen:
                found |= marks
        return found


@dataclass
class _Seen:
    namespaces: set[str]

    def sees(self, namespace: str) -> bool:
        return namespace in self.namespaces


def _filled(random: Random) -> tuple[_World, Any]:
    records: list[Preemption] = []
    while len(_namespaces(records)) < 3:
        records = renamed(random)[0]
    world = _World(sorted(_namespaces(records)), records)
    mirror = mirror_of(records, disruptions_of(records), key=b"key")
    known = OpenedAtOnce({each.metadata.name: each for each in records})
    mirror.opened = known
    put(mirror, cluster_queue("shared", 64, "all"))
    for namespace in world.namespaces:
        mark = f"zq{random.getrandbits(40):x}"
        world.marks[namespace] = {mark}
        put(mirror, local_queue(namespace, "shared", f"queue-{mark}"))
        put(mirror, node(f"node-{mark}", labels={"pool": f"pool-{mark}"}))
        for number in range(4):
            job = f"job-{mark}-{number}"
            labels = {"app": f"app-{mark}"}
            on = f"node-{mark}" if number % 2 else ""
            why = "" if on else f"0/1 nodes are available: {mark} does not fit"
            for part in range(2):
                name = f"{job}-{part}"
                put(mirror, pod(name, namespace, 2, on=on, job=job, labels=labels, why=why))
            admitted = "shared" if on else ""
            queue = f"queue-{mark}"
            put(mirror, workload(job, namespace, 2, 2, queue=queue, admitted_to=admitted, why=why))
            world.units.append(("job", namespace, job))
        put(mirror, idle(f"job-{mark}-1", [f"job-{mark}-1-0"], namespace))
    now = SystemClock().wall()
    mirror.history.add(moment_of(mirror, now), Counted(Nanos(0)).new(mirror))
    return world, mirror


def _namespaces(records: list[Preemption]) -> set[str]:
    found = {victim.root.namespace for each in records for victim in each.spec.victims}
    return found | {each.spec.preemptor.namespace for each in records if each.spec.preemptor}


@contextlib.asynccontextmanager
async def _site(mirror: Any) -> AsyncIterator[tuple[str, EmbeddedCluster, Client, _Moved]]:
    clock, epochs = _Moved(), itertools.count()
    async with EmbeddedCluster(rbac=True) as cluster:
        token = cluster.token()
        connection = Connection(cluster.url, None, Headers(lambda: f"Bearer {token}"))
        client = connect(connection, clock)
        transport = Transport(ReviewingWire(HttpWire(connection)), clock)
        reviews = Reviews(transport, ["reprieve-web"])
        door = ClusterDoor(
            Tokens(reviews, clock), Rights(reviews, clock), Sessions(clock), Attempts(clock)
        )
        watching = Watching(MirroredCluster(mirror), clock, lambda: f"e{next(epochs)}")
        plans = Plans(as_viewer(connection), ("false",))
        site = Site(watching, door, Assets({}), plans, clock, "kind-a", None)
        runner = page_runner(site)
        await runner.setup()
        await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
        making = asyncio.create_task(watching.run())
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", cluster, client, clock
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
            await runner.cleanup()
            await transport.close()
            await client.close()


async def _give_roles(client: Client, world: _World) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    await client.create(_ROLES, {"metadata": {"name": "reads"}, "rules": [rule]}, dict)
    for namespace in world.namespaces:
        await client.create(NAMESPACES, {"metadata": {"name": namespace}}, dict)


async def _change(random: Random, client: Client, world: _World, clock: _Moved) -> None:
    """Give or take one right, and wait until no answer about rights is remembered."""
    user = random.choice(_USERS)
    if random.random() < 0.1:
        await _flip(client, _EVERYWHERE, "", user, user not in world.everything)
        world.everything ^= {user}
    else:
        namespace = random.choice(world.namespaces)
        await _flip(client, _BINDINGS, namespace, user, namespace not in world.rights[user])
        world.rights[user] ^= {namespace}
    clock.moved += 61 * SECOND


async def _flip(client: Client, resource: Resource, namespace: str, user: str, given: bool) -> None:
    if not given:
        await client.delete(resource, namespace, user)
        return
    binding = {
        "metadata": {"name": user, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": "reads"},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
    }
    await client.create(resource, binding, dict)


def _requests(random: Random, world: _World) -> Iterator[str]:
    """Yield paths: pages of all kinds, of things that are there, foreign or missing."""
    tables = (
        "holders",
        "waiters",
        "nodes",
        "teams",
        "waiting",
        "reasons",
        "queues",
        "preemptions",
        "none",
    )
    while True:
        page = random.choice((*PAGES, "workload", "nowhere"))
        asked: list[tuple[str, str]] = [
            ("ns", random.choice((*world.namespaces, "missing", "Not A Name")))
            for _ in range(random.choice((0, 0, 1, 1, 2, 3)))
        ]
        if random.random() < 0.2:
            asked.append(("resource", random.choice(("amd.com/gpu", "cpu", "no such"))))
        if page == "preemption":
            record = random.choice(world.records)
            name = random.choice((record.metadata.name, record.spec.plan_id, "missing"))
            asked.append(("name", name))
        if page in ("now", "history") and random.random() < 0.5:
            asked.append(("at" if page == "now" else "by", random.choice(("9999999999", "queue"))))
        if page == "workload" or random.random() < 0.1:
            kind, namespace, name = random.choice(world.units)
            name = random.choice((name, name, "missing"))
            asked += [("kind", kind), ("namespace", namespace), ("name", name)]
        query = urlencode(asked)
        yield random.choice(
            (
                f"/api/page/{page}?{query}",
                f"/api/page/{page}?{query}",
                f"/api/live?page={page}&{query}",
                f"/api/download/{page}/{random.choice(tables)}.csv?{query}",
                f"/api/download/{page}/{random.choice(tables)}.json?{query}",
                f"/api/session?{query}",
                f"/{page}?{query}",
            )
        )


@pytest.mark.parametrize(
    "count", [250, pytest.param(10_000, marks=pytest.mark.thorough)], ids=["some", "many"]
)
async def test_no_answer_names_what_an_access_review_denies(count: int) -> None:
    random = Random(18)
    world, mirror = _filled(random)
    told: Counter[str] = Counter()
    async with _site(mirror) as (address, cluster, client, clock):
        await _give_roles(client, world)
        await _flip(client, _EVERYWHERE, "", _USERS[0], True)
        world.everything.add(_USERS[0])
        for user in _USERS[1:]:
            namespace = random.choice(world.namespaces)
            world.rights[user] = {namespace}
            await _flip(client, _BINDINGS, namespace, user, True)
        tokens = {user: cluster.token(user, ["reprieve-web"]) for user in _USERS}
        async with aiohttp.ClientSession() as session:
            for number, path in zip(range(count), _requests(random, world), strict=False):
                if number % 40 == 39:
                    await _change(random, client, world, clock)
                user = random.choice((*_USERS, *_STRANGERS))
                token = tokens.get(user, user)
                status, text = await _asked(session, address + path, token)
                for mark in world.denied(user):
                    # Who names something may be told that it is not there.
                    assert mark not in text or mark in path, (user, path, status, mark)
                told[str(status)] += 1
                told["own"] += any(
                    mark in text
                    for namespace in world.rights.get(user, ())
                    for mark in world.marks[namespace]
                )
                told["all"] += user in world.everything

    assert min(told["200"], told["404"], told["401"] + told["429"]) > count / 20, told
    assert min(told["own"], told["all"]) > count / 50, told
    assert told["400"], told


async def _asked(session: aiohttp.ClientSession, path: str, token: str) -> tuple[int, str]:
    """Return what is answered; of a stream, its first event; with the headers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with session.get(path, headers=headers) as answer:
        if answer.content_type == "text/event-stream":
            body = await answer.content.readuntil(b"\n\n")
        else:
            body = await answer.read()
        return answer.status, f"{body.decode()}\n{msgspec.json.encode(dict(answer.headers))!r}"
