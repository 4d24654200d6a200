"""YAML, events and logs are read for who asks, bounded, and only of namespaces that they see."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reprieve.kube.errors import ApiError, Forbidden, Unauthorized
from reprieve.kube.errors import NotFound as Missing
from reprieve.kube.transport import Request
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.web.server.door import Visit
from reprieve.web.server.objects import Objects
from reprieve.web.tables import NotFound, Viewer

VISIT = Visit("me", Viewer(False, frozenset({"team-a"})), "token")
POD = {
    "kind": "Pod",
    "metadata": {"name": "x-0", "managedFields": [{"manager": "kubectl"}]},
    "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
}


class Fake:
    """Answers by path; an error is raised."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[Request] = []

    async def request(self, request: Request) -> bytes:
        self.asked.append(request)
        found = self.answers[request.path]
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, bytes) else json.dumps(found).encode()


def objects(answers: dict[str, Any]) -> tuple[Objects, Fake]:
    fake = Fake(answers)

    @contextlib.asynccontextmanager
    async def reads(visit: Visit) -> AsyncIterator[Any]:
        assert visit is VISIT
        yield fake

    return Objects(reads), fake


async def text(found: Objects, what: str, kind: str = "pod", name: str = "x-0") -> str:
    answer: str = json.loads(await found.ask(what, kind, "team-a", name, VISIT))["text"]
    return answer


async def test_yaml_is_the_object_without_who_wrote_which_field() -> None:
    found, _ = objects({"/api/v1/namespaces/team-a/pods/x-0": POD})
    said = await text(found, "yaml")
    assert said.startswith("kind: Pod\nmetadata:\n  name: x-0\n")
    assert "kubectl" not in said


async def test_events_are_lines_in_the_order_of_time() -> None:
    items = [
        {"lastTimestamp": "2026-11-23T12:00:02Z", "type": "Warning", "reason": "B", "message": "b"},
        {"lastTimestamp": "2026-11-23T12:00:01Z", "type": "Normal", "reason": "A", "message": "a",
         "count": 3},
    ]  # fmt: skip
    found, fake = objects({"/api/v1/namespaces/team-a/events": {"items": items}})
    assert await text(found, "events", "job", "train") == (
        "2026-11-23T12:00:01Z  Normal  A  a (3 times)\n2026-11-23T12:00:02Z  Warning  B  b"
    )
    assert fake.asked[0].query["fieldSelector"] == (
        "involvedObject.name=train,involvedObject.kind=Job"
    )


async def test_logs_are_the_last_lines_of_each_container() -> None:
    pod = "/api/v1/namespaces/team-a/pods/x-0"
    found, fake = objects({pod: POD, f"{pod}/log": b"step 1\nstep 2\n"})
    assert await text(found, "logs") == "--- main\nstep 1\nstep 2\n\n--- side\nstep 1\nstep 2\n"
    assert [each.query.get("tailLines") for each in fake.asked] == [None, "200", "200"]
    assert [each.query.get("container") for each in fake.asked] == [None, "main", "side"]


async def test_an_answer_is_bounded() -> None:
    pod = "/api/v1/namespaces/team-a/pods/x-0"
    found, _ = objects({pod: POD, f"{pod}/log": b"x" * 1_000_000})
    assert len(await text(found, "logs")) <= 256 * 1024


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Forbidden('User "me" cannot get pods'), "you may not read that: "),
        (Unauthorized("Unauthorized"), "log in with one for both"),
        (ApiError("etcd is away"), "the API server does not give it: etcd is away"),
    ],
)
async def test_a_refusal_is_told_in_words(error: Exception, said: str) -> None:
    found, _ = objects({"/api/v1/namespaces/team-a/pods/x-0": error})
    with pytest.raises(ReprieveError, match=said) as raised:
        await text(found, "yaml")
    assert str(raised.value) != "Unauthorized"


async def test_a_foreign_object_answers_as_one_that_is_not_there() -> None:
    found, fake = objects({"/api/v1/namespaces/team-a/pods/x-0": Missing("no")})
    with pytest.raises(NotFound) as missing:
        await text(found, "yaml")
    with pytest.raises(NotFound) as foreign:
        await found.ask("yaml", "pod", "team-b", "x-0", VISIT)
    assert str(foreign.value) == str(missing.value).replace("team-a", "team-b")
    assert len(fake.asked) == 1


@pytest.mark.parametrize(
    ("what", "kind", "name"),
    [("secrets", "pod", "x"), ("yaml", "secret", "x"), ("logs", "job", "x"),
     ("yaml", "pod", "../x"),
     ("yaml", "pod", "-A")],
)  # fmt: skip
async def test_what_is_not_offered_is_refused_before_anything_is_read(
    what: str, kind: str, name: str
) -> None:
    found, fake = objects({})
    with pytest.raises(UsageError):
        await text(found, what, kind, name)
    assert fake.asked == []
