"""What one request queries of servers outside, so that a write can stay one synchronous step.

A step that lacks an answer is given up before anything is stored, the answer is fetched, and the
step runs again from its start with all answers so far; what has changed meanwhile is read anew, as
the real server does when its write meets another one. Answers are remembered by the query.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kubelocal.server.rights.identity import ADMINISTRATOR, User
from kubelocal.store import Store

__all__ = ["acting", "ask", "once", "settled"]

_T = TypeVar("_T")
_SYSTEM: Final = User.named(ADMINISTRATOR)

acting: ContextVar[User] = ContextVar("acting", default=_SYSTEM)
"""Who makes the request; calls inside this process are the administrator's."""
_answers: ContextVar[_Answers | None] = ContextVar("answers", default=None)


@dataclass(slots=True)
class _Answers:
    known: dict[Hashable, Any] = field(default_factory=dict)


class _Unanswered(Exception):
    def __init__(self, question: Hashable, fetch: Callable[[Store], Awaitable[Any]]) -> None:
        super().__init__(question)
        self.question, self.fetch = question, fetch


async def settled(store: Store, step: Callable[[], _T]) -> _T:
    """Run `step`, again after each question that it has, and return what it returns.

    Raises whatever `step` or the fetching of an answer raises.
    """
    answers = _Answers()
    while True:
        before = _answers.set(answers)
        try:
            return step()
        except _Unanswered as unanswered:
            question, fetch = unanswered.question, unanswered.fetch
        finally:
            _answers.reset(before)
        answers.known[question] = await fetch(store)


def ask(question: Hashable, fetch: Callable[[Store], Awaitable[_T]]) -> _T:
    """Return the answer to `question`; only inside a step, and before it has stored anything."""
    answers = _answers.get()
    assert answers is not None, "asked outside of a step"
    if question not in answers.known:
        raise _Unanswered(question, fetch)
    answer: _T = answers.known[question]
    return answer


def once(name: str, make: Callable[[], _T]) -> _T:
    """Return what `make` returned at the first run of the step: names, identities and times."""
    answers = _answers.get()
    if answers is None:
        return make()
    if name not in answers.known:
        answers.known[name] = make()
    made: _T = answers.known[name]
    return made
