"""What is asked again goes on from the moment that is kept, whatever happened since."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from kubeworld.time import run_virtually
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.units.errors import UsageError
from reprieve.whatif.again import Again
from reprieve.whatif.kept import Kept, Lost


def kept(at: list[int], began: Path | None = None) -> Kept[str, list[int]]:
    """Keep the moment at which a list is as given; the answers are about that list.

    `began`: is there once somebody answers.
    """
    moment = Kept[str, list[int]]()

    async def answer(question: str) -> list[int]:
        await asyncio.sleep(60)  # an hour would do as well: the loop's time is virtual
        match question:
            case "refuse":
                raise UsageError("it is none")
            case "die":
                os._exit(3)
            case "interrupted":
                os.kill(os.getpid(), signal.SIGINT)
            case "fail":
                raise ZeroDivisionError
            case "for ever" if began is not None:
                _work_for_ever(began)
        at.append(len(at))
        return at

    async def main() -> None:
        other = asyncio.create_task(asyncio.sleep(30))
        await moment.stay(answer)
        at.append(99)  # here it goes on
        await other

    run_virtually(main)
    return moment


def _work_for_ever(began: Path) -> None:
    began.touch()
    while True:
        time.sleep(1)


def test_each_question_is_asked_of_the_moment_that_is_kept() -> None:
    state = [0, 1]
    moment = kept(state)
    assert state == [0, 1, 99]
    assert moment.ask("more") == [0, 1, 2]
    assert moment.ask("more") == [0, 1, 2], "an answer left a trace"
    moment.close()


def test_a_refusal_is_raised_where_it_was_asked() -> None:
    moment = kept([])
    with pytest.raises(UsageError, match="it is none"):
        moment.ask("refuse")
    assert moment.ask("more") == [0]
    moment.close()


def test_an_interrupt_ends_whoever_asks_and_none_of_the_copies() -> None:
    moment = kept([])
    assert moment.ask("interrupted") == [0]
    moment.close()


async def test_who_is_to_end_asks_nothing_more() -> None:
    class Asked:
        def ask(self, question: object) -> None:
            raise AssertionError(question)

    again = Again(None, deciders_of("scheduling", (), {}), None)  # type: ignore[arg-type]
    again._kept = Asked()  # type: ignore[assignment]
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again.with_others([])
    task.uncancel()


@pytest.mark.parametrize("question", ["die", "fail"])
def test_whoever_ends_without_an_answer_costs_that_one_alone(question: str) -> None:
    moment = kept([])
    with pytest.raises(Lost):
        moment.ask(question)
    assert moment.ask("more") == [0]
    moment.close()


def children() -> set[str]:
    """Return the processes that this one has started: other tests of it may have left theirs."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {pid for each in tasks for pid in each.read_text(encoding="ascii").split()}


def test_without_a_moment_there_is_no_answer_and_no_process_is_left() -> None:
    before = children()
    moment = kept([])
    assert len(children() - before) == 1
    moment.close()
    with pytest.raises(Lost):
        moment.ask("more")
    assert children() == before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_whoever_asks_may_be_killed_and_nobody_is_left(tmp_path: Path) -> None:
    file = tmp_path / "answering"
    read, write = os.pipe()
    asking = os.fork()
    if asking == 0:
        try:
            kept([], file).ask("for ever")
        finally:
            os._exit(1)
    os.close(write)  # both copies have the other end, for as long as they live
    while not file.exists():
        time.sleep(0.01)
    os.kill(asking, signal.SIGKILL)
    os.waitpid(asking, 0)
    assert os.read(read, 1) == b""
    os.close(read)


def test_processor_time_of_questions_is_counted() -> None:
    moment = kept([])
    moment.ask("more")
    assert moment.seconds > 0
    moment.close()
