"""`GET /api/explain/KIND/NAMESPACE/NAME`: the answer of `reprieve explain -o json`.

Requests that accept `application/x-ndjson` get it in parts: a line for each, as `-o jsonl` prints
them, and one with `error` where no complete one follows. It is made with the viewer's rights: why
the work waits, who holds what it lacks, and changes that the engine has tried.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from kubeworld.units.untrusted import Form
from reprieve.answers.kinds import asked_of
from reprieve.kube.resource import PREEMPTIONS
from reprieve.units.errors import UsageError
from reprieve.web.server.commands import Commands, Rights
from reprieve.web.server.door import Visit
from reprieve.web.tables import NotFound

__all__ = ["Explanations"]

#: As the API server accepts names; nothing that a command could read as an option.
_NAME: Final = Form(r"[a-z0-9](?:[-a-z0-9.]*+)", 253)


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

    def _asked(self, kind: str, namespace: str, name: str, visit: Visit) -> tuple[str, ...]:
        for each in (kind, namespace, name):
            if not _NAME.fullmatch(each):
                raise UsageError("accepted: /api/explain/KIND/NAMESPACE/NAME, such as job/team-a/x")
        if not visit.viewer.sees(namespace):
            raise NotFound(f"no {kind} {namespace}/{name}")
        if PREEMPTIONS in asked_of(f"{kind}/{name}").resources:
            raise UsageError("a preemption has a page of its own")
        return f"{kind}/{name}", "--namespace", namespace
