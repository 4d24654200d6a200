"""The PodGroup's status, one sync after the other (specification of gang jobs, section 2)."""

from __future__ import annotations

import pytest

from reprieve.engine.scheduling.gangs.phases import (
    Phase,
    PhasePod,
    PodGroupStatus,
    is_settled,
    next_status,
    plain_phase,
)

NOW = 1_000_000
DAY = 24 * 3600


def pods(phases: str, *, on_nodes: int | None = None) -> list[PhasePod]:
    """One pod for each letter: Running, Succeeded, Failed, or pending; the first have a node."""
    words = {"R": "Running", "S": "Succeeded", "F": "Failed", "p": "Pending"}
    count = len(phases) if on_nodes is None else on_nodes
    return [PhasePod(words[p], "n" if i < count else "") for i, p in enumerate(phases)]


def test_a_full_group_goes_through_its_phases() -> None:
    status, seen = PodGroupStatus(), []
    for given in (pods("pp", on_nodes=0), pods("pp", on_nodes=1), pods("pp"), pods("RR")):
        for _ in range(3):
            status = next_status(status, 2, given, NOW)
            seen.append(status.phase)
    assert list(dict.fromkeys(seen)) == [
        "Pending",
        "PreScheduling",
        "Scheduling",
        "Scheduled",
        "Running",
    ]
    assert (status.scheduled, status.running, status.started) == (2, 2, NOW)


@pytest.mark.parametrize(
    ("minimum", "given", "phase"),
    [
        (2, "Rp", Phase.SCHEDULED),
        (2, "RS", Phase.RUNNING),
        (3, "RSF", Phase.FAILED),
        (2, "RRF", Phase.FAILED),  # beside enough that run, one failure is enough
        (3, "RFp", Phase.SCHEDULED),  # too few have begun for a verdict
        (2, "SSF", Phase.FINISHED),
        (0, "F", Phase.FINISHED),  # nothing is asked for: at once
    ],
)
def test_later_rows_of_the_table_overwrite_the_former(
    minimum: int, given: str, phase: Phase
) -> None:
    before = PodGroupStatus(Phase.PRE_SCHEDULING)
    assert next_status(before, minimum, pods(given), NOW).phase == phase


def test_without_pods_a_group_is_pending_again_and_keeps_its_counts() -> None:
    before = PodGroupStatus(Phase.RUNNING, "x", 2, 2, 0, 0, NOW - 5)
    after = next_status(before, 2, [], NOW)
    assert after == PodGroupStatus(Phase.PENDING, "x", 2, 2, 0, 0, NOW - 5)


def test_nothing_is_counted_until_the_minimum_is_known() -> None:
    pending = PodGroupStatus(Phase.PENDING)
    assert next_status(pending, 3, pods("RR"), NOW) == pending
    assert next_status(pending, 0, pods("RR"), NOW) == pending
    full = next_status(pending, 2, pods("RR"), NOW)
    assert full == PodGroupStatus(Phase.PRE_SCHEDULING)


def test_owners_are_those_of_the_first_pod_in_order_and_stay_without_any() -> None:
    owned = [PhasePod("Pending", "", ("ns/b", "ns/a")), PhasePod("Pending", "", ("ns/c",))]
    pending = PodGroupStatus(Phase.PENDING, "before")
    assert next_status(pending, 2, owned, NOW).occupied_by == "ns/a,ns/b"
    assert next_status(pending, 2, pods("pp"), NOW).occupied_by == "before"


def test_what_is_over_or_never_began_within_two_days_is_left_alone() -> None:
    assert is_settled(PodGroupStatus(Phase.FINISHED), 2, 0)
    assert is_settled(PodGroupStatus(Phase.FAILED), 2, 0)
    late = PodGroupStatus(Phase.SCHEDULED, scheduled=2, started=2 * DAY + 1)
    assert is_settled(late, 2, 0)
    assert not is_settled(PodGroupStatus(Phase.SCHEDULED, scheduled=2, started=2 * DAY), 2, 0)
    assert not is_settled(late, 3, 0)
    assert not is_settled(PodGroupStatus(Phase.SCHEDULED, "", 2, 1, started=9 * DAY), 2, 0)


def test_scheduler_plugins_has_two_phases_less_and_any_other_word_is_left_alone() -> None:
    assert [plain_phase(p) for p in Phase] == [
        "",
        "Pending",
        "Scheduling",
        "Scheduling",
        "Scheduling",
        "Running",
        "Finished",
        "Failed",
    ]
    for word in ("Unknown", "what somebody wrote"):
        assert plain_phase(word) == word
        assert next_status(PodGroupStatus(word), 2, pods("RR"), NOW).phase == Phase.RUNNING
