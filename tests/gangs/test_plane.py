"""Gangs on the embedded cluster: doors, groups, waiting, settings, and many gangs at once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reprieve.api.gangs import KOORDINATOR, SCHEDULER_PLUGINS, Door
from reprieve.kube.resource import NAMESPACES, Resource
from reprieve.planes.common.config_map import CONFIG_MAPS
from reprieve.planes.scheduling.gangs.watches import RESOURCES
from reprieve.settings.coscheduling import CONFIG_MAP, CONFIG_NAMESPACE
from tests.scheduling.site import NAMESPACE, Site, node, pod, priority_class, site

PREFIX = "gang.scheduling.koordinator.sh/"


def member(
    name: str, cpu: int = 3, *, door: Door | None = None, gang: str = "g", **more: Any
) -> Any:
    made = pod(
        name,
        cpu,
        priority=more.pop("priority", "high"),
        scheduler=more.pop("scheduler", "koord-scheduler"),
    )
    metadata = made["metadata"]
    metadata["labels"] = {door.label: gang} if door is not None else {}
    metadata.update(more)
    return made


def pod_group(door: Door, name: str = "g", minimum: int = 2, **metadata: Any) -> dict[str, Any]:
    timeout = metadata.pop("timeout", 300)
    return {
        "apiVersion": door.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
        "spec": {"minMember": minimum, "scheduleTimeoutSeconds": timeout},
    }


async def create_group(cluster: Site, group: dict[str, Any]) -> None:
    await cluster.client.create(RESOURCES[group["apiVersion"]], group, dict)


async def classes(cluster: Site) -> None:
    await cluster.create(priority_class("low", 1000), priority_class("high", 1_000_000))


async def fill(cluster: Site, nodes: int) -> None:
    await classes(cluster)
    names = {f"lp-{number}" for number in range(nodes)}
    await cluster.create(*(member(name, 4, priority="low") for name in sorted(names)))
    await cluster.until_placed(names)


async def configure(cluster: Site, **arguments: Any) -> None:
    lines = "".join(
        f"\n        {key}: {str(value).lower() if isinstance(value, bool) else value}"
        for key, value in arguments.items()
    )
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- schedulerName: koord-scheduler\n  pluginConfig:\n  - name: Coscheduling\n"
        f"    args:\n        kind: CoschedulingArgs{lines}\n"
    )
    body = {
        "metadata": {"name": CONFIG_MAP, "namespace": CONFIG_NAMESPACE},
        "data": {CONFIG_MAP: text},
    }
    try:
        await cluster.client.create(NAMESPACES, {"metadata": {"name": CONFIG_NAMESPACE}}, dict)
        await cluster.client.create(CONFIG_MAPS, body, dict)
    except Exception:
        await cluster.client.patch(
            CONFIG_MAPS, CONFIG_NAMESPACE, CONFIG_MAP, {"data": body["data"]}, dict
        )


@pytest.mark.parametrize("door", [KOORDINATOR, SCHEDULER_PLUGINS], ids=["koordinator", "plugins"])
@pytest.mark.parametrize("scheduler", ["koord-scheduler", "default-scheduler"])
async def test_both_doors_preempt_under_any_served_name(
    tmp_path: Path, door: Door, scheduler: str
) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await cluster.operator(names=("koord-scheduler", "default-scheduler"))
        await fill(cluster, 2)
        await create_group(cluster, pod_group(door))
        await cluster.create(
            *(member(name, door=door, scheduler=scheduler) for name in ("hp-1", "hp-2"))
        )
        assert await cluster.until_victims(2) == {"lp-0", "lp-1"}
        await cluster.end()
        await cluster.until_placed({"hp-1", "hp-2"})
        await cluster.run()
        resource = RESOURCES[door.api_version]

        async def running() -> bool:
            found: dict[str, Any] = await cluster.client.get(resource, NAMESPACE, "g", dict)
            return (found.get("status") or {}).get("phase") == "Running"

        await cluster.until("the PodGroup runs", running)


async def test_a_dry_run_records_whom_a_gang_would_evict_and_evicts_nobody(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        operator = await cluster.operator(names=("koord-scheduler",))
        await fill(cluster, 2)
        await operator.stop()
        await cluster.operator("--dry-run", names=("koord-scheduler",))
        await create_group(cluster, pod_group(KOORDINATOR))
        await cluster.create(*(member(name, door=KOORDINATOR) for name in ("hp-1", "hp-2")))

        async def recorded() -> bool:
            return bool(await cluster.intents())

        await cluster.until("a record of what would be done", recorded)
        (intent,) = await cluster.intents()
        assert intent["spec"]["dryRun"]
        assert {each["root"]["name"] for each in intent["spec"]["victims"]} == {"lp-0", "lp-1"}
        assert not await cluster.victims()


async def test_a_gang_by_annotations_and_its_partner_are_placed_together(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await cluster.operator(names=("koord-scheduler",))
        await classes(cluster)
        both = f'["{NAMESPACE}/one", "{NAMESPACE}/two"]'
        said = {f"{PREFIX}name": "one", f"{PREFIX}min-available": "1", f"{PREFIX}groups": both}
        await cluster.create(member("one-0", annotations=said))

        async def early() -> bool:
            return bool(await cluster.placed())

        await cluster.never("half of the group is placed", early, 1.5)
        await create_group(
            cluster, pod_group(KOORDINATOR, "two", 1, annotations={f"{PREFIX}groups": both})
        )
        await cluster.create(member("two-0", door=KOORDINATOR, gang="two"))
        await cluster.until_placed({"one-0", "two-0"})


async def test_members_in_permit_give_their_nodes_back_when_their_time_is_over(
    tmp_path: Path,
) -> None:
    async with site([node("a", 4)], tmp_path) as cluster:
        await cluster.operator(names=("koord-scheduler",))
        await classes(cluster)
        await configure(cluster, enablePreemption=False)
        await create_group(
            cluster,
            pod_group(KOORDINATOR, "g", 2, timeout=2, annotations={f"{PREFIX}mode": "NonStrict"}),
        )
        # One fits and waits for the other, which does not; so nobody else gets the node meanwhile.
        await cluster.create(*(member(name, door=KOORDINATOR) for name in ("hp-1", "hp-2")))

        async def told() -> bool:
            return any("in Unreserve" in str(each.get("note")) for each in await _series(cluster))

        await cluster.until("the time in Permit is over", told)
        assert await cluster.placed() == {}


async def _series(cluster: Site) -> list[dict[str, Any]]:

    events = Resource("events.k8s.io", "v1", "events", "Event")
    return (await cluster.client.list(events, dict)).items


async def test_settings_are_live_and_a_bad_value_changes_nothing(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await configure(cluster, enablePreemption=False)
        await cluster.operator(names=("koord-scheduler",))
        await fill(cluster, 2)
        await create_group(cluster, pod_group(KOORDINATOR))
        await cluster.create(*(member(name, door=KOORDINATOR) for name in ("hp-1", "hp-2")))

        async def disturbed() -> bool:
            return bool(await cluster.victims())

        await cluster.never("a victim although preemption is off", disturbed, 2)
        await configure(cluster, enablePreemption="sometimes")

        async def refused() -> bool:
            notes = [str(each.get("note")) for each in await _series(cluster)]
            return any("enablePreemption: 'sometimes'; accepted: true or false" in n for n in notes)

        await cluster.until("the bad value is told", refused)
        assert await cluster.victims() == set()
        await configure(cluster, enablePreemption=True)
        assert await cluster.until_victims(2) == {"lp-0", "lp-1"}

        async def told() -> bool:
            notes = [str(each.get("note")) for each in await _series(cluster)]
            return "enablePreemption: false -> true" in notes

        await cluster.until("the change is told", told)


async def test_a_restart_goes_on_where_the_last_process_was(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await configure(cluster, enablePreemption=True, defaultTimeout="30s")
        first = await cluster.operator(names=("koord-scheduler",))
        await fill(cluster, 2)
        await create_group(cluster, pod_group(KOORDINATOR))
        await cluster.create(*(member(name, door=KOORDINATOR) for name in ("hp-1", "hp-2")))
        await cluster.until_victims(2)
        await first.stop()
        await cluster.operator(names=("koord-scheduler",))
        await cluster.end()
        await cluster.until_placed({"hp-1", "hp-2"})
        assert set(cluster.deleted.values()) == {1}
        assert not [e for e in await _series(cluster) if e["reason"] == "ConfigurationChanged"]


async def test_gangs_and_what_happened_to_them_are_shown_over_http(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await cluster.operator(names=("koord-scheduler",))
        await fill(cluster, 2)
        await create_group(cluster, pod_group(KOORDINATOR))
        await cluster.create(*(member(name, door=KOORDINATOR) for name in ("hp-1", "hp-2")))
        await cluster.until_victims(2)
        lines = [line for line in cluster.lines if "telemetry on port" in line]
        root = f"http://127.0.0.1:{lines[0].split()[-1]}"
        base = f"{root}/apis/v1/plugins/Coscheduling"
        async with aiohttp.ClientSession() as web:

            async def get(url: str) -> tuple[int, str]:
                async with web.get(url) as answer:
                    return answer.status, await answer.text()

            code, text = await get(f"{base}/gang/{NAMESPACE}/g")
            gang = json.loads(text)
            assert code == 200
            assert (gang["name"], gang["minRequiredNumber"]) == (f"{NAMESPACE}/g", 2)
            assert (gang["mode"], gang["waitTime"]) == ("Strict", 300 * 10**9)
            assert set(gang["pendingChildren"]) == {f"{NAMESPACE}/hp-1", f"{NAMESPACE}/hp-2"}
            assert list(json.loads((await get(f"{base}/gangs"))[1])) == [f"{NAMESPACE}/g"]
            missing = await get(f"{base}/gang/{NAMESPACE}/other")
            assert missing == (404, f"cannot find gang {NAMESPACE}/other")
            await cluster.end()
            await cluster.until_placed({"hp-1", "hp-2"})

            async def over() -> bool:
                found = json.loads((await get(f"{base}/audit/{NAMESPACE}/g"))[1])
                kinds = [each["type"] for each in found["records"]]
                return {"preemptVictimDeleting", "preemptNominated", "victimAllDeleted"} <= set(
                    kinds
                ) and kinds[-1] in ("scheduled", "victimAllDeleted")

            await cluster.until("all is on record", over)
            wanted = (
                'scheduler_job_preemption_duration_seconds_count{jobName="other"',
                'reason="gang is already succeed"',
                "scheduler_preemption_victims_sum 2.0",
            )

            async def counted() -> bool:
                metrics = (await get(f"{root}/metrics"))[1]
                assert f"{NAMESPACE}/" not in metrics, "a tenant's name"
                return all(text in metrics for text in wanted)

            await cluster.until("all is counted", counted)


async def test_a_member_of_a_gang_never_preempts_alone(tmp_path: Path) -> None:
    async with site([node("a", 4), node("b", 4)], tmp_path) as cluster:
        await cluster.operator(names=("default-scheduler",))
        await classes(cluster)
        await cluster.create(
            member("lp-0", 4, priority="low", scheduler="default-scheduler"),
            member("stays", 4, scheduler="default-scheduler"),
        )
        await cluster.until_placed({"lp-0", "stays"})
        await create_group(cluster, pod_group(KOORDINATOR))
        await cluster.create(
            *(
                member(name, door=KOORDINATOR, scheduler="default-scheduler")
                for name in ("hp-1", "hp-2")
            )
        )

        async def disturbed() -> bool:
            return bool(await cluster.victims())

        await cluster.never("a victim for half a gang", disturbed, 3)


@pytest.mark.parametrize(
    ("gangs", "size", "machines"),
    [(20, 4, 10), pytest.param(200, 8, 100, marks=pytest.mark.slow)],
    ids=["few", "many"],
)
async def test_many_gangs_whose_victims_come_back_settle(
    tmp_path: Path, gangs: int, size: int, machines: int
) -> None:
    """Jobs make their pods again; nothing is preempted twice for the same gang, and it ends."""
    cpu = 2 * gangs * size // 2 // machines
    nodes = [node(f"n{number:03}", cpu) for number in range(machines)]
    async with site(nodes, tmp_path, kubelet=True) as cluster:
        await cluster.operator(names=("koord-scheduler",))
        await classes(cluster)

        async def run(numbers: range, *, high: bool) -> None:
            for number in numbers:
                await create_group(cluster, pod_group(KOORDINATOR, f"gang-{number}", size))
                await cluster.client.create(_JOBS, _job(number, size, high=high), dict)

            async def settled() -> bool:
                pods = (await cluster.pods()).items()
                own = [each for name, each in pods if int(name.split("-")[1]) in numbers]
                return len(own) == size * len(numbers) and all(
                    each["spec"].get("nodeName") and not each["metadata"].get("deletionTimestamp")
                    for each in own
                )

            for _ in range(300 + 5 * gangs):
                if await settled():
                    return
                await asyncio.sleep(0.2)
            raise AssertionError("\n".join(cluster.lines[-20:]))

        await run(range(gangs // 2), high=False)
        await run(range(gangs // 2, gangs), high=True)
        before = sum(cluster.deleted.values())
        assert before == size * gangs // 2
        await asyncio.sleep(3)
        assert sum(cluster.deleted.values()) == before
        pairs = Counter(
            # Pods of Indexed Jobs are called JOB-INDEX-RANDOM.
            (intent["spec"]["preemptor"]["name"].split("-")[1], *_index(victim["root"]["name"]))
            for intent in await cluster.intents()
            for victim in intent["spec"]["victims"]
        )
        assert all(count == 1 for count in pairs.values())


def _index(pod_name: str) -> tuple[str, str]:
    _, job, index, _ = pod_name.split("-")
    return job, index


_JOBS = Resource("batch", "v1", "jobs", "Job")


def _job(number: int, size: int, *, high: bool) -> dict[str, Any]:
    priority = "high" if high else "low"
    made = member("x", 2, door=KOORDINATOR, gang=f"gang-{number}", priority=priority)
    spec = {**made["spec"], "restartPolicy": "Never"}
    return {
        "metadata": {"name": f"job-{number}", "namespace": NAMESPACE},
        "spec": {
            "parallelism": size,
            "completions": size,
            "completionMode": "Indexed",
            "backoffLimit": 100_000,
            "template": {"metadata": {"labels": made["metadata"]["labels"]}, "spec": spec},
        },
    }
