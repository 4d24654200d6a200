"""The same cluster, used again: what would happen with another manifest, or with less free.

The first decision brings the cluster to rest and continues with what was submitted; that moment of
rest is kept (`whatif.kept`), and everything else that a plan states is computed from it. Where
nothing is kept, or something turns out to be missing that has to be read first, the whole cluster
is decided about anew, which lasts longer. There what is removed is lacking from the start, here
from the moment of rest on, so that how narrowly something starts may be reported otherwise.

Source: the design's "Processes and time".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final

from reprieve.kube.reader import Reader
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.happened import Run
from reprieve.whatif.kept import Kept, Lost
from reprieve.whatif.questions.answer import Answer
from reprieve.whatif.questions.judging import answer_of
from reprieve.whatif.run import decided
from reprieve.whatif.snapshots.differences import differences
from reprieve.whatif.snapshots.snapshot import Snapshot
from reprieve.whatif.stage import Question
from reprieve.whatif.submitting.submission import Submitted

__all__ = ["Again", "Explain"]

#: Adds why things wait, and until this monotonic instant what would help.
Explain = Callable[[Run, Answer, float], Awaitable[Answer]]

_NOTHING: Final = Snapshot(at=0)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Reported:
    """An answer without its snapshot; `asked`: what has to be read for another one."""

    answer: Answer
    asked: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Asked:
    question: Question
    explained_until: float | None


@dataclass(slots=True)
class Again:
    """Decides about one cluster as often as is requested; to be closed.

    Attributes:
        client: reads what turns out to be missing; None without access to the cluster.
        deciders: the planes.
        explain: why what waits does.
        keep: whether the moment of rest is kept; without it each question is decided about anew.
    """

    client: Reader | None
    deciders: Deciders
    explain: Explain
    keep: bool = True
    _snapshot: Snapshot = _NOTHING
    _kept: Kept[_Asked, _Reported] = field(default_factory=Kept)
    _rested: float = 0.0

    def __enter__(self) -> Again:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.close()

    @property
    def seconds(self) -> float:
        """Processor time of this process and of those in which questions were answered."""
        return time.process_time() + self._kept.seconds

    @property
    def of_one(self) -> float:
        """Processor time since the cluster came to rest: right after the first, that of one."""
        return self.seconds - self._rested

    def spent(self, seconds: float) -> Callable[[], bool]:
        """Return what states whether so long was worked since now."""
        end = self.seconds + seconds
        return lambda: self.seconds >= end

    async def first(self, snapshot: Snapshot, submitted: Sequence[Submitted]) -> Run:
        """Return what would happen, and keep the moment before.

        Raises:
            Undecided: the planes did not get ready.
            UsageError: what is stored of their settings is not accepted, or more pods would be made
                than may be.
        """

        async def at_rest(asked: Callable[[Question], Awaitable[Run]]) -> None:
            async def answer(about: _Asked) -> _Reported:
                run = await asked(about.question)
                return await self._reported(run, about.explained_until)

            if self.keep:
                await self._kept.stay(answer)
            self._rested = self.seconds

        run = await decided(self.client, snapshot, self.deciders, submitted, at_rest=at_rest)
        self._snapshot = run.overlay.snapshot
        return run

    async def with_others(self, submitted: Sequence[Submitted]) -> Answer:
        """Return what would happen if this were submitted instead."""
        return await self._answer(Question(tuple(submitted)))

    async def sparing(self, submitted: Sequence[Submitted], until: float) -> Answer:
        """Return what would happen without preemption, and why what waits then does."""
        return await self._answer(Question(tuple(submitted), victims=False, idle=False), until)

    async def on(self, snapshot: Snapshot, submitted: Sequence[Submitted]) -> Answer:
        """Return what would happen on the cluster with what this one lacks or has otherwise."""
        changes = differences(self._snapshot, snapshot)
        return await self._answer(Question(tuple(submitted), changes=changes), on=snapshot)

    async def _answer(
        self, question: Question, until: float | None = None, on: Snapshot | None = None
    ) -> Answer:
        await asyncio.sleep(0)  # a caller that is cancelled ends here, and queries nothing more
        try:
            reported = self._kept.ask(_Asked(question, until))
        except Lost:
            reported = None
        if reported is None or (reported.asked and self.client is not None):
            run = await self._anew(question, on or self._snapshot)
            reported = await self._reported(run, until)
        return replace(reported.answer, snapshot=self._snapshot)

    async def _anew(self, question: Question, snapshot: Snapshot) -> Run:
        deciders = self.deciders if question.idle else self.deciders.without_idle()
        return await decided(
            self.client, snapshot, deciders, question.submitted, victims=question.victims
        )

    async def _reported(self, run: Run, until: float | None) -> _Reported:
        answer = answer_of(run)
        if until is not None:
            answer = await self.explain(run, answer, until)
        return _Reported(replace(answer, snapshot=_NOTHING), frozenset(run.overlay.asked))
