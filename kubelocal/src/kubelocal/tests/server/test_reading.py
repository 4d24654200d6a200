"""Lists, pages, selectors and watches: order, resumption and compacted history."""

from __future__ import annotations

import asyncio
import json

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.server.builders import CONFIG_MAPS, PODS, Client, config_map, pod, seen


async def names(client: Client, path: str, **query: str) -> list[str]:
    return [one["metadata"]["name"] for one in (await client.get(path, **query))["items"]]


async def test_pages_show_the_state_of_their_first_page(client: Client) -> None:
    for name in "abcde":
        await client.create(CONFIG_MAPS, config_map(name))
    first = await client.get(CONFIG_MAPS, limit="2")
    await client.request("DELETE", f"{CONFIG_MAPS}/d")
    await client.create(CONFIG_MAPS, config_map("bb"))
    second = await client.get(CONFIG_MAPS, limit="2", **{"continue": first["metadata"]["continue"]})
    third = await client.get(CONFIG_MAPS, limit="2", **{"continue": second["metadata"]["continue"]})

    pages = [[one["metadata"]["name"] for one in page["items"]] for page in (first, second, third)]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert first["metadata"]["remainingItemCount"] == 3
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert "continue" not in third["metadata"]


async def test_a_page_of_forgotten_history_is_gone_with_a_way_on(
    client: Client, cluster: EmbeddedCluster
) -> None:
    for name in "abc":
        await client.create(CONFIG_MAPS, config_map(name))
    first = await client.get(CONFIG_MAPS, limit="1")
    await client.create(CONFIG_MAPS, config_map("bb"))
    cluster.compact()
    token = {"continue": first["metadata"]["continue"]}
    code, status = await client.request("GET", CONFIG_MAPS, limit="1", **token)
    rest = await names(client, CONFIG_MAPS, **{"continue": status["metadata"]["continue"]})

    assert (code, status["reason"]) == (410, "Expired")
    assert rest == ["b", "bb", "c"]


async def test_an_exact_version_lists_the_past(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a", x="1"))
    await client.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "2"}})
    version = created["metadata"]["resourceVersion"]
    past = await client.get(CONFIG_MAPS, resourceVersion=version, resourceVersionMatch="Exact")
    code, status = await client.request("GET", CONFIG_MAPS, resourceVersion="99999")

    assert past["items"][0]["data"] == {"x": "1"}
    assert (code, status["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=a", ["one"]),
        ("app==a,tier", ["one"]),
        ("app!=a", ["three", "two"]),
        ("app in (a,b)", ["one", "two"]),
        ("app notin (a)", ["three", "two"]),
        ("!app", ["three"]),
        ("tier", ["one", "two"]),
        ("tier>4", ["two"]),
        ("tier=", []),
    ],
)
async def test_label_selectors(client: Client, selector: str, expected: list[str]) -> None:
    await client.create(PODS, pod("one", {"app": "a", "tier": "3"}))
    await client.create(PODS, pod("two", {"app": "b", "tier": "5"}))
    await client.create(PODS, pod("three"))

    assert await names(client, PODS, labelSelector=selector) == expected


@pytest.mark.parametrize("selector", ["app in a", "=a", "a=b=c", "app in (a", "a,,b", "a b"])
async def test_what_is_no_label_selector_is_a_bad_request(client: Client, selector: str) -> None:
    code, status = await client.request("GET", PODS, labelSelector=selector)

    assert (code, status["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a ! b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        (
            "a>x",
            (
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' "
                "operators, the value must be an integer"
            ),
        ),
        (
            "/a=b",
            (
                'unable to parse requirement: <nil>: Invalid value: "/a": '
                "prefix part must be non-empty"
            ),
        ),
    ],
)
async def test_a_bad_label_selector_is_named_as_a_real_server_does(
    client: Client, selector: str, message: str
) -> None:
    code, status = await client.request("GET", PODS, labelSelector=selector)
    assert (code, status["message"]) == (400, message)


