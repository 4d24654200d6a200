"""`Notices`: what a training loop checks, and `Notice`: what it returns.

A daemon thread queries the operator with long polls from the first call of `due` on. Once the pod
is notified it checks every few seconds whether the notice still stands, and repeats the pod's
report, so that an operator that has just become the leader receives it. The first report is that
the pod saves: it is sent once `due` has returned the notice, since a notice that the loop never
sees is of no use.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from pathlib import Path
from typing import Any, Callable

from reprieve_notice.agreement import agreement
from reprieve_notice.file import FileSource
from reprieve_notice.http import Away, HttpSource
from reprieve_notice.notified import Notified

__all__ = ["Notice", "Notices"]

log = logging.getLogger("reprieve_notice")

_TOKEN = "/var/run/secrets/reprieve.dev/token"
_CA = "/var/run/secrets/reprieve.dev/ca.crt"
_POLL_S = 55
_LOOK_S = 5.0  # between questions whether a notice still stands, of one process in a pod
_LONGEST_LOOK_S = 45.0
_LONGEST_PAUSE_S = 30.0
_INSIST_S = 30.0
_REPORT_S = 60.0  # between two reports of ordinary saves


class Notices:
    """The notices of this pod; in a pod without any, `due` never returns one.

    `source`: what to query; without it the variables REPRIEVE_NOTICE_URL, REPRIEVE_NOTICE_TOKEN and
    REPRIEVE_NOTICE_CA name it, else REPRIEVE_NOTICE_FILE names a file that is read. `pause` waits
    for so many seconds, and returns whether `close` was called.
    """

    def __init__(
        self,
        source: HttpSource | FileSource | None = None,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self._source = source or _source_of_the_pod()
        self._closed = threading.Event()
        self._pause = pause or self._closed.wait
        self._notified: Notified | None = None
        self._word: dict[str, Any] | None = None  # what was stated last, and the id it is about
        self._process = 0  # that runs the thread: a fork has none
        # When the last ordinary save was that is not reported yet, and its step.
        self._saved: tuple[float, int | None] | None = None
        self._reported = -math.inf  # when one was reported last

    def due(self, step: int = 0, every: int = 1) -> Notice | None:
        """Return the notice of this pod, or of any rank, at steps that `every` divides.

        A pod that has reported that it has saved is not due again. Every rank of
        torch.distributed has to call this with the same `step`.
        """
        if step % every:
            return None
        self._start()
        mine, any_rank = self._is_due(), agreement()
        if mine:
            self._heed()
        return Notice(self) if (mine if any_rank is None else any_rank(mine)) else None

    def _heed(self) -> None:
        """Have the thread report that the notice is seen, and that this pod will save."""
        notified, word = self._notified, self._word
        if notified is not None and (word is None or word["id"] != notified.id):
            self._word = {"id": notified.id, "state": "saving"}

    def _is_due(self) -> bool:
        notified, word = self._notified, self._word
        if notified is None or word is None:
            return notified is not None
        return (word["id"], word["state"]) != (notified.id, "saved")

    def checkpoint(self, step: int | None = None) -> None:
        """Report an ordinary save, which has nothing to do with any notice; costs no request.

        The thread reports it within a minute or two, where the administrator allows it. What the
        work would lose by its eviction counts from there.
        """
        if self._source is None or not self._source.hears:
            return
        self._start()
        self._saved = self._source.monotonic(), step

    def close(self) -> None:
        """Poll no longer."""
        self._closed.set()

    @property
    def remaining(self) -> float:
        """Return the seconds until the deadline; 0 once it has passed, or where there is none."""
        notified = self._notified
        if notified is None or self._source is None:
            return 0.0
        return max(0.0, notified.due - self._source.monotonic())

    @property
    def id(self) -> str:
        """Return by what the operator knows the notice, empty where there is none."""
        return "" if self._notified is None else self._notified.id

    @property
    def reason(self) -> str:
        """Return why the pod got notice, empty where it has none."""
        return "" if self._notified is None else self._notified.reason

    def instant_in(self, seconds: float) -> str:
        """Return the instant after so many seconds, by the operator's clock."""
        if self._notified is None or self._source is None:
            return ""
        return self._notified.instant_at(self._source.monotonic() + seconds)

    def report(self, state: str, **more: Any) -> bool:
        """Report the state of this pod; return whether the operator has heard it."""
        if self._source is None:
            return False
        pause, until = 1.0, self._source.monotonic() + _INSIST_S
        while True:
            try:
                notified = self._notified or self._source.ask()
                if notified is None:
                    return False
                self._word = {"id": notified.id, "state": state, **more}
                self._notified = notified = self._source.report(notified.id, state, **more)
                return self._source.hears and notified is not None and not notified.withdrawn
            except Away as failure:
                log.warning("the operator does not hear that this pod is %s: %s", state, failure)
            if self._source.monotonic() >= until or self._pause(pause):
                return False
            pause *= 2

    def _start(self) -> None:
        if self._source is None or self._process == os.getpid() or self._closed.is_set():
            return
        self._process = os.getpid()
        threading.Thread(target=self._run, name="reprieve-notice", daemon=True).start()

    def _run(self) -> None:
        pause, refused = 1.0, False
        while not self._closed.is_set():
            try:
                self.ask(_POLL_S)
                self.report_checkpoint()
                pause, refused = 1.0, False
                wait = 0.0 if self._notified is None else _look_s()
            except Away as failure:
                # Trying again does not help there, unless the kubelet renews the token.
                level = logging.WARNING if failure.status == 401 and not refused else logging.INFO
                refused = refused or failure.status == 401
                log.log(level, "no answer about notices: %s", _explained(failure))
                wait, pause = pause, min(2 * pause, _LONGEST_PAUSE_S)
            if wait and self._pause(wait):
                return

    def report_checkpoint(self) -> None:
        """Report the last ordinary save, if there is a new one.

        Raises:
            Away: no operator answered.
        """
        source, saved = self._source, self._saved
        if not isinstance(source, HttpSource) or saved is None:
            return
        now = source.monotonic()
        if now - self._reported < _REPORT_S:
            return
        source.checkpoint(int(now - saved[0]), saved[1])
        self._reported = now
        if self._saved == saved:
            self._saved = None

    def ask(self, wait: int = 0) -> None:
        """Poll once: for a notice, or whether the one that is known still stands.

        Raises:
            Away: no operator answered.
        """
        if self._source is None:
            return
        before = self._notified
        notified = self._source.ask(0 if before is not None else wait)
        if notified is None and before is not None:
            log.info("the notice is withdrawn")
        word = self._word
        if (
            notified is not None
            and notified.waits
            and word is not None
            and word["id"] == notified.id
        ):
            notified = self._source.report(**word)
        self._notified = notified


