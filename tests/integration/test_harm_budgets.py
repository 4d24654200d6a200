"""A HarmBudget on a real API server, judged by its audit log: who was deleted, and when.

The budget allows two displacements within ten minutes. After two the operator is killed, and the
records are deleted: what was displaced stands in the ledger alone.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.kube.resource import CONFIG_MAPS, HARM_BUDGETS, PODS, PREEMPTIONS
from reprieve.records.harm_sums import HARM_LABEL, part_rows
from reprieve.records.harm_table import HarmRow, as_csv, harm_rows
from tests.integration.control_plane import Binaries
from tests.reliability.audit import read
from tests.reliability.churn import pod
from tests.reliability.operators import Operators
from tests.reliability.stand import NAMESPACE, OPERATOR, OPERATOR_NAMESPACE, Stand, stand

_PATIENCE_S: Final = 900
_BUDGET: Final[dict[str, Any]] = {
    "apiVersion": "reprieve.dev/v1alpha1",
    "kind": "HarmBudget",
    "metadata": {"name": "team-10m"},
    "spec": {"limits": {"displacements": 2}, "window": "10m"},
}


async def _until(what: str, holds: Callable[[], Awaitable[object]]) -> None:
    for _ in range(_PATIENCE_S * 2):
        if await holds():
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"{what} never held")


def _evictions(folder: Path) -> list[tuple[str, Nanos]]:
    """Return the pods that the operator deleted, and when it asked for that, by the audit log."""
    return [
        (entry.object_ref.name, Nanos(int(entry.received * 1_000) * SECOND // 1_000))
        for entry in read(folder / "audit.log")
        if entry.user.username == OPERATOR
        and entry.what == ("delete", "pods", "")
        and entry.done
        and entry.object_ref is not None
    ]


async def _ledger(found: Stand) -> list[HarmRow]:
    """Return the rows of the table that `reprieve ledger` prints."""
    page = await found.client.list(
        CONFIG_MAPS, dict, namespace=OPERATOR_NAMESPACE, label_selector=f"{HARM_LABEL}=sums"
    )
    rows = [row for part in page.items for row in part_rows(part)[0].items()]
    return harm_rows(rows, Nanos(0), "month")


async def _is_bound(found: Stand, name: str) -> bool:
    obj: dict[str, Any] = await found.client.get(PODS, NAMESPACE, name, dict)
    return bool(obj["status"].get("phase") == "Running")


async def _told(found: Stand, name: str) -> str:
    """Return what the condition of a pod says that waits."""
    obj: dict[str, Any] = await found.client.get(PODS, NAMESPACE, name, dict)
    conditions = obj["status"].get("conditions") or ()
    return " ".join(each.get("message", "") for each in conditions)


async def _runs(found: Stand, number: int) -> None:
    await found.create(PODS, pod(f"low-{number}", 4, "low"))
    await _until("it runs", partial(_is_bound, found, f"low-{number}"))
    await found.create(PODS, pod(f"high-{number}", 4, "high"))


@pytest.mark.slow
async def test_a_third_displacement_is_held_over_a_kill_until_the_window_has_passed(
    with_pod_groups: Binaries, tmp_path: Path
) -> None:
    async with stand(with_pod_groups, tmp_path, nodes=1, cpus=4) as found:
        operators = found.operators("--controllers", "scheduling")
        await found.create(HARM_BUDGETS, _BUDGET)
        await operators.start()
        try:
            for number in range(2):
                await _runs(found, number)
                await _until("it runs", partial(_is_bound, found, f"high-{number}"))
                await found.delete(PODS, [f"high-{number}"])
            await _until("the ledger has both", lambda: _has(found, 2))
            await _killed(found, operators)
            await _runs(found, 2)
            said = "harm budget team-10m is used up"
            await _until("high-2 waits", lambda: _says(found, "high-2", said))
            assert [name for name, _ in _evictions(tmp_path)] == ["low-0", "low-1"]
            free = parse_instant((await _told(found, "high-2")).split(" before ")[1].split(": ")[0])
            await _until("the status has both", lambda: _uses(found, [(NAMESPACE, 2)]))
            await _until("high-2 runs", lambda: _is_bound(found, "high-2"))
            await _until("the ledger has all", lambda: _has(found, 3))
        finally:
            await operators.stop()
        table = as_csv(await _ledger(found))
    evicted = _evictions(tmp_path)
    (_, first), _, (name, third) = evicted
    assert name == "low-2"
    # The first has left the window, which begins at its decision, up to a second before.
    assert third >= max(free, first + 10 * MINUTE - SECOND)
    print(table, *((name, (at - first) / SECOND) for name, at in evicted), sep="\n")


async def _says(found: Stand, name: str, text: str) -> bool:
    return text in await _told(found, name)


async def _has(found: Stand, number: int) -> bool:
    return sum(row.displacements for row in await _ledger(found)) == number


async def _uses(found: Stand, expected: list[tuple[str, int]]) -> bool:
    budget: dict[str, Any] = await found.client.get(HARM_BUDGETS, "", "team-10m", dict)
    used = (budget.get("status") or {}).get("used") or ()
    return [(each["of"], each["displacements"]) for each in used] == expected


async def _killed(found: Stand, operators: Operators) -> None:
    """Kill the operator, delete all records while it is down, and start it again."""
    operators.signal(0, signal.SIGSTOP)
    for record in await found.records():
        await found.client.delete(PREEMPTIONS, OPERATOR_NAMESPACE, record["metadata"]["name"])
    operators.signal(0, signal.SIGKILL)
