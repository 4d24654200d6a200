"""Leases that say that another decider is at work, of who may write Leases in a namespace."""

from __future__ import annotations

from typing import Any

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.planes.common.foreign_decider import (
    ForeignDecider,
    StatusAuthors,
    last_writer,
    status_writes,
)


class Leases:
    """Answers a list with what was written, `{namespace: spec}`."""

    def __init__(self) -> None:
        self.specs: dict[str, dict[str, Any]] = {}

    async def list(self, *_: object, **__: object) -> Any:
        items = [{"metadata": {"namespace": at}, "spec": spec} for at, spec in self.specs.items()]
        return type("Page", (), {"items": items})


def spec(holder: str, renewed: str = "2026-01-01T00:00:00Z", seconds: int = 15) -> dict[str, Any]:
    return {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds}


async def test_a_lease_in_a_tenants_namespace_neither_counts_nor_hides_the_others() -> None:
    clock, leases = VirtualClock(), Leases()
    decider = ForeignDecider(leases, "reprieve", clock, "lease", ("kueue-system",))  # type: ignore[arg-type]
    leases.specs = {"team": spec("tenant", "9999-12-31T23:59:59Z", 2**31 - 1)}
    await decider.observe()
    assert (decider.holder, decider.elsewhere) == ("", ("team", "tenant"))
    leases.specs["kueue-system"] = spec("kueue-0")
    await decider.observe()
    assert decider.holder == "kueue-0"
    await clock.advance(16 * SECOND)
    await decider.observe()
    assert decider.holder == ""
    # Never renewed, it counts for ten minutes, whatever it says.
    await clock.advance(10 * MINUTE)
    await decider.observe()
    assert decider.elsewhere == ("", "")


def entry(manager: str, time: str, subresource: str = "status") -> dict[str, Any]:
    return {"manager": manager, "time": time, "subresource": subresource}


def test_whoever_wrote_a_status_last_is_known_people_and_we_apart() -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    kueue, ours = entry("kueue", early), entry("reprieve", late)

    def last(*objects: list[dict[str, Any]]) -> str:
        return last_writer(map(status_writes, objects))

    assert last([kueue]) == "kueue"
    assert last([kueue], [ours]) == ""
    assert last([kueue], [entry("reprieve", early)]) == "kueue"
    assert last([entry("kubectl-edit", late), entry("kueue", late, "")]) == ""
    assert last() == ""


async def test_one_that_writes_now_and_then_is_known_although_we_write_after_it() -> None:
    clock = VirtualClock()
    authors = StatusAuthors(clock)
    began = parse_instant(format_instant(clock.wall()))

    def at(seconds: int) -> str:
        return format_instant(Nanos(began + seconds * SECOND))

    # What one left behind that is gone counts until we have written.
    authors.observe([entry("kueue", at(-60))])
    assert authors.other == "kueue"
    authors.observe([entry("kueue", at(-60)), entry("reprieve", at(1))])
    assert authors.other == ""
    authors.observe([entry("kueue", at(2)), entry("reprieve", at(1))])
    authors.observe([entry("reprieve", at(3))])
    assert authors.other == "kueue"
    await clock.advance(10 * MINUTE)
    assert authors.other == ""
