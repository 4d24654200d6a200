"""Commands find the operator wherever a chart installed it, and never take another one for it."""

from __future__ import annotations

import asyncio
import datetime
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from kubelocal.cluster import EmbeddedCluster
from kubelocal.server.rights.identity import ADMINISTRATOR
from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import HOUR, SECOND
from reprieve.engine.harm_budgets.budget import HarmSide
from reprieve.engine.harm_budgets.sums import Amount, Key
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.own_objects import DEPLOYMENTS, PART_OF
from reprieve.kube.resource import CONFIG_MAPS, NAMESPACES
from reprieve.records.harm_sums import HARM_LABEL, MONTH, part_data, part_name
from reprieve.scenarios import with_parent
from tests.web.reading import Browser

VARIABLE = "GPU_PREEMPTION_OPERATOR_NAMESPACE"


@dataclass
class Installed:
    """A cluster in whose namespaces operators are installed."""

    cluster: EmbeddedCluster
    client: Client
    kubeconfig: Path

    async def install(self, namespace: str) -> None:
        """Create the namespace with an operator's Deployment of no replicas."""
        await self.client.create(NAMESPACES, {"metadata": {"name": namespace}}, dict)
        container = {"name": "c", "image": "registry.example/reprieve:1", "args": ["run"]}
        labels = {"app": "reprieve"}
        deployment = {
            "metadata": {
                "name": "reprieve",
                "namespace": namespace,
                "labels": {PART_OF: "reprieve"},
            },
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
        await self.client.create(DEPLOYMENTS, deployment, dict)

    async def asked(self, *words: str, variable: str | None = None) -> tuple[int, str, str]:
        """Return exit code, output and complaint of a command of Reprieve."""
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "reprieve",
            *words,
            env={
                **environment,
                "KUBECONFIG": str(self.kubeconfig),
                **({VARIABLE: variable} if variable else {}),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complaint = await process.communicate()
        return process.returncode or 0, said.decode(), complaint.decode()


@pytest.fixture
async def installed(tmp_path: Path) -> AsyncIterator[Installed]:
    async with EmbeddedCluster() as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        clock = SystemClock()
        client = connect(await load_connection(str(tmp_path / "kubeconfig")), clock)
        yield Installed(cluster, client, tmp_path / "kubeconfig")
        await client.close()


SCALED = "deployment {}/reprieve would be scaled to 0"


async def test_uninstall_stops_the_operator_where_it_is_and_chooses_none_of_two(
    installed: Installed,
) -> None:
    code, said, complaint = await installed.asked("uninstall", "--dry-run")
    assert (code, said) == (0, "")
    assert complaint == "no Deployment of the operator; its lease is sought in kaiwo-system\n"
    await installed.install("reprieve")
    code, said, complaint = await installed.asked("uninstall", "--dry-run")
    assert (code, said.splitlines()[0], complaint) == (0, SCALED.format("reprieve"), "")
    await installed.install("other")
    code, said, complaint = await installed.asked("uninstall", "--dry-run")
    assert (code, said) == (2, "")
    assert complaint == (
        "Error: operators are installed in namespaces other, reprieve; "
        "accepted: one of them by --operator-namespace\n"
    )
    for named in (
        await installed.asked("uninstall", "--dry-run", "--operator-namespace", "other"),
        await installed.asked("uninstall", "--dry-run", variable="other"),
    ):
        assert (named[0], named[1].splitlines()[0]) == (0, SCALED.format("other"))


def sums(namespace: str) -> dict[str, Any]:
    """Return one displacement of `batch` for `urgent` this hour, as the operator stores it."""
    now = SystemClock().wall()
    month = datetime.datetime.fromtimestamp(now // SECOND, datetime.UTC).strftime("%Y-%m")
    batch, urgent = HarmSide("batch", "", 0, ""), HarmSide("urgent", "", 1, "")
    key = Key(now // HOUR, batch, urgent, "idle", "idle")
    return {
        "metadata": {
            "name": part_name(month, 0),
            "namespace": namespace,
            "labels": {HARM_LABEL: "sums", MONTH: month},
        },
        "binaryData": part_data([(key, Amount(1, 7200, now, 0, 0))], []),
    }


@asynccontextmanager
async def page(installed: Installed) -> AsyncIterator[Mapping[int, list[Any]]]:
    """Give who paid for whom, as the dashboard's page shows it once a row is there."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    process = await asyncio.create_subprocess_exec(
        *with_parent.command("reprieve", "dashboard", "--no-open"),
        env={**environment, "KUBECONFIG": str(installed.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        address = URL((await process.stdout.readline()).decode().strip())
        headers = {"Authorization": f"Bearer {address.query['token']}"}
        browser = Browser()
        async with (
            aiohttp.ClientSession(address.origin(), headers=headers) as session,
            session.get("/api/live?page=harm") as stream,
            asyncio.timeout(60),
        ):
            while not browser.tables.get("month"):
                browser.hear(await stream.content.readuntil(b"\n\n"))
        yield browser.tables["month"]
    finally:
        process.terminate()
        await process.wait()


async def test_the_ledger_is_read_where_the_operator_keeps_it(installed: Installed) -> None:
    asked = ("ledger", "--since", "2025-01-01")
    code, said, complaint = await installed.asked(*asked)
    assert (code, said.count("\n")) == (0, 1)
    assert complaint.startswith("no sums in any namespace: ")
    await installed.install("reprieve")
    await installed.client.create(CONFIG_MAPS, sums("reprieve"), dict)
    code, said, complaint = await installed.asked(*asked)
    assert (code, complaint) == (0, "")
    assert said.splitlines()[1].partition(",")[2].startswith("batch,urgent,idle,idle,1,2.00,")
    async with page(installed) as shown:
        assert [row[:2] for row in shown.values()] == [["batch", "urgent"]]
    code, _, complaint = await installed.asked(*asked, variable="elsewhere")
    assert code == 0 and complaint.startswith("no sums in namespace elsewhere: ")
    installed.cluster.deny(ADMINISTRATOR, "list", "", "configmaps")
    code, said, complaint = await installed.asked(*asked)
    assert (code, said, complaint.count("\n")) == (1, "", 1)
