"""`plan`, `explain` and `snapshot` on a real API server: its audit says that they write nothing.

They are asked for by somebody who may do everything, so that no right keeps them from it, and by a
tenant with the role `view` in his namespace.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from tests.integration.control_plane import Binaries
from tests.integration.settled_story import (
    ASKER,
    OTHERS,
    TEAM,
    TENANT,
    Story,
    gang,
    job,
    settled_story,
)
from tests.integration.site import CONFIG_MAPS

SCHEDULING = ("--controllers", "scheduling")


@pytest.fixture(scope="module")
def story(
    with_pod_groups: Binaries, controllers: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    assert with_pod_groups == controllers
    with settled_story(controllers, tmp_path_factory.mktemp("story")) as told:
        yield told


def test_a_plan_of_a_gang_names_its_victims_and_writes_nothing(story: Story) -> None:
    before = story.held()
    work = story.manifests(*gang("urgent", 2, 2, "highest"))
    said = story.ask(ASKER, "plan", "-f", work, *SCHEDULING, "-o", "json", "--detailed-exitcode")
    assert (said.code, said.complaint) == (10, "")
    answer = json.loads(said.text)
    victims = {(each["namespace"], each["name"]) for each in answer["victims"]}
    assert victims == {(OTHERS, "model-0"), (OTHERS, "model-1")}
    placed = {each["pod"]: each["node"] for each in answer["placement"]}
    assert placed == {"urgent-0": "large", "urgent-1": "large"}
    assert (said.writes, said.dry_runs) == ([], 3)
    assert story.held() == before


@pytest.mark.parametrize("kind", ["Job", "PodGroup"])
def test_a_plan_of_what_waits_has_a_fix_that_holds_and_writes_nothing(
    story: Story, kind: str
) -> None:
    def submitted(priority: str) -> str:
        if kind == "Job":
            return story.manifests(job("more", 2, 2, priority))
        return story.manifests(*gang("more", 2, 2, priority))

    before = story.held()
    said = story.ask(ASKER, "plan", "-f", submitted("low"), *SCHEDULING, "-o", "json")
    assert (said.code, said.complaint, said.writes) == (0, "", [])
    answer = json.loads(said.text)
    assert (answer["verdict"], answer["reason"]) == ("Waits", "Full")
    (fix, *_) = answer["fixes"]
    assert (fix["field"], fix["before"], fix["after"]) == ("priorityClassName", "low", "highest")
    with_fix = story.ask(ASKER, "plan", "-f", submitted("highest"), *SCHEDULING, "-o", "json")
    assert json.loads(with_fix.text)["verdict"] == "StartsWithVictims"
    assert with_fix.writes == []
    assert story.held() == before


def test_explain_and_snapshot_write_nothing_and_tell_the_same(story: Story) -> None:
    before = story.held()
    of_cluster = story.ask(ASKER, "explain", "job/sweep", "-n", TEAM, "-o", "json")
    file = str(story.folder / "cluster.snapshot")
    stored = story.ask(ASKER, "snapshot", "-o", file)
    of_file = story.ask(ASKER, "explain", "job/sweep", "-n", TEAM, "-o", "json", "--from", file)
    answers = [json.loads(each.text) for each in (of_cluster, of_file)]
    for each in answers:
        assert (each["state"], each["waiting"]["reason"]) == ("Waits", "Full")
        assert "limits" not in each
    assert answers[0]["displaced"] == answers[1]["displaced"] != []
    assert of_cluster.requests != [] and stored.requests != [] and of_file.requests == []
    assert [of_cluster.writes, stored.writes, story.held()] == [[], [], before]


def test_a_tenant_with_view_alone_is_told_his_whole_story_and_nothing_of_others(
    story: Story,
) -> None:
    before = story.held()
    said = story.ask(TENANT, "explain", "job/sweep", "-n", TEAM)
    assert (said.code, said.complaint, said.writes) == (0, "", [])
    first, *_ = said.text.splitlines()
    assert first == "Stated from what you may read; you may not list 1 namespace and 14 kinds."
    # What he cannot see is not taken for nothing: his pods say why they wait.
    told = " ".join(said.text.split())
    assert "Job team/sweep waits again: the nodes that it accepts are full" in told
    assert "for another tenant's work #" in told
    assert "It cannot be decided anew without nodes, which you may not list." in told
    assert "You may not list nodes, " in told
    for hidden in (OTHERS, "model", "large", "small"):
        assert hidden not in said.text, hidden
    assert story.held() == before


def test_a_tenant_is_refused_a_plan_about_nodes_that_he_cannot_see(story: Story) -> None:
    work = story.manifests(job("more", 1, 1, "low"))
    said = story.ask(TENANT, "plan", "-f", work, "-n", TEAM, "--without-server", *SCHEDULING)
    assert (said.code, said.text, said.writes) == (2, "", [])
    assert said.complaint.count("\n") == 1
    assert "it cannot be decided without nodes, which you may not list" in said.complaint


def test_a_plan_of_what_one_may_not_create_ends_with_one_line_and_code_2(story: Story) -> None:
    said = story.ask(TENANT, "plan", "-f", story.manifests(job("more", 1, 1, "low")), "-n", TEAM)
    assert (said.code, said.text, said.writes) == (2, "", [])
    assert said.complaint.count("\n") == 1
    assert 'cannot create resource "jobs"' in said.complaint


def test_a_tenant_may_store_and_ask_what_he_sees(story: Story) -> None:
    file = str(story.folder / "tenant.snapshot")
    stored = story.ask(TENANT, "snapshot", "-n", TEAM, "-o", file)
    assert (stored.code, stored.writes) == (0, [])
    said = story.ask(TENANT, "explain", "job/sweep", "-n", TEAM, "--from", file)
    assert said.text.startswith("Stated from what you may read; you may not list 1 namespace and ")
    assert OTHERS not in said.text


def test_the_audit_would_have_told_of_a_write(story: Story) -> None:
    async def create() -> None:
        connection = await load_connection(str(story.kubeconfig(ASKER)))
        client = connect(connection, SystemClock(), field_manager="tests")
        try:
            written = {"metadata": {"name": "written", "namespace": TEAM}}
            await client.create(CONFIG_MAPS, written, dict)
        finally:
            await client.close()

    writes = story.observed(ASKER, lambda: asyncio.run(create()))
    assert [each.partition("?")[0] for each in writes] == [
        f"create /api/v1/namespaces/{TEAM}/configmaps"
    ]
