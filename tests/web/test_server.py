"""What the server of the page answers: pages, streams, files, refusals, and its headers."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import gzip
import io
import json
import os
import select
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from kubeworld.units.durations import SECOND
from reprieve.kube.credentials import Connection, Headers
from reprieve.telemetry.connections import Limits
from reprieve.units.errors import UsageError
from reprieve.web.live.differences import begun
from reprieve.web.server.assets import load_assets
from reprieve.web.server.door import Unauthenticated, Visit
from reprieve.web.server.downloads import csv_of, json_of
from reprieve.web.server.explaining import MOST_ROWS, Explanations, RowExplanations
from reprieve.web.server.local import LocalDoor
from reprieve.web.server.planning import Plans, as_viewer, with_kubeconfig
from reprieve.web.tables import Cell, Column, Kind, Page, Table, Viewer
from tests.web.authority import SetClock
from tests.web.reading import Browser
from tests.web.serving import TOKEN, Served, serving
from tests.web.stand_in import StandIn


async def _events(answer: aiohttp.ClientResponse, enough: int) -> bytes:
    """Read so many events of a stream."""
    text = b""
    async with asyncio.timeout(60):
        while text.count(b"\n\n") < enough:
            part = await answer.content.readany()
            if not part:
                break
            text += part
    return text


async def test_a_page_is_a_snapshot_and_its_stream_goes_on_from_there() -> None:
    async with serving(StandIn({"a/x": 1, "b/y": 2})) as served:
        snapshot = await served.json("/api/page/now")
        browser = Browser()
        browser.snapshot(snapshot)
        served.cluster.set("a/z", 4)
        path = f"/api/live?page=now&from={browser.position}"
        async with served.client.get(served.address + path) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            browser.hear(await _events(answer, 1))
            served.cluster.set("a/z", 5)
            browser.hear(await _events(answer, 1))

    assert snapshot["values"] == {"gpus": 3}
    assert browser.values == {"gpus": 8}
    assert browser.snapshots == 1


async def test_a_stream_that_broke_goes_on_by_the_last_event_that_arrived() -> None:
    async with serving(StandIn({"a/x": 1})) as served:
        browser, path = Browser(), served.address + "/api/live?page=now"
        for count in range(2, 6):
            told = {"Last-Event-ID": browser.position} if browser.position else {}
            async with served.client.get(path, headers=told) as answer:
                browser.hear(await _events(answer, 1))
            served.cluster.set("a/x", count)
        async with served.client.get(path, headers={"Last-Event-ID": "e7.3"}) as answer:
            assert b"event: snapshot" in await _events(answer, 1)

    assert browser.snapshots == 1
    assert browser.values == {"gpus": 4}


async def test_streams_and_pages_are_packed_and_each_event_arrives_when_it_is_sent() -> None:
    async with serving(StandIn({f"a/{n}": n for n in range(100)})) as served:
        for path in ("/api/page/now", "/api/live?page=now"):
            async with served.client.get(served.address + path) as answer:
                assert answer.headers["Content-Encoding"] == "gzip"
                assert await answer.content.readany()
            plain = {"Accept-Encoding": "identity"}
            async with served.client.get(served.address + path, headers=plain) as answer:
                assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/api/page/nowhere", 404, "there is no such page"),
        ("/api/nothing", 404, "there is no such page"),
        ("/api/live", 404, "there is no such page"),
        ("/api/live?page=nowhere", 404, "there is no such page"),
        ("/api/download/now/nothing.csv", 404, "there is no such page"),
        ("/assets/main.js", 404, "there is no such page"),
        ("/assets/..%2fmanifest.json", 404, "there is no such page"),
        (
            "/api/page/now?namespace=",
            400,
            "namespace: empty; accepted: the name of a namespace",
        ),
        (
            "/api/page/workload?namespace=a&name=none",
            404,
            "there is no such workload, or you may not see it",
        ),
    ],
)
async def test_what_goes_wrong_is_told_in_a_sentence(path: str, status: int, error: str) -> None:
    async with serving(StandIn({"a/x": 1})) as served:
        assert await served.json(path, status) == {"error": error}


async def test_a_fault_of_ours_is_told_as_one_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(StandIn(fault=ZeroDivisionError("a secret"))) as served:
        answer = await served.json("/api/page/now", 500)

    assert answer == {"error": "a fault of ours; the log of the server has it"}
    assert "a secret" in caplog.text


async def test_a_fault_in_a_page_that_is_watched_ends_no_stream() -> None:
    async with serving(StandIn({"a/x": 1})) as served:
        path = served.address + "/api/live?page=now"
        async with served.client.get(path) as answer:
            await _events(answer, 1)
            served.cluster.fault = ZeroDivisionError()
            served.cluster.set("a/x", 2)
            await asyncio.sleep(0.1)
            served.cluster.fault = None
            served.cluster.set("a/x", 3)
            assert b'"gpus":3' in await _events(answer, 1)


# The door of the dashboard


_EVERYWHERE = (
    "/api/session",
    "/api/page/now",
    "/api/page/nowhere",
    "/api/live?page=now",
    "/api/download/now/holders.csv",
    "/api/download/now/holders.json",
)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer guessed"}, {"Cookie": "a=b"}])
async def test_without_the_token_nothing_is_told(headers: dict[str, str]) -> None:
    async with serving(StandIn({"a/x": 1}), headers=headers) as served:
        for path in _EVERYWHERE:
            answer = await served.json(path, 401)
            assert answer["error"].startswith("open the address that reprieve dashboard printed")
        async with served.client.post(
            served.address + "/api/plan", json={"manifest": "a: b"}, headers={"Origin": "null"}
        ) as answer:
            assert answer.status in (401, 403)


async def test_the_address_that_is_printed_gives_a_cookie_and_hides_the_token() -> None:
    async with serving(StandIn({"a/x": 1}), headers={}) as served:
        address = f"{served.address}/waiting?ns=a&token={TOKEN}"
        async with served.client.get(address, allow_redirects=False) as answer:
            cookie = answer.headers["Set-Cookie"]
            assert (answer.status, answer.headers["Location"]) == (303, "/waiting?ns=a")

        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert (await served.json("/api/page/now"))["values"] == {"gpus": 1}
        async with served.client.post(
            served.address + "/api/logout", headers={"Origin": served.address}
        ) as answer:
            assert answer.status == 200
        await served.json("/api/page/now", 401)


async def test_a_wrong_token_in_the_address_gives_no_cookie_and_leads_nowhere_else() -> None:
    async with serving(StandIn(), headers={}) as served:
        for path in ("/?token=guessed", "//elsewhere.example/?token=guessed"):
            async with served.client.get(served.address + path, allow_redirects=False) as answer:
                assert "Set-Cookie" not in answer.headers
                assert not answer.headers["Location"].startswith("//")


@pytest.mark.parametrize(
    "path",
    [
        "/\\evil.example/",
        "/\\/evil.example",
        "/\t/evil.example",
        "\\\\evil.example",
        "//evil.example",
    ],
)
async def test_no_address_leads_to_another_server(path: str) -> None:
    """As browsers read it: a backslash is a slash, and tabs and newlines are not there."""
    async with serving(StandIn(), headers={}) as served:
        host, port = served.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"GET {path}?token={TOKEN} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    locations = [
        line.partition(b":")[2].strip().decode()
        for line in answer.split(b"\r\n")
        if line.lower().startswith(b"location:")
    ]
    assert b" 303 " in answer.splitlines()[0] or b" 400 " in answer.splitlines()[0]
    for location in locations:
        seen = "".join(each for each in location if each >= " ").replace("\\", "/")
        assert seen.startswith("/") and not seen.startswith("//"), location


async def test_a_head_that_does_not_come_is_waited_for_a_short_time_only() -> None:
    async with serving(StandIn(), headers={}, limits=Limits(most=3, head_s=0.2)) as served:
        host, port = served.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /api/session HTTP/1.1\r\nHost: ")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        # Others are served meanwhile and after that.
        await served.json("/api/session", 401)


async def test_no_more_connections_are_open_than_the_limit() -> None:
    async with serving(StandIn(), headers={}, limits=Limits(most=2)) as served:
        host, port = served.address.removeprefix("http://").split(":")
        kept = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        for reader, writer in kept:
            writer.write(f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            assert b" 200 " in await reader.readline()
        reader, writer = await asyncio.open_connection(host, int(port))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        for _, each in kept:
            each.close()


async def test_the_token_may_be_given_to_the_login_page_too() -> None:
    async with serving(StandIn({"a/x": 1}), headers={}) as served:
        path = served.address + "/api/login"
        async with served.client.post(path, json={"token": "guessed"}) as answer:
            assert answer.status == 401
        async with served.client.post(path, json={"token": TOKEN}) as answer:
            assert answer.status == 200
        assert await served.json("/api/session") == {
            "mode": "dashboard",
            "cluster": "kind-a",
            "viewer": "me",
            "namespaces": None,
            "version": "1.0.0rc1",
            "insecure": False,
            "home": "now",
            "own": [],
        }


async def test_who_reads_a_part_of_the_cluster_begins_with_his_own_work() -> None:
    async with serving(StandIn({"a/x": 1}), part=("team-b", "team-a")) as served:
        session = await served.json("/api/session")
    assert (session["home"], session["own"]) == ("mine", ["team-a", "team-b"])


# Whose requests are answered


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
async def test_a_foreign_name_that_leads_here_is_not_answered(host: str) -> None:
    async with serving(StandIn({"a/x": 1})) as served:
        for path in ("/", *_EVERYWHERE):
            async with served.client.get(served.address + path, headers={"Host": host}) as answer:
                assert answer.status in (400, 421)
                assert "a/x" not in await answer.text()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "[::1]:80", "LOCALHOST"])
async def test_every_name_of_the_loopback_interface_is_answered(host: str) -> None:
    async with serving(StandIn({"a/x": 1})) as served:
        await served.json("/api/page/now", headers={"Host": host})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://127.0.0.1"}, 403),
        ({"Cookie": "reprieve=x"}, 403),
        ({"Origin": "own"}, 401),
        ({}, 401),
    ],
)
@pytest.mark.parametrize("path", ["/api/plan", "/api/login"])
async def test_posts_of_other_origins_are_refused(
    path: str, headers: dict[str, str], status: int
) -> None:
    async with serving(StandIn(), headers={}) as served:
        if headers.get("Origin") == "own":
            headers = {"Origin": served.address}
        body = {"token": "guessed"} if path == "/api/login" else {"manifest": "a: b"}
        async with served.client.post(served.address + path, json=body, headers=headers) as answer:
            assert answer.status == status


async def test_what_another_sites_page_asks_for_is_refused() -> None:
    async with serving(StandIn({"a/x": 1})) as served:
        for site in ("cross-site", "same-site"):  # another port of this host is the same site
            await served.json("/api/page/now", 403, headers={"Sec-Fetch-Site": site})
        await served.json("/api/page/now", 200, headers={"Sec-Fetch-Site": "same-origin"})


async def test_nothing_but_three_posts_is_answered_beside_gets() -> None:
    async with serving(StandIn({"a/x": 1})) as served:
        for method in ("PUT", "PATCH", "DELETE", "POST"):
            for path in ("/", *_EVERYWHERE):
                async with served.client.request(method, served.address + path) as answer:
                    assert answer.status in (404, 405)


async def test_every_answer_has_the_headers_that_browsers_need() -> None:
    async with serving(StandIn({"a/x": 1})) as served:
        for path in ("/", "/waiting", *_EVERYWHERE, "/assets/none.js", "/?token=x"):
            async with served.client.get(served.address + path, allow_redirects=False) as answer:
                assert answer.headers["Content-Security-Policy"].startswith("default-src 'self';")
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                assert answer.headers["Cache-Control"] == "no-store"
                assert answer.headers["Server"] == "reprieve"
                assert "Access-Control-Allow-Origin" not in answer.headers


# Files


def _built(folder: Path) -> Path:
    names = {"index.html": "index.html", "main.js": "main.1234ABCD.js"}
    (folder / "manifest.json").write_text(json.dumps(names))
    for name, text in (("index.html", "<html>"), ("main.1234ABCD.js", "run()" * 200)):
        (folder / name).write_text(text)
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "secret.txt").write_text("not in the manifest")
    return folder


async def test_files_of_the_page_are_kept_for_ever_and_its_addresses_answer_with_it(
    tmp_path: Path,
) -> None:
    async with serving(StandIn(), assets=load_assets(_built(tmp_path)), headers={}) as served:
        get = served.client.get
        async with get(served.address + "/assets/main.1234ABCD.js") as answer:
            assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
            assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
            assert answer.headers["Content-Encoding"] == "gzip"
            assert await answer.text() == "run()" * 200
        for path in ("/", "/waiting?ns=a", "/workload/job/a/x", "/login"):
            async with get(served.address + path) as answer:
                assert (answer.status, await answer.text()) == (200, "<html>")
                assert answer.headers["Cache-Control"] == "no-cache"
                tag = answer.headers["ETag"]
        async with get(served.address + "/", headers={"If-None-Match": tag}) as answer:
            assert answer.status == 304
        for name in ("secret.txt", "index.html", "manifest.json", "%2e%2e%2fsecret.txt"):
            async with get(f"{served.address}/assets/{name}") as answer:
                assert "manifest" not in await answer.text()
                assert answer.status in (404, 503)


async def test_an_installation_without_the_page_says_so(tmp_path: Path) -> None:
    async with serving(StandIn(), assets=load_assets(tmp_path), headers={}) as served:
        path = served.address + "/"
        async with served.client.get(path) as answer:
            assert answer.status == 503
            assert "built without the page" in await answer.text()


# Downloads


async def test_a_download_is_what_is_shown() -> None:
    async with serving(StandIn({"a/x": 1, "b/y": 2})) as served:
        path = served.address + "/api/download/now/holders.csv?namespace=a"
        async with served.client.get(path) as answer:
            assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
            named = answer.headers["Content-Disposition"]
            assert named == 'attachment; filename="reprieve-now-holders.csv"'
            assert await answer.text() == "unit,gpus,since,notes\r\njob/a/x,1,,\r\n"
        rows = await served.json("/api/download/now/holders.json")
        assert rows == [
            {"unit": "job/a/x", "gpus": 1, "since": None, "notes": []},
            {"unit": "job/b/y", "gpus": 2, "since": None, "notes": []},
        ]


def test_no_text_of_a_tenant_is_a_formula_in_a_spreadsheet() -> None:
    texts = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "|x", "a,b", 'a"b', "a\nb", "plain"]
    columns = (Column("text", Kind.TEXT), Column("list", Kind.LIST), Column("n", Kind.NUMBER))
    rows: dict[str, tuple[Cell, ...]] = {
        str(at): (text, [text, "b"], -at) for at, text in enumerate(texts)
    }
    table = begun(Page({}, {"t": Table(columns, rows)})).tables["t"]

    read = list(csv.reader(io.StringIO(csv_of(table).decode(), newline="")))[1:]

    for at, (text, row) in enumerate(zip(texts, read, strict=True)):
        quoted = f"'{text}" if at < 7 else text
        assert row == [quoted, f"{quoted}; b", str(-at)]
    assert json.loads(json_of(table))[0] == {"text": "=1+1", "list": ["=1+1", "b"], "n": 0}


def test_instants_of_a_download_are_absolute() -> None:
    columns = (Column("since", Kind.INSTANT), Column("for", Kind.DURATION), Column("f", Kind.FLAG))
    page = Page({}, {"t": Table(columns, {"u": (1_795_455_000.123, 2.5, True)})})

    assert csv_of(begun(page).tables["t"]).decode().splitlines()[1] == (
        "2026-11-23T17:30:00Z,2.5,true"
    )


# Plans


_ECHO = (
    "import json,sys;print(json.dumps({'arguments': sys.argv[1:], 'manifest': sys.stdin.read()}))"
)


def _plans(program: str, **more: Any) -> Plans:
    return Plans(with_kubeconfig("/k", "c"), (sys.executable, "-c", program))


async def test_a_plan_is_asked_of_the_command_with_the_manifest_on_standard_input() -> None:
    async with serving(StandIn(), plans=_plans(_ECHO)) as served:
        answer = await _ask(served, {"manifest": "kind: Job", "namespace": "a"})

    options = ["--kubeconfig", "/k", "--context", "c"]
    assert answer == (
        200,
        {
            "arguments": ["-f", "-", "-o", "json", "--namespace", "a", *options],
            "manifest": "kind: Job",
        },
    )


async def test_an_explanation_is_asked_of_the_command_with_the_same_rights() -> None:
    explanations = Explanations(with_kubeconfig("/k", "c"), (sys.executable, "-c", _ECHO))
    async with serving(StandIn(), explanations=explanations) as served:
        path = f"{served.address}/api/explain/job/team-a/train"
        async with served.client.get(path) as response:
            answer = await response.json()
    options = ["--kubeconfig", "/k", "--context", "c"]
    assert answer == {
        "arguments": ["job/train", "--namespace", "team-a", "-o", "json", *options],
        "manifest": "",
    }


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [
        ("-f/team-a/x", 400, "accepted: /api/explain/KIND/NAMESPACE/NAME, such as job/team-a/x"),
        ("job/--all/x", 400, "accepted: /api/explain/KIND/NAMESPACE/NAME, such as job/team-a/x"),
        ("preemption/team-a/x", 400, "a preemption has a page of its own"),
        ("job/team-b/x", 404, "no job team-b/x"),
    ],
)
async def test_what_may_not_be_explained_is_asked_of_nobody(
    asked: str, status: int, text: str
) -> None:
    explanations = Explanations(with_kubeconfig(None, None), ("false",))

    class Ann(LocalDoor):
        async def visit(self, request: Any, *, anew: bool = False) -> Visit:
            return Visit("ann", Viewer(False, frozenset({"team-a", "--all"})))

    async with (
        serving(StandIn(), explanations=explanations, door=Ann("", "")) as served,
        served.client.get(f"{served.address}/api/explain/{asked}") as response,
    ):
        assert (response.status, await response.json()) == (status, {"error": text})


_LINES: Final = {"Accept": "application/x-ndjson"}
#: Prints a line, waits for a file, prints the last one.
_STEPS: Final = """
import pathlib, sys, time
folder = pathlib.Path({!r})
(folder / "began").touch()
print('{{"complete": false}}', flush=True)
while not (folder / "go").exists():
    time.sleep(0.01)