@pytest.mark.parametrize(
    "selector", ["a in ()", "a in (,b)", "a in (b,)", "in in (in)", "!a", "a", "a,", "a=-"]
)
async def test_label_selectors_that_a_real_server_takes_and_refuses(
    client: Client, selector: str
) -> None:
    code, _ = await client.request("GET", PODS, labelSelector=selector)
    assert code == (400 if selector in ("a,", "a=-") else 200)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("metadata.name=a\\b", "invalid field selector: invalid escape sequence: \\b"),
        ("spec.b=1,spec.a=1", "field label not supported: spec.a"),
    ],
)
async def test_a_bad_field_selector_is_named_as_a_real_server_does(
    client: Client, selector: str, message: str
) -> None:
    code, status = await client.request("GET", PODS, fieldSelector=selector)
    assert (code, status["message"]) == (400, message)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"limit": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            {"limit": "9223372036854775808"},
            'strconv.ParseInt: parsing "9223372036854775808": value out of range',
        ),
        (
            {"watch": "1", "timeoutSeconds": "1.5"},
            'strconv.ParseInt: parsing "1.5": invalid syntax',
        ),
    ],
)
async def test_numbers_of_a_query_are_whole(
    client: Client, query: dict[str, str], message: str
) -> None:
    code, status = await client.request("GET", PODS, **query)
    assert (code, status["message"]) == (400, message)


async def test_field_selectors_ask_for_what_the_kind_offers(client: Client) -> None:
    await client.create(PODS, pod("a", nodeName="n1"))
    await client.create(PODS, pod("b"))
    code, status = await client.request("GET", PODS, fieldSelector="spec.nosuch=1")

    assert await names(client, PODS, fieldSelector="spec.nodeName=n1") == ["a"]
    assert await names(client, PODS, fieldSelector="spec.nodeName=") == ["b"]
    assert await names(client, PODS, fieldSelector="metadata.name!=a,status.phase=Pending") == ["b"]
    assert (code, status["message"]) == (400, "field label not supported: spec.nosuch")


async def test_a_watch_resumes_after_its_version_without_gap_or_repeat(client: Client) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a"))
    await client.create(CONFIG_MAPS, config_map("b"))
    await client.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
    await client.request("DELETE", f"{CONFIG_MAPS}/b")
    stream = await client.watch(CONFIG_MAPS, resourceVersion=first["metadata"]["resourceVersion"])
    events = await stream.take(3)
    await client.create(CONFIG_MAPS, config_map("c"))
    events += await stream.take(1)
    stream.close()

    assert seen(events) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "c")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


