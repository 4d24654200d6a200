"""What `reprieve plan` prints for people."""

from __future__ import annotations

from reprieve.answers.layout import MOST_LINES, Style
from reprieve.cli.plan_text import plan_text
from reprieve.units.durations import HOUR
from reprieve.units.instants import Nanos
from reprieve.whatif.answer import Answer, Displaced, Outcome, Placed, Verdict
from reprieve.whatif.snapshot import Snapshot


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
        "  STARTS, others make way",
        "  makes way (2 in all, 4 amd.com/gpu, 4.0 device hours lost)",
        "     Job team/b  4 amd.com/gpu  it used quota that another queue has lent and takes back",
        "     Job team/a                 lower priority",
        "  wanted-0 on node-0",
        "decided by quota and scheduling; nothing is submitted and nothing is reserved",
    ]


def test_devices_of_several_resources_are_summed_as_devices() -> None:
    found = answer(victim("one", "", amd=4), victim("two", "", nvidia=1))
    assert "  makes way (2 in all, 5 devices, 5.0 device hours lost)" in plan_text(found, ["quota"])


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


def test_nothing_of_the_cluster_steers_the_terminal() -> None:
    found = answer(victim("\x1b[2J", "\x1b[31m", amd=1), warnings=("\x1b]0;title\x07",))
    assert all(line.isprintable() for line in plan_text(found, ["quota"]))