class Notice:
    """That this pod is evicted soon."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices

    @property
    def remaining(self) -> float:
        """Return the seconds that are left to save."""
        return self._notices.remaining

    @property
    def id(self) -> str:
        """Return by what the operator knows it."""
        return self._notices.id

    @property
    def reason(self) -> str:
        """Return why it is evicted."""
        return self._notices.reason

    def saving(self, seconds: float | None = None) -> bool:
        """Report that saving has begun; return whether the operator has heard it.

        `seconds`: its duration. Where that is longer than the time that is left, the deadline is
        extended once, as far as the administrator allows.
        """
        more = {} if seconds is None else {"expected": self._notices.instant_in(seconds)}
        return self._notices.report("saving", **more)

    def saved(self, step: int | None = None, checkpoint: str = "") -> bool:
        """Report that this pod has saved; return whether the operator has heard it."""
        more: dict[str, Any] = {} if step is None else {"step": step}
        if checkpoint:
            more["checkpoint"] = checkpoint
        return self._notices.report("saved", **more)


def _explained(failure: Away) -> str:
    if failure.status != 401:
        return str(failure)
    return (
        f"{failure}: the operator does not accept the token of this pod: it has to be a projected "
        "one with the audience reprieve.dev, read from the volume and not copied"
    )


def _look_s() -> float:
    """Return how often this process looks: those of a pod share its requests of a minute."""
    found = os.environ.get("LOCAL_WORLD_SIZE", "")  # torchrun
    processes = int(found) if found.isdecimal() and len(found) < 5 else 1
    return min(_LOOK_S * max(processes, 1), _LONGEST_LOOK_S)


def _source_of_the_pod() -> HttpSource | FileSource | None:
    url, token = os.environ.get("REPRIEVE_NOTICE_URL"), os.environ.get("REPRIEVE_NOTICE_TOKEN")
    ca = Path(os.environ.get("REPRIEVE_NOTICE_CA") or _CA)
    file = os.environ.get("REPRIEVE_NOTICE_FILE")
    if url:
        return HttpSource(url, Path(token or _TOKEN), ca=ca)
    return FileSource(Path(file)) if file else None