async def test_a_watch_without_version_starts_with_what_exists(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    stream = await client.watch(CONFIG_MAPS)
    events = await stream.take(1)
    await client.create(CONFIG_MAPS, config_map("b"))
    events += await stream.take(1)
    stream.close()

    assert seen(events) == [("ADDED", "a"), ("ADDED", "b")]


async def test_initial_events_end_with_an_annotated_bookmark(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    listed = await client.get(CONFIG_MAPS)
    stream = await client.watch(
        CONFIG_MAPS,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    events = await stream.take(2)
    await client.create(CONFIG_MAPS, config_map("b"))
    events += await stream.take(1)
    stream.close()

    assert seen(events) == [("ADDED", "a"), ("BOOKMARK", ""), ("ADDED", "b")]
    end = events[1]["object"]["metadata"]
    assert end["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert end["resourceVersion"] == listed["metadata"]["resourceVersion"]


async def test_initial_events_need_the_match_that_the_protocol_asks_for(client: Client) -> None:
    code, status = await client.request("GET", CONFIG_MAPS, watch="true", sendInitialEvents="true")

    assert (code, status["reason"]) == (422, "Invalid")


async def test_objects_enter_and_leave_a_watch_with_their_labels(client: Client) -> None:
    await client.create(PODS, pod("a"))
    version = (await client.get(PODS))["metadata"]["resourceVersion"]
    stream = await client.watch(PODS, resourceVersion=version, labelSelector="app=x")
    for value in ("x", "y"):
        await client.merge(f"{PODS}/a", {"metadata": {"labels": {"app": value}}})
    events = await stream.take(2)
    stream.close()

    assert seen(events) == [("ADDED", "a"), ("DELETED", "a")]


async def test_a_watch_from_forgotten_history_is_gone(
    client: Client, cluster: EmbeddedCluster
) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a"))
    await client.create(CONFIG_MAPS, config_map("b"))
    cluster.compact()
    version = first["metadata"]["resourceVersion"]
    code, status = await client.request("GET", CONFIG_MAPS, watch="true", resourceVersion=version)

    assert (code, status["reason"]) == (410, "Expired")
    assert status["message"].startswith(f"too old resource version: {version} (")


async def test_a_watch_ends_after_its_timeout_with_a_bookmark(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    stream = await client.watch(
        CONFIG_MAPS, resourceVersion=version, timeoutSeconds="1", allowWatchBookmarks="true"
    )
    events = await stream.rest()

    assert seen(events) == [("BOOKMARK", "")]
    assert events[0]["object"]["metadata"]["resourceVersion"] == version


async def test_all_watchers_see_all_writes_in_one_order(client: Client) -> None:
    streams = [await client.watch(CONFIG_MAPS, resourceVersion="0") for _ in range(3)]
    await asyncio.gather(
        *(client.create(CONFIG_MAPS, config_map(f"c{index:02}")) for index in range(40))
    )
    received = [seen(await stream.take(40)) for stream in streams]
    for stream in streams:
        stream.close()

    assert received[0] == received[1] == received[2]
    assert sorted(received[0]) == [("ADDED", f"c{index:02}") for index in range(40)]


async def test_tables_and_metadata_are_answered_where_asked_for(client: Client) -> None:
    await client.create(PODS, pod("a"))
    _, table = await client.request(
        "GET", PODS, accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    )
    _, partial = await client.request(
        "GET",
        PODS,
        accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    )
    code, status = await client.request("GET", PODS, accept="text/html")

    assert (table["kind"], table["rows"][0]["cells"][0]) == ("Table", "a")
    assert partial["kind"] == "PartialObjectMetadataList"
    assert sorted(partial["items"][0]) == ["apiVersion", "kind", "metadata"]
    assert (code, status["reason"]) == (406, "NotAcceptable")


async def test_a_bookmark_keeps_an_idle_watch_up_to_date(client: Client) -> None:
    version = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    stream = await client.watch(
        CONFIG_MAPS, resourceVersion=version, timeoutSeconds="1", allowWatchBookmarks="true"
    )
    other = await client.create(PODS, pod("a"))
    events = await stream.rest()

    assert seen(events) == [("BOOKMARK", "")]
    bookmark = events[0]["object"]["metadata"]["resourceVersion"]
    assert bookmark == other["metadata"]["resourceVersion"]


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 65])
async def test_a_list_of_any_length_is_whole(client: Client, count: int) -> None:
    """Lists are sent piece by piece; what joins the pieces must neither be missing nor doubled."""
    for number in range(count):
        await client.create(CONFIG_MAPS, config_map(f"m{number:02}", number=str(number)))
    headers = {"Accept": "application/json"}
    async with client.session.get(CONFIG_MAPS, headers=headers) as response:
        text = await response.read()
    assert int(response.headers["Content-Length"]) == len(text)
    found = json.loads(text)
    assert [one["data"]["number"] for one in found["items"]] == [str(n) for n in range(count)]
    assert not {"apiVersion", "kind"} & {key for one in found["items"] for key in one}
    partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    _, body = await client.request("GET", CONFIG_MAPS, accept=partial)
    assert [one["metadata"]["name"] for one in body["items"]] == [
        f"m{number:02}" for number in range(count)
    ]
