"""Trainings of the demo that request notice: they save on notice, and report it.

The embedded cluster runs no containers. Each running pod with the annotation `reprieve.dev/notice`
is played here as its container would: it queries the operator over HTTP with the token of its pod,
saves for some seconds once it is notified, and reports the step that it has saved. Source: the
requests in `docs/notice-reference.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import aiohttp

from kubeworld.units.durations import SECOND
from reprieve.api.reprieve import NOTICE
from reprieve.scenarios.demo.cast import Pace
from reprieve.scenarios.stage import Stage

__all__ = ["Trainings"]

_LOOK_S: Final = 0.5  # between looks for pods that have started
_POLL_S: Final = 55
_AGAIN_S: Final = 2.0  # after no operator answered
_SAVE: Final = 1.0  # seconds of the demo that a save lasts
_STEP: Final = 0.5  # seconds of the demo that a step lasts


class _Pod(NamedTuple):
    """A pod that trains. `job`: what it is part of, `since`: when it was seen first, monotonic."""

    uid: str
    namespace: str
    job: str
    account: str
    since: int


class Trainings:
    """All of them. `address`: where the operator answers, empty while it does not.

    `token_of(account, uid)` returns a token of that pod for the operator. `report` is called with
    one line for each job that has saved.
    """

    def __init__(
        self,
        stage: Stage,
        pace: Pace,
        address: Callable[[], str],
        token_of: Callable[[str, str], str],
        report: Callable[[str], None],
    ) -> None:
        self._stage, self._pace = stage, pace
        self._address, self._token_of, self._report = address, token_of, report
        self._playing: dict[str, asyncio.Task[None]] = {}
        self._said: set[tuple[str, str]] = set()  # job and notice

    async def run(self) -> None:
        """Play them until cancelled."""
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            while True:
                running = {each.uid: each for each in self._running()}
                for uid, pod in running.items():
                    if uid not in self._playing:
                        self._playing[uid] = tasks.create_task(self._train(session, pod))
                for uid in [*self._playing.keys() - running.keys()]:
                    self._playing.pop(uid).cancel()
                self._said = {each for each in self._said if each[0] in _jobs(running.values())}
                await asyncio.sleep(_LOOK_S)

    def _running(self) -> list[_Pod]:
        found = []
        for pod in self._stage.observer.all("pods"):
            metadata, status = pod["metadata"], pod.get("status") or {}
            if NOTICE not in (metadata.get("annotations") or {}):
                continue
            if status.get("phase") != "Running" or metadata.get("deletionTimestamp"):
                continue
            (owner, *_) = metadata.get("ownerReferences") or [{"name": metadata["name"]}]
            account = pod["spec"].get("serviceAccountName") or "default"
            user = f"system:serviceaccount:{metadata['namespace']}:{account}"
            since = self._stage.clock.monotonic()
            found.append(_Pod(metadata["uid"], metadata["namespace"], owner["name"], user, since))
        return found

    async def _train(self, session: aiohttp.ClientSession, pod: _Pod) -> None:
        """Be the container of a pod until it is cancelled."""
        saved = ""
        while True:
            try:
                reported = await self._asked(session, pod, 0 if saved else _POLL_S)
                if reported is not None and reported["id"] != saved:
                    await self._save(session, pod, reported)
                    saved = reported["id"]
                elif reported is not None:
                    await asyncio.sleep(_AGAIN_S)  # it computes on until it is evicted
                else:
                    saved = ""  # it was pardoned
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                await asyncio.sleep(_AGAIN_S)

    async def _save(
        self, session: aiohttp.ClientSession, pod: _Pod, reported: dict[str, Any]
    ) -> None:
        await self._reported(session, pod, reported["id"], {"state": "saving"})
        await asyncio.sleep(self._pace.seconds(_SAVE))
        ran = (self._stage.clock.monotonic() - pod.since) / SECOND
        step = int(ran / self._pace.seconds(_STEP))
        word = {"state": "saved", "step": step, "checkpoint": f"/checkpoints/{pod.job}/{step}"}
        await self._reported(session, pod, reported["id"], word)
        if (pod.job, reported["id"]) not in self._said:
            self._said.add((pod.job, reported["id"]))
            self._report(
                f"{pod.namespace}/{pod.job} was notified of its eviction and saved step {step}"
            )

    async def _asked(
        self, session: aiohttp.ClientSession, pod: _Pod, wait: int
    ) -> dict[str, Any] | None:
        """Return the notice of a pod, None where there is none."""
        url = f"{self._url()}?wait={wait}"
        async with session.get(url, headers=self._headers(pod)) as answer:
            answer.raise_for_status()
            found: dict[str, Any] | None = await answer.json() if answer.status == 200 else None
            return found

    async def _reported(
        self, session: aiohttp.ClientSession, pod: _Pod, id: str, word: dict[str, Any]
    ) -> None:
        url = f"{self._url()}/{id}"
        async with session.post(url, json=word, headers=self._headers(pod)) as answer:
            answer.raise_for_status()

    def _url(self) -> str:
        address = self._address()
        if not address:
            raise ValueError("the operator does not answer pods yet")
        return f"{address}/v1/notice"

    def _headers(self, pod: _Pod) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token_of(pod.account, pod.uid)}"}


def _jobs(pods: Iterable[_Pod]) -> set[str]:
    return {each.job for each in pods}