print('{{"complete": true}}', flush=True)
sys.exit({})
"""


def _explaining(program: str) -> Explanations:
    return Explanations(with_kubeconfig(None, None), (sys.executable, "-c", program))


@pytest.mark.parametrize(
    ("code", "last"), [(0, []), (1, [{"error": "the explanation could not be made"}])]
)
async def test_an_explanation_comes_in_lines_as_they_are_found(
    code: int, last: list[Any], tmp_path: Path
) -> None:
    explanations = _explaining(_STEPS.format(str(tmp_path), code))
    async with serving(StandIn(), explanations=explanations) as served:
        path = f"{served.address}/api/explain/job/team-a/train"
        async with served.client.get(path, headers=_LINES) as response:
            # The first line is there while the command still works.
            first = await response.content.readline()
            (tmp_path / "go").touch()
            rest = [json.loads(each) async for each in response.content]
    assert json.loads(first) == {"complete": False}
    assert rest == [{"complete": True}, *last]


async def test_what_fails_before_the_first_line_is_answered_as_an_error() -> None:
    program = "import sys; print('Error: no job', file=sys.stderr); sys.exit(2)"
    async with serving(StandIn(), explanations=_explaining(program)) as served:
        path = f"{served.address}/api/explain/job/team-a/train"
        async with served.client.get(path, headers=_LINES) as response:
            assert (response.status, await response.json()) == (400, {"error": "no job"})


def _rows(program: str, clock: SetClock) -> RowExplanations:
    return RowExplanations(with_kubeconfig("/k", None), clock, (sys.executable, "-c", program))


_PRINTED: Final = "import json, sys; print(json.dumps(sys.argv[1:]))"


async def _lines(rows: RowExplanations, *units: str, viewer: Viewer) -> list[Any]:
    return [json.loads(each) async for each in rows.watch(units, Visit("ann", viewer))]


async def test_rows_are_explained_in_one_query_of_what_the_viewer_sees() -> None:
    viewer = Viewer(False, frozenset({"a"}))
    units = ("job/a/x", "job/foreign/y", "pod/a/z")
    answer = await _lines(_rows(_PRINTED, SetClock()), *units, viewer=viewer)
    assert answer == [["job/a/x", "pod/a/z", "-o", "jsonl", "--kubeconfig", "/k"]]


async def test_a_pause_follows_each_query_of_rows_whoever_makes_the_next() -> None:
    clock, everything = SetClock(), Viewer(sees_all=True)
    rows = _rows(_PRINTED, clock)
    first = rows.watch(["job/a/x"], Visit("ann", everything))
    assert b"job/a/x" in await anext(first)
    # It still works, for 2 s so far.
    clock.now += 2 * SECOND
    assert await _lines(rows, "job/a/y", viewer=everything) == [{"again": 1}]
    await first.aclose()

    assert await _lines(rows, "job/a/y", viewer=everything) == [{"again": 18}]
    clock.now += 17 * SECOND
    assert await _lines(rows, "job/a/y", viewer=everything) == [{"again": 1}]
    clock.now += SECOND
    assert len(await _lines(rows, "job/a/y", viewer=everything)) == 1
    assert await _lines(rows, "job/a/y", viewer=everything) == [{"again": 10}]


async def test_a_viewer_who_queries_all_the_time_takes_turns_with_the_others() -> None:
    clock = SetClock()
    rows = _rows(_PRINTED, clock)
    answered: dict[str, int] = {"eager": 0, "ann": 0, "bob": 0}
    due = {"ann": 0, "bob": 0}

    async def query(name: str) -> int:
        visit = Visit(name, Viewer(sees_all=True))
        (found,) = [json.loads(each) async for each in rows.watch(["job/a/x"], visit)]
        answered[name] += isinstance(found, list)
        return 20 if isinstance(found, list) else int(found["again"])

    for second in range(120):
        # Ten times a second, and always before the others.
        for _ in range(10):
            await query("eager")
        for name in due:
            if second >= due[name]:
                due[name] = second + await query(name)
        clock.now += SECOND
    assert answered["eager"] <= 6 and min(answered["ann"], answered["bob"]) >= 3, answered


@pytest.mark.parametrize(
    "units", [(), ("job/x",), ("--all/a/x",), ("job/-n/x",), ("job/a/x",) * (MOST_ROWS + 1)]
)
async def test_rows_that_cannot_be_explained_are_asked_of_nobody(units: tuple[str, ...]) -> None:
    rows = _rows("raise SystemExit(1)", SetClock())
    with pytest.raises(UsageError, match="accepted: 1 to 60 times unit=KIND/NAMESPACE/NAME"):
        await _lines(rows, *units, viewer=Viewer(sees_all=True))


def _ends(process: int) -> bool:
    """Return whether a process of the server ends."""
    try:
        number = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([number], [], [], 20.0)[0])
    finally:
        os.close(number)


@pytest.mark.parametrize("how", ["leaves", "asks again"])
async def test_who_leaves_or_asks_again_ends_the_command(how: str, tmp_path: Path) -> None:
    note = f"import os\nopen({str(tmp_path / 'pid')!r}, 'a').write(f'{{os.getpid()}}\\n')"
    explanations = _explaining(note + _STEPS.format(str(tmp_path), 0))
    async with serving(StandIn(), explanations=explanations) as served:
        path = f"{served.address}/api/explain/job/team-a/train"
        response = await served.client.get(path, headers=_LINES)
        await response.content.readline()
        if how == "leaves":
            response.close()
        else:
            async with served.client.get(path, headers=_LINES) as again:
                await again.content.readline()
                ended = [json.loads(each) async for each in response.content]
                assert ended == [{"error": "another explanation was requested"}]
                (tmp_path / "go").touch()
                assert [json.loads(each) async for each in again.content] == [{"complete": True}]
        first = int((tmp_path / "pid").read_text().split()[0])
        assert await asyncio.to_thread(_ends, first)


async def test_a_plan_that_cannot_be_made_is_told_as_the_command_does() -> None:
    program = "import sys; print('Error: manifest 1: no kind', file=sys.stderr); sys.exit({})"
    async with serving(StandIn(), plans=_plans(program.format(2))) as served:
        assert await _ask(served, {"manifest": "a: b"}) == (400, {"error": "manifest 1: no kind"})
    async with serving(StandIn(), plans=_plans(program.format(1))) as served:
        assert await _ask(served, {"manifest": "a: b"}) == (502, {"error": "manifest 1: no kind"})


@pytest.mark.skipif(sys.platform != "linux", reason="Linux bounds another process's memory")
async def test_a_plan_has_so_much_memory_and_is_the_first_to_go() -> None:
    program = (
        "import json,resource,sys;sys.stdin.read();"
        "adjusted=open('/proc/self/oom_score_adj').read().strip();"
        "print(json.dumps([resource.getrlimit(resource.RLIMIT_DATA),adjusted]))"
    )
    async with serving(StandIn(), plans=_plans(program)) as served:
        assert await _ask(served, {"manifest": "a: b"}) == (200, [[2**31, 2**31], "1000"])

    said = "the plan needs more memory than there is for it here, 2 GiB at most; the command has "
    for ends in ("bytearray(2**31)", "import os; os.kill(os.getpid(), 9)"):
        async with serving(
            StandIn(), plans=_plans(f"import sys;sys.stdin.read();{ends}")
        ) as served:
            answer = await _ask(served, {"manifest": "a: b"})
        assert answer == (502, {"error": f"{said}no such limit"})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"manifest": ""},
        {"manifest": 1},
        {"manifest": "a", "more": 1},
        {"manifest": "x" * 2**20},
    ],
)
async def test_a_question_that_is_none_is_refused(body: dict[str, Any]) -> None:
    async with serving(StandIn(), plans=_plans("raise SystemExit(3)")) as served:
        status, answer = await _ask(served, body)

    assert status == 400
    assert answer["error"].startswith(("body: ", "manifest: "))


async def test_two_plans_are_made_at_a_time_and_more_wait(tmp_path: Path) -> None:
    program = (
        "import os,pathlib,sys,time;"
        f"d=pathlib.Path({str(tmp_path)!r});p=d/str(os.getpid());p.touch();time.sleep(0.3);"
        "n=len(list(d.iterdir()));p.unlink();print(n)"
    )
    async with serving(StandIn(), plans=_plans(program)) as served:
        asked = [_ask(served, {"manifest": "a: b"}) for _ in range(5)]
        answers = await asyncio.gather(*asked)

    assert {status for status, _ in answers} == {200}
    assert max(at_once for _, at_once in answers) == 2


_CONNECTION = Connection("http://api", None, Headers(lambda: "ours"))


async def test_a_viewers_token_is_in_no_argument_and_no_variable_of_a_plan() -> None:
    program = (
        "import json,os,pathlib,stat,sys;path=pathlib.Path(sys.argv[-1]);"
        "print(json.dumps([sys.argv, dict(os.environ), json.loads(path.read_text()),"
        "stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode), str(path)]))"
    )
    plans = Plans(as_viewer(_CONNECTION), (sys.executable, "-c", program))

    class Known(LocalDoor):
        async def visit(self, request: Any, *, anew: bool = False) -> Visit:
            return Visit("ann", Viewer(False), "a-secret-of-ann")

    async with serving(StandIn(), plans=plans, door=Known("", "")) as served:
        status, answer = await _ask(served, {"manifest": "a: b"})

    arguments, variables, kubeconfig, mode, folder_mode, path = answer
    assert status == 200
    assert "a-secret-of-ann" not in json.dumps([arguments, variables])
    assert kubeconfig["users"] == [{"name": "who", "user": {"token": "a-secret-of-ann"}}]
    assert (mode, folder_mode) == (0o600, 0o700)
    assert not await asyncio.to_thread(Path(path).exists)


async def _ask(served: Served, body: dict[str, Any]) -> tuple[int, Any]:
    data, kind = io.BytesIO(json.dumps(body).encode()), {"Content-Type": "application/json"}
    path = served.address + "/api/plan"
    async with served.client.post(path, data=data, headers=kind) as answer:
        return answer.status, await answer.json()


# Rights that are lost


async def test_a_reader_who_loses_the_right_hears_that_and_nothing_else() -> None:
    class Closing(LocalDoor):
        seen = Viewer(True)

        async def visit(self, request: Any, *, anew: bool = False) -> Visit:
            if self.seen == Viewer(False):
                raise Unauthenticated("log in")
            return Visit("ann", self.seen)

    for seen, why in (
        (Viewer(False, frozenset("a")), "your rights have changed: load the page again"),
        (Viewer(False), "log in"),
    ):
        door = Closing("", "")
        async with serving(StandIn({"a/x": 1}), door=door, checked=1 * SECOND) as served:
            path = served.address + "/api/live?page=now"
            async with served.client.get(path) as answer:
                await _events(answer, 1)
                door.seen = seen
                rest = await _events(answer, 10)

        assert rest.split(b"\n\n")[-2].decode() == f'event: ended\ndata: {{"error":"{why}"}}'


async def test_a_stream_of_what_is_no_more_ends() -> None:
    async with serving(StandIn({"a/x": 1})) as served:
        path = "/api/live?page=workload&namespace=a&name=x"
        async with served.client.get(served.address + path) as answer:
            await _events(answer, 1)
            del served.cluster.units["a/x"]
            served.cluster.touched()
            assert b"event: ended" in await _events(answer, 2)
