"""Probes and /metrics over real HTTP."""

from __future__ import annotations

from collections.abc import Iterable

import aiohttp
import pytest

from reprieve.telemetry.http import serve_telemetry
from reprieve.telemetry.metrics import Metrics
from reprieve.telemetry.probes import Check
from reprieve.units.errors import UsageError
from reprieve.units.ids import PlanId


class Checks:
    """A probe whose checks the test changes."""

    def __init__(self, *checks: Check) -> None:
        self.checks: Iterable[Check] = checks

    def __call__(self) -> Iterable[Check]:
        return self.checks


async def get(port: int, path: str, accept: str = "*/*") -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession(headers={"Accept": accept}) as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, response.headers["Content-Type"], await response.text()


async def test_probes_answer_with_a_line_for_each_check() -> None:
    ready = Checks(
        Check("synced", False, "pods are not listed yet"),
        Check("leader", True, "waiting", required=False),
        Check("rights", False, "add get jobs.batch", required=False),
    )
    async with serve_telemetry(Metrics().registry, Checks(), ready, 0, "127.0.0.1") as port:
        status, _, text = await get(port, "/readyz")
        assert (status, text.splitlines()) == (
            503,
            [
                "[-] synced: pods are not listed yet",
                "[+] leader: waiting",
                "[!] rights: add get jobs.batch",
                "failed",
            ],
        )
        ready.checks = [Check("rights", False, "add get jobs.batch", required=False)]
        status, _, text = await get(port, "/readyz")
        assert (status, text.splitlines()) == (200, ["[!] rights: add get jobs.batch", "ok"])
        assert (await get(port, "/healthz"))[::2] == (200, "ok\n")
        assert (await get(port, "/elsewhere"))[0] == 404


async def test_metrics_come_in_the_format_that_is_asked_for() -> None:
    metrics = Metrics()
    metrics.count_plan(PlanId("0123"), "idle", "committed")
    async with serve_telemetry(metrics.registry, Checks(), Checks(), 0, "127.0.0.1") as port:
        status, kind, plain = await get(port, "/metrics")
        assert (status, kind.partition(";")[0]) == (200, "text/plain")
        _, kind, full = await get(port, "/metrics", "application/openmetrics-text;version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
    assert 'reprieve_plans_total{outcome="committed",plane="idle"} 1.0\n' in plain
    assert '# {plan="0123"}' in full


async def test_a_port_in_use_is_named_in_one_line() -> None:
    registry = Metrics().registry
    async with serve_telemetry(registry, Checks(), Checks(), 0, "127.0.0.1") as port:
        with pytest.raises(UsageError, match=f"--metrics-port {port}: cannot listen: .*accepted"):
            async with serve_telemetry(registry, Checks(), Checks(), port, "127.0.0.1"):
                pass


async def test_any_free_port_is_one_for_all_addresses() -> None:
    async with serve_telemetry(Metrics().registry, Checks(), Checks(), 0) as port:
        status, _, text = await get(port, "/healthz")
    assert (status, text) == (200, "ok\n")
