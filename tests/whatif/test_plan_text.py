"""What `reprieve plan` prints for people."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.answers.layout import MOST_LINES, Style
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.cli.texts.plan_text import plan_text
from reprieve.kube.resource import Resource
from reprieve.whatif.questions.answer import Answer, Displaced, Outcome, Placed, Verdict
from reprieve.whatif.questions.asked import Asks
from reprieve.whatif.questions.planning import planned
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.snapshot import Snapshot, Unseen
from tests.whatif.plan_stories import NODES_OF_TWO, job, pod, submitted
from tests.whatif.test_kinds import snapshot


def victim(name: str, rule: str, plane: str = "quota", **devices: int) -> Displaced:
    """Return a job that ran for an hour."""
    amounts = {f"{vendor}.com/gpu": amount for vendor, amount in devices.items()}
    count = sum(amounts.values())
    return Displaced("Job", "team", name, "", rule, count, count * 3600, plane, amounts)


def answer(
    *victims: Displaced,
    outcomes: tuple[Outcome, ...] = (),
    places: int = 1,
    warnings: tuple[str, ...] = (),
) -> Answer:
    wanted = Outcome("Job", "team", "wanted", Verdict.STARTS_WITH_VICTIMS, pods=places)
    return Answer(
        Verdict.STARTS_WITH_VICTIMS,
        "",
        "",
        outcomes or (wanted,),
        victims,
        tuple(Placed(f"wanted-{number}", f"node-{number}") for number in range(places)),
        Snapshot(Nanos(14 * HOUR)),
        True,
        warnings,
    )


def test_who_makes_way_is_told_with_what_he_gives_back_and_why_in_words() -> None:
    found = answer(
        victim("b", "InCohortReclamation", amd=4), victim("a", "lower priority", "scheduling")
    )
    assert plan_text(found, ["quota", "scheduling"]) == [
        "snapshot 14:00:00 UTC (0 nodes, 0 pods)",
        "Job team/wanted   1 pod, 0 placed",
        "  STARTS, others are preempted",
        "  preempted (2 in all, 4 amd.com/gpu, 4.0 device hours lost)",
        "     Job team/b  4 amd.com/gpu  it used quota that another queue has lent and reclaims",
        "     Job team/a                 lower priority",
        "  wanted-0 on node-0",
        "decided by quota and scheduling; nothing is submitted and nothing is reserved",
    ]


def test_devices_of_several_resources_are_summed_as_devices() -> None:
    found = answer(victim("one", "", amd=4), victim("two", "", nvidia=1))
    assert "  preempted (2 in all, 5 devices, 5.0 device hours lost)" in plan_text(found, ["quota"])


def test_an_answer_has_at_most_25_lines_and_all_of_them_where_everything_is_wanted() -> None:
    long = "word " * 200
    waiting = tuple(
        Outcome("Pod", "team", f"pod-{number}", Verdict.WAITS, "Full", long) for number in range(30)
    )
    victims = [victim(f"victim-{number}", long, amd=1) for number in range(30)]
    found = answer(*victims, outcomes=waiting, places=30, warnings=(long,) * 9)
    short = plan_text(found, ["quota"])
    assert 10 < len(short) <= MOST_LINES
    assert max(map(len, short)) <= Style().width
    assert sum("--all names them" in line for line in short) == 2
    everything = plan_text(found, ["quota"], Style(everything=True))
    for name in ("pod", "victim", "wanted"):
        assert all(any(f"{name}-{n}" in line for line in everything) for n in range(30))


def test_a_long_reason_is_told_whole_as_long_as_there_is_room_for_it() -> None:
    def told(words: int) -> list[str]:
        reason = " ".join(f"word-{number}" for number in range(words))
        waits = Outcome("Pod", "team", "wanted", Verdict.WAITS, "Full", reason)
        return plan_text(answer(outcomes=(waits,)), ["quota"])

    whole = told(100)
    assert "word-99" in whole[-3] and not any("..." in line for line in whole)
    # Longer than the page: cut, but not to less than there is room for.
    assert [line.endswith("...") for line in told(1000)] == [False] * 6 + [True, False, False]


def test_the_first_line_is_one_line_and_what_is_not_seen_is_told_at_the_end() -> None:
    kinds = [Resource("", "v1", f"kinds{n}", f"Kind{n}", namespaced=n > 9) for n in range(30)]
    spaces = tuple(f"team-{n}" for n in range(40))
    unseen = tuple(Unseen(each, spaces if each.namespaced else ()) for each in kinds)
    at = Nanos(14 * HOUR)
    found = replace(answer(), snapshot=Snapshot(at, unseen=unseen, namespaces=41))
    told = plan_text(found, ["quota"], now=Nanos(at + 4 * SECOND // 10))
    assert told[0] == (
        "snapshot 14:00:00 UTC (0 nodes, 0 pods, 0.4 s old); "
        "you may not list 40 of 41 namespaces and 10 kinds"
    )
    assert told[-3].startswith("how sure: figures are lower bounds: you may not list kinds0, ")
    assert sum("may not list" in line for line in told) == 2


def test_what_is_needed_is_told_with_what_of_it_is_free() -> None:
    asks = Asks(8, {"nvidia.com/gpu": 8, "cpu": 2000}, {"nvidia.com/gpu": 64, "cpu": 16000})
    wanted = Outcome(
        "Job", "team", "wanted", Verdict.STARTS_WITH_VICTIMS, pods=8, placed=8, asks=asks,
        short={"nvidia.com/gpu": 40}, pods_without_victims=0, pods_if_fewer=3,
    )  # fmt: skip
    told = plan_text(answer(victim("b", "", amd=4), outcomes=(wanted,)), ["quota"])
    assert told[1:4] == [
        "Job team/wanted   8 pods x 8 nvidia.com/gpu = 64, 8 placed",
        (
            "  STARTS, others are preempted   needs 64 nvidia.com/gpu, free in reach 24: "
            "40 from others"
        ),
        "  without preemption: 0 pods now; 3 pods if no more were submitted",
    ]


def test_a_victim_that_was_saved_is_told_with_when() -> None:
    saved = replace(victim("b", "lower priority", "scheduling", amd=4), saved=Nanos(13 * HOUR))
    (line,) = [line for line in plan_text(answer(saved), ["scheduling"]) if "Job team/b" in line]
    assert line == "     Job team/b  4 amd.com/gpu  lower priority; saved 1 h ago"


def test_nothing_of_the_cluster_steers_the_terminal() -> None:
    found = answer(victim("\x1b[2J", "\x1b[31m", amd=1), warnings=("\x1b]0;title\x07",))
    assert all(line.isprintable() for line in plan_text(found, ["quota"]))


def test_what_is_free_is_not_told_of_pods_that_are_placed_one_by_one() -> None:
    """What the first of them lacks says nothing of the others: here nothing is free for any."""
    deciders = deciders_of("scheduling", ("default-scheduler",), {})
    holders = submitted([pod(f"holds-{number}", 8, "low") for number in range(2)])
    there = settled(snapshot(deciders, *NODES_OF_TWO), deciders, holders).overlay.frozen()
    wanted = job("mine", 2, 8)
    wanted["spec"]["template"]["spec"]["priorityClassName"] = "high"
    found = asyncio.run(planned(None, there, deciders, submitted([wanted])))
    assert found.verdict is Verdict.STARTS_WITH_VICTIMS, found.message
    lines = plan_text(found, ["scheduling"])
    assert not [line for line in lines if "free in reach" in line]
    assert "  without preemption: 0 pods now" in lines
