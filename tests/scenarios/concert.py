"""Plays many scenarios at once in a thread of its own, since they mostly wait.

Each has an embedded cluster of its own in that thread's event loop, and its operator as a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from reprieve.scenarios.embedded import embedded_stage
from reprieve.scenarios.model import load
from reprieve.scenarios.result import ScenarioResult
from reprieve.scenarios.runner import play_scenario
from reprieve.scenarios.steps import Requires

AT_ONCE = 6
SCHEDULER: tuple[str, ...] = ("--scheduler-name", "default-scheduler")
# Who requires Kueue gets our quota plane: its kinds are read as v1beta1, which webhooks convert.
WITH_WEBHOOKS: dict[str, Any] = {"quota": {"webhooks": {"url": "https://127.0.0.1:0"}}}


class Concert:
    """The scenarios of the files, each played once; `result` waits for one of them."""

    def __init__(self, files: Sequence[Path], folder: Path) -> None:
        self._folder = folder
        self._results: dict[Path, Future[ScenarioResult]] = {file: Future() for file in files}
        self._loop = asyncio.new_event_loop()
        self._all: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="concert", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def result(self, file: Path) -> ScenarioResult:
        """Return what came of a file's scenario, or raise what kept it from being played."""
        return self._results[file].result()

    def stop(self) -> None:
        """End what still plays; operators and clusters are stopped before this returns."""

        def cancel() -> None:
            if self._all is not None:
                self._all.cancel()

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
        self._all = asyncio.current_task()
        places = asyncio.Semaphore(AT_ONCE)
        plays = [asyncio.create_task(self._play(file, places)) for file in self._results]
        try:
            await asyncio.gather(*plays)
        except asyncio.CancelledError:
            await asyncio.gather(*plays, return_exceptions=True)
        finally:
            for future in self._results.values():
                future.cancel()

    async def _play(self, file: Path, places: asyncio.Semaphore) -> None:
        future = self._results[file]
        try:
            async with places:
                folder = self._folder / f"{file.parent.name}-{file.stem}"
                folder.mkdir()
                scenario = load(file)
                arguments: tuple[str, ...] = ()
                kueue = any(isinstance(step, Requires) for step in scenario.steps)
                if kueue:
                    scenario = msgspec.structs.replace(scenario, operator_config=WITH_WEBHOOKS)
                    arguments = ("--controllers", "idle,quota")
                elif scenario.controllers:
                    arguments = (*SCHEDULER, "--controllers", ",".join(scenario.controllers))
                async with embedded_stage(
                    scenario.nodes,
                    folder,
                    operator_arguments=arguments,
                    scheduler="scheduling" not in scenario.controllers,
                    kueue=kueue,
                ) as embedded:
                    result = await play_scenario(scenario, embedded.stage)
                future.set_result(result)
        except Exception as error:  # the test that asks for this result reports it
            future.set_exception(error)
