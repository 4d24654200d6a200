"""`GET /api/explain/KIND/NAMESPACE/NAME`: the answer of `reprieve explain -o json`.

Requests that accept `application/x-ndjson` get it in parts: a line for each, as `-o jsonl` prints
them, and one with `error` where no complete one follows. It is made with the viewer's rights: why
the work waits, who holds what it lacks, and changes that the engine has tried.

`GET /api/explain?unit=KIND/NAMESPACE/NAME&unit=...`: complete answers about several objects in
lines, for rows of a table. The cluster is decided about once for all of them, and again only after
a pause: a line with `again` states in how many seconds a query is answered.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from kubeworld.units.untrusted import Form
from reprieve.answers.kinds import asked_of
from reprieve.kube.resource import PREEMPTIONS
from reprieve.units.errors import UsageError
from reprieve.web.server.commands import Commands, Rights
from reprieve.web.server.door import Visit
from reprieve.web.tables import NotFound

__all__ = ["MOST_ROWS", "Explanations", "RowExplanations"]

#: Objects of one query: more rows than are in sight at once.
MOST_ROWS: Final = 60
#: Pauses are so many times as long as the decision before them: a tenth of a core at most.
_PAUSES: Final = 9
_SHORTEST_PAUSE: Final = 10 * SECOND
#: For how long a viewer who was due is waited for.
_LATE: Final = 5 * SECOND

#: As the API server accepts names; nothing that a command could read as an option.
_NAME: Final = Form(r"[a-z0-9](?:[-a-z0-9.]*+)", 253)
_UNIT: Final = Form(r"[a-z0-9](?:[-a-z0-9.]*+)(?:/[a-z0-9](?:[-a-z0-9.]*+)){2}", 600)


class Explanations:
    """Runs `reprieve explain`.

    Args:
        rights: for each question, the options that carry the rights of the user.
        command: how the command is called.
    """

    def __init__(self, rights: Rights, command: Sequence[str] = ()) -> None:
        called = tuple(command) or (sys.executable, "-m", "reprieve", "explain")
        self._commands = Commands(rights, called, "explanation")

    async def ask(self, kind: str, namespace: str, name: str, visit: Visit) -> bytes:
        """Return the answer as JSON.

        Raises:
            NotFound: the viewer sees nothing of that name, or may not.
            UsageError: there is no such kind, or it cannot be answered.
            ReprieveError: there is no answer; the message states why.
        """
        asked = (*self._asked(kind, namespace, name, visit), "-o", "json")
        return await self._commands.ask(asked, b"", visit)

    def watch(self, kind: str, namespace: str, name: str, visit: Visit) -> AsyncGenerator[bytes]:
        """Return the lines of `-o jsonl`: partial answers as they are found, then the complete one.

        Raises:
            NotFound, UsageError: as of `ask`.
            ReprieveError: as of `ask`, while it is iterated.
        """
        asked = (*self._asked(kind, namespace, name, visit), "-o", "jsonl")
        return self._commands.lines(asked, visit)

    @staticmethod
    def _asked(kind: str, namespace: str, name: str, visit: Visit) -> tuple[str, ...]:
        for each in (kind, namespace, name):
            if not _NAME.fullmatch(each):
                raise UsageError("accepted: /api/explain/KIND/NAMESPACE/NAME, such as job/team-a/x")
        if not visit.viewer.sees(namespace):
            raise NotFound(f"no {kind} {namespace}/{name}")
        if PREEMPTIONS in asked_of(f"{kind}/{name}").resources:
            raise UsageError("a preemption has a page of its own")
        return f"{kind}/{name}", "--namespace", namespace


class RowExplanations:
    """Runs `reprieve explain` for the rows of a table, one query of all viewers at a time.

    Viewers are served in turn: one who queries again at once keeps no other from an answer.

    Args:
        rights, command: as of `Explanations`.
        clock: for the pauses.
    """

    def __init__(self, rights: Rights, clock: Clock, command: Sequence[str] = ()) -> None:
        called = tuple(command) or (sys.executable, "-m", "reprieve", "explain")
        self._commands = Commands(rights, called, "explanation")
        self._clock = clock
        self._free = Nanos(0)
        self._busy = False
        # By viewer: the number of the last query, and when one who has to wait is due.
        self._served: dict[str, int] = {}
        self._due: dict[str, Nanos] = {}

    async def watch(self, units: Sequence[str], visit: Visit) -> AsyncGenerator[bytes]:
        """Yield a line for each object that the viewer sees, or one that states when to query.

        Raises:
            UsageError: no object is named, too many are, or what is none.
            ReprieveError: there is no answer, while it is iterated.
        """
        if not 0 < len(units) <= MOST_ROWS or not all(map(_UNIT.fullmatch, units)):
            raise UsageError(f"accepted: 1 to {MOST_ROWS} times unit=KIND/NAMESPACE/NAME")
        seen = [each for each in units if visit.viewer.sees(each.split("/")[1])]
        pause = self._free - self._clock.monotonic()
        if not seen:
            return
        if self._busy or pause > 0 or self._is_turn_of_another(visit.name):
            seconds = -(-max(pause, SECOND) // SECOND)
            self._due[visit.name] = Nanos(self._clock.monotonic() + seconds * SECOND)
            yield b'{"again": %d}\n' % seconds
            return
        self._busy, began = True, self._clock.monotonic()
        self._due.pop(visit.name, None)
        self._served[visit.name] = max(self._served.values(), default=0) + 1
        try:
            async with aclosing(self._commands.lines((*seen, "-o", "jsonl"), visit)) as lines:
                async for line in lines:
                    yield line
        finally:
            now = self._clock.monotonic()
            self._busy = False
            self._free = Nanos(now + max(_SHORTEST_PAUSE, _PAUSES * (now - began)))

    def _is_turn_of_another(self, viewer: str) -> bool:
        """Return whether a viewer waits whose last answer is older, and is due by now."""
        now, served = self._clock.monotonic(), self._served
        self._due = {name: due for name, due in self._due.items() if now < due + _LATE}
        known = {viewer, *self._due}
        # Who has not queried for a while has the first turn again.
        self._served = {name: number for name, number in served.items() if name in known}
        mine = self._served.get(viewer, 0)
        return any(
            name != viewer and due <= now and self._served.get(name, 0) < mine
            for name, due in self._due.items()
        )
