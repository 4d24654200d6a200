"""Plays groups of the golden table in a thread of its own, a few side by side.

They mostly wait for kubectl. Each case's answer is a future; a group that cannot be played fails
all of its cases.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.kubectl.golden import Answer, Case, Group

__all__ = ["Play"]

COMMAND_TIMEOUT_S: Final = 90.0
AWAIT_S: Final = 60.0
AWAIT_AGAIN_S: Final = 0.3
# By how much longer than recorded a watch is, and the time until something happens during it.
PATIENCE: Final = 2.5

# Brings a cluster up for a group and leaves the kubeconfig at the path.
Cluster = Callable[[Group, Path], AbstractAsyncContextManager[None]]


class Play:
    """The answers to all cases of some groups; `answer` waits for one of them."""

    def __init__(
        self,
        groups: Sequence[Group],
        kubectl: Path,
        cluster: Cluster,
        folder: Path,
        *,
        at_once: int,
    ) -> None:
        self._groups, self._kubectl, self._cluster = groups, kubectl, cluster
        self._folder, self._at_once = folder, at_once
        self._answers: dict[tuple[str, str], Future[Answer]] = {
            (group.name, case.name): Future() for group in groups for case in group.cases
        }
        self._loop = asyncio.new_event_loop()
        # Groups that still play; one whose cluster stops is left to do so.
        self._playing: set[asyncio.Task[None] | None] = set()
        self._thread = threading.Thread(target=self._run, name="golden table", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def answer(self, group: str, case: str) -> Answer:
        """Return what was answered, or raise what kept the case from being played."""
        return self._answers[group, case].result()

    def __exit__(self, *_: object) -> None:
        """End what still plays; clusters are stopped before this returns."""

        def cancel() -> None:
            for task in self._playing:
                if task is not None:
                    task.cancel()

        with contextlib.suppress(RuntimeError):  # everything was played, the loop is closed
            self._loop.call_soon_threadsafe(cancel)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._play_all())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _play_all(self) -> None:
        places = asyncio.Semaphore(self._at_once)
        plays = [asyncio.create_task(self._play(group, places)) for group in self._groups]
        self._playing.update(plays)
        try:
            await asyncio.gather(*plays, return_exceptions=True)
        finally:
            for future in self._answers.values():
                future.cancel()

    async def _play(self, group: Group, places: asyncio.Semaphore) -> None:
        try:
            async with places:
                folder = self._folder / group.name
                folder.mkdir()
                kubeconfig = folder / "kubeconfig"
                async with self._cluster(group, kubeconfig):
                    terminal = _Terminal.prepared(self._kubectl, kubeconfig, folder, group)
                    await terminal.run(("create", "namespace", group.namespace))
                    for case in group.cases:
                        answer = await terminal.play(case)
                        self._answers[group.name, case.name].set_result(answer)
                    for argv in group.cleanup:
                        await terminal.run(argv)
                    self._playing.discard(asyncio.current_task())
        except Exception as error:  # the tests that ask for the answers report it
            for case in group.cases:
                if not self._answers[group.name, case.name].done():
                    self._answers[group.name, case.name].set_exception(error)


@dataclass(frozen=True)
class _Terminal:
    """A working folder with a group's files, and an environment without traces of the user."""

    kubectl: Path
    folder: Path
    environment: dict[str, str]

    @classmethod
    def prepared(cls, kubectl: Path, kubeconfig: Path, folder: Path, group: Group) -> _Terminal:
        work = folder / "work"
        work.mkdir()
        for name, text in group.files.items():
            (work / name).write_text(text, encoding="utf-8")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "TZ": "UTC",
            "KUBECONFIG": str(kubeconfig),
            "KUBECTL_KUBERC": "false",
        }
        return cls(kubectl, work, environment)

    async def play(self, case: Case) -> Answer:
        """Play a case; what happens during it may come later than it did, as on a busy machine."""
        await asyncio.sleep(case.sleep)
        argv = tuple(map(_patient, case.argv)) if case.during else case.argv
        deadline = time.monotonic() + AWAIT_S
        while True:
            beside = [self._beside(one.after * PATIENCE, one.argv) for one in case.during]
            answer, _ = await asyncio.gather(
                self.run(argv, case.stdin, case.env), asyncio.gather(*beside)
            )
            if case.until is None or re.search(case.until, answer.stdout + answer.stderr):
                return answer
            if time.monotonic() > deadline:
                return answer
            await asyncio.sleep(AWAIT_AGAIN_S)

    async def run(
        self, argv: Sequence[str], stdin: str | None = None, env: Mapping[str, str] | None = None
    ) -> Answer:
        """Run one command; one that does not end in time is killed and has the exit code -9."""
        process = await asyncio.create_subprocess_exec(
            self.kubectl,
            *argv,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            # The recorded commands had no discovery cache either: a stale one would answer wrong.
            env={**self.environment, **(env or {}), "KUBECACHEDIR": os.devnull},
        )
        talk = asyncio.create_task(process.communicate(None if stdin is None else stdin.encode()))
        try:
            await asyncio.wait({talk}, timeout=COMMAND_TIMEOUT_S)
        finally:
            if process.returncode is None and not talk.done():
                process.kill()
            stdout, stderr = await talk
        return Answer(stdout.decode(), stderr.decode(), process.returncode or 0)

    async def _beside(self, after: float, argv: Sequence[str]) -> None:
        await asyncio.sleep(after)
        await self.run(argv)


def _patient(argument: str) -> str:
    found = re.fullmatch(r"--request-timeout=(\d+)s", argument)
    return f"--request-timeout={int(found[1]) * PATIENCE:g}s" if found else argument
