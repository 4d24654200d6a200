"""Samples tell what teams held, waited for and lost, and the page as it was at an instant."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.units.errors import UsageError
from reprieve.web.history.history import History
from reprieve.web.history.model import (
    MOST_TEAMS,
    Eviction,
    Moment,
    Sample,
    UnitRow,
    sample_of,
)
from reprieve.web.history.moments import Moments
from reprieve.web.history.sampling import Counted, moment_of
from reprieve.web.history.stores import FolderStore, MemoryStore
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages import history, now
from reprieve.web.tables import InvalidParameter, Parameters, Viewer
from tests.web.cluster import (
    GPU,
    START,
    cluster_queue,
    idle,
    local_queue,
    mirror,
    node,
    pod,
    put,
    rows,
    take,
    workload,
)
from tests.web.stories import mirror_of, quota_record

EVERYTHING = Viewer(sees_all=True)


def after(minutes: float) -> Nanos:
    """Return an instant after the start."""
    return Nanos(START + int(minutes * MINUTE))


def row(unit: str, held: int = 0, waiting: int = 0, queue: str = "", **more: int) -> UnitRow:
    """Return what a unit was at."""
    since = START if held else 0
    waits = START if waiting else 0
    idled = more.get("idled", 0)
    return UnitRow(unit, GPU, queue, held, idled, 0, waiting, 1, 1, since, waits, "")


def moment(at: Nanos, *found: UnitRow, total: int = 64) -> Moment:
    """Return a moment of these units."""
    return Moment(at, {GPU: total}, {each.key: each for each in found})


def shown(
    cluster: Mirror, viewer: Viewer, at: Nanos, **asked: str
) -> tuple[dict[str, Any], list[Any]]:
    """Return the lines and the sums of the page History."""
    parameters: Parameters = {name: (value,) for name, value in asked.items()}
    page = history.page(cluster, viewer, parameters, at)
    return dict(page.values), rows(page, "teams")


def test_a_sample_has_what_each_unit_holds_and_waits_for_by_its_queue() -> None:
    cluster = mirror(
        node("n1"),
        cluster_queue("cq", 8),
        local_queue("team-a", "cq"),
        pod("train-0", gpus=4, on="n1", job="train"),
        workload("train", gpus=4, admitted_to="cq"),
        pod("quiet-0", "team-b", 2, on="n1", job="quiet"),
        idle("quiet", ["quiet-0"], "team-b"),
        workload("next", gpus=8, pods=2, why="quota"),
    )

    found = moment_of(cluster, START)

    assert found.totals == {GPU: 8}
    said = {
        each.unit: (each.queue, each.held, each.idle, each.waiting) for each in found.rows.values()
    }
    assert said == {
        "job/team-a/train": ("cq", 4, 0, 0),
        "job/team-b/quiet": ("", 2, 2, 0),
        "job/team-a/next": ("cq", 0, 0, 16),
    }


def test_lines_and_sums_of_an_hour_are_those_of_the_samples() -> None:
    cluster = mirror(node("n1"))
    for minute in range(1, 61):
        held = 8 if minute <= 30 else 4
        evicted = [Eviction(GPU, "team-a", "", 7200)] if minute == 31 else []
        found = moment(after(minute), row("job/team-a/x", held), row("job/team-b/y", 2, idled=2))
        cluster.history.add(found, evicted)

    values, teams = shown(cluster, EVERYTHING, after(60))

    assert values["lines"]["team-a"] == [8.0] * 30 + [4.0] * 30
    assert values["lines"]["team-b"] == [0.0] * 60
    assert values["times"][-1] - values["times"][0] == 59 * 60
    assert teams == [
        {
            "team": "team-a",
            "working": 6.0,
            "idle": 0,
            "waiting": 0,
            "preempted": 1,
            "lost": 7200,
        },
        {"team": "team-b", "working": 0, "idle": 2.0, "waiting": 0, "preempted": 0, "lost": 0},
    ]
    lost, _ = shown(cluster, EVERYTHING, after(60), measure="lost")
    assert lost["lines"]["team-a"] == [0] * 30 + [7200] + [0] * 29


def test_a_week_is_kept_and_means_stay_what_they_were() -> None:
    cluster = mirror(node("n1"))
    for minute in range(1, 7 * 24 * 60 + 1):
        day = (minute - 1) // (24 * 60)
        cluster.history._tiers.add(sample(after(minute), day + 1))

    at = after(7 * 24 * 60)
    week, teams = shown(cluster, EVERYTHING, at, range="week")
    by_day = [week["lines"]["team-a"][24 * day : 24 * (day + 1)] for day in range(7)]

    assert [set(each) for each in by_day] == [{float(day + 1)} for day in range(7)]
    assert teams[0]["working"] == sum(24 * (day + 1) for day in range(7))
    last, _ = shown(cluster, EVERYTHING, at, range="day")
    assert set(last["lines"]["team-a"]) == {7.0}


def sample(at: Nanos, working: int) -> Sample:
    """Return a sample of one team."""
    return sample_of(moment(at, row("job/team-a/x", working)), MINUTE, ())


def test_a_time_without_samples_is_a_gap() -> None:
    cluster = mirror(node("n1"))
    for minute in (*range(1, 20), *range(40, 60)):
        cluster.history.add(moment(after(minute), row("job/team-a/x", 8)), ())

    values, _ = shown(cluster, EVERYTHING, after(60))

    line = values["lines"]["team-a"]
    assert line[:19] == [8.0] * 19
    assert set(line[20:37]) == {None}
    assert line[40] == 8.0


def test_who_sees_one_namespace_is_shown_no_other_team_and_others_from_three_on() -> None:
    cluster = mirror(node("n1"))
    units = [row(f"job/team-{each}/x", 8, queue=f"queue-{each}") for each in "abc"]
    cluster.history.add(moment(after(1), *units), [Eviction(GPU, "team-b", "", 60)])
    viewer = Viewer(sees_all=False, namespaces=frozenset({"team-a"}))

    values, teams = shown(cluster, viewer, after(1), by="queue")
    assert [each["team"] for each in teams] == ["queue-a"]
    assert list(values["lines"]) == ["queue-a"]

    cluster.history.add(moment(after(2), *units, row("job/team-d/x", 8)), ())
    _, teams = shown(cluster, viewer, after(2))
    assert [each["team"] for each in teams] == ["team-a", "others"]


def test_the_page_now_is_shown_as_it_was() -> None:
    cluster = mirror(node("n1"), pod("new-0", on="n1", job="new"))
    then = moment(after(1), row("job/team-a/old", 8, queue="cq"), row("job/team-b/next", waiting=4))
    cluster.history.add(then, ())
    cluster.history.add(moment(after(2), row("job/team-a/new", 8)), ())
    asked = {"at": (str((START + 90 * SECOND) // SECOND),)}

    page = now.page(cluster, EVERYTHING, asked, after(5))

    assert page.values["sampled"] == after(1) / SECOND
    assert page.values["bar"] == {
        "total": 64, "working": 8, "idle": 0, "leaving": 0, "claimed": 0, "free": 56,
    }  # fmt: skip
    assert [each["unit"] for each in rows(page, "holders")] == ["job/team-a/old"]
    assert [(each["unit"], each["amount"]) for each in rows(page, "waiters")] == [
        ("job/team-b/next", 4)
    ]
    tenant = Viewer(sees_all=False, namespaces=frozenset({"team-b"}))
    page = now.page(cluster, tenant, asked, after(5))
    assert rows(page, "holders") == []
    assert page.values["bar"] is None


@pytest.mark.parametrize("given", ["yesterday", "nan", "-1", "1e300", "1"])
def test_an_instant_that_cannot_be_shown_is_refused_with_what_is_accepted(given: str) -> None:
    with pytest.raises(InvalidParameter, match=r"^at "):
        now.page(mirror(node("n1")), EVERYTHING, {"at": (given,)}, START)


def test_every_moment_of_a_random_day_is_given_back() -> None:
    drawn = random.Random(3)
    kept = Moments(MemoryStore(), in_one=7)
    present: dict[str, int] = {}
    known: dict[Nanos, dict[str, int]] = {}
    for minute in range(1, 100):
        for _ in range(3):
            present[f"job/team/{drawn.randrange(30)}"] = drawn.randrange(4)
        held = {unit: amount for unit, amount in present.items() if amount}
        known[after(minute)] = held
        kept.add(moment(after(minute), *(row(unit, amount) for unit, amount in held.items())))

    for at, held in known.items():
        found = kept.at(Nanos(at + 30 * SECOND))
        assert found is not None
        assert found.at == at
        assert {each.unit: each.held for each in found.rows.values()} == held
    assert kept.at(START) is None


def test_samples_survive_a_restart_and_a_file_that_was_cut(tmp_path: Path) -> None:
    first = History(FolderStore(tmp_path))
    for minute in range(1, 80):
        first.add(moment(after(minute), row("job/team-a/x", minute)), ())

    again = History(FolderStore(tmp_path))
    assert list(again.between(START, after(80))) == list(first.between(START, after(80)))
    found = again.at(after(70))
    assert found is not None
    assert [each.held for each in found.rows.values()] == [70]

    again.add(moment(after(81), row("job/team-a/x", 81)), ())
    found = again.at(after(70))
    assert found is not None

    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:20])
    cut = History(FolderStore(tmp_path))
    assert cut.newest is None
    assert cut.at(after(70)) is None
    cut.add(moment(after(90), row("job/team-a/x", 1)), ())
    assert cut.newest == after(90)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--history .*accepted: a folder that can be written"):
        FolderStore(tmp_path / "file" / "below")


def test_what_is_kept_stays_within_its_bound_and_the_oldest_goes_first() -> None:
    store = MemoryStore()
    kept = Moments(store, most=20_000, in_one=5)
    drawn = random.Random(5)
    for minute in range(1, 400):
        units = [row(f"job/team/{drawn.getrandbits(60)}", 8) for _ in range(20)]
        kept.add(moment(after(minute), *units))
        assert sum(store.sizes().values()) <= 20_000 + 5_000
    assert kept.at(after(1)) is None
    assert kept.at(after(399)) is not None

    kept.add(moment(after(399 + 8 * 24 * 60), row("job/team/last", 8)))
    assert kept.at(after(399)) is None


def test_a_sample_keeps_the_largest_teams_apart_and_adds_up_the_rest() -> None:
    cluster = mirror(node("n1"))
    units = [row(f"job/team-{n}/x", n + 1) for n in range(MOST_TEAMS + 72)]
    cluster.history.add(moment(after(1), *units), ())

    _, teams = shown(cluster, EVERYTHING, after(1))

    assert len(teams) == MOST_TEAMS + 1
    assert teams[-1]["team"] == "others"
    whole = sum(each["working"] for each in teams)
    assert whole == pytest.approx(sum(n + 1 for n in range(MOST_TEAMS + 72)) / 60, rel=0.01)


def test_an_eviction_is_counted_once_and_not_again_after_a_restart() -> None:
    cluster = mirror_of([quota_record()])
    counted = Counted(Nanos(0))

    first = list(counted.new(cluster))
    assert sorted((each.namespace, each.lost) for each in first) == [
        ("team-a", 1200),
        ("team-a", 2400),
    ]
    assert list(counted.new(cluster)) == []
    latest = max(
        unit.at or each.finished or each.decided
        for each in cluster.preemptions
        for unit in each.units
    )
    assert list(Counted(latest).new(cluster)) == []


def test_a_gone_unit_is_in_no_later_sample() -> None:
    train = pod("train-0", on="n1", job="train")
    cluster = mirror(node("n1"), train)
    assert len(moment_of(cluster, START).rows) == 1
    take(cluster, train)
    put(cluster, pod("other-0", on="n1", job="other"))
    assert [each.unit for each in moment_of(cluster, START).rows.values()] == ["job/team-a/other"]


def test_a_week_of_samples_of_a_large_cluster_fits_its_bound() -> None:
    """Of 2,000 units, each minute a few changing: an hour takes less than a 168th of 20 MB."""
    drawn = random.Random(7)
    store = MemoryStore()
    kept = Moments(store)
    units = [row(f"job/team-{n % 40}/train-{n}", 8, queue=f"queue-{n % 40}") for n in range(2000)]
    for minute in range(60):
        for _ in range(20):
            n = drawn.randrange(len(units))
            units[n] = row(f"job/team-{n % 40}/train-{drawn.getrandbits(30)}", 8)
        kept.add(moment(after(minute), *units))
    assert sum(store.sizes().values()) < 20_000_000 / 168
    assert HOUR == 60 * MINUTE
