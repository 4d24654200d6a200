"""The operator's notice API over HTTP: `GET /v1/notice` and `POST /v1/notice/ID`."""

from __future__ import annotations

import json
import math
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Callable

__all__ = ["Away", "HttpSource", "Told"]

_SLACK_S = 15  # how much longer than a poll its answer may take
_ANSWER_S = 10


class Away(Exception):
    """Nobody answered, or nobody who knows."""


class Told:
    """A notice as the operator told it. `due`: when it ends, by `monotonic`."""

    def __init__(self, answer: dict[str, Any], monotonic: Callable[[], float]) -> None:
        """Read an answer of the operator.

        Raises:
            ValueError: it is none.
        """
        try:
            self.id = str(answer["id"])
            self.state = str(answer["state"])
            self.reason = str(answer.get("reason", ""))
            now = _instant(answer["now"])
            left = _instant(answer["deadline"]) - now
        except (KeyError, TypeError) as missing:
            raise ValueError(f"no notice: {missing!r}") from None
        self._now, self._heard = now, monotonic()
        self.due = self._heard + left.total_seconds()

    def instant_at(self, monotonic: float) -> str:
        """Return an instant by the operator's clock, rounded up to whole seconds."""
        later = timedelta(seconds=math.ceil(monotonic - self._heard))
        return (self._now + later).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def withdrawn(self) -> bool:
        """Whether the unit stays after all."""
        return self.state == "Pardoned"

    @property
    def waits(self) -> bool:
        """Whether the operator still waits for a word."""
        return self.state in ("Noticed", "Saving")


class HttpSource:
    """Asks the operator. The token is read anew each time, since the kubelet renews it."""

    def __init__(
        self, url: str, token: Path, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = url.rstrip("/") + "/v1/notice"
        self._token = token
        self.monotonic = monotonic
        # A proxy is for what is outside of the cluster.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, wait: int = 0) -> Told | None:
        """Return the notice of this pod as soon as there is one, None after so many seconds.

        Raises:
            Away: nobody answered.
        """
        return self._sent(f"{self._url}?wait={wait}", None, wait + _SLACK_S)

    def say(self, id: str, state: str, **more: Any) -> Told | None:
        """Report the state of this pod; return the notice, None where it is not known any more.

        Raises:
            Away: nobody answered.
        """
        body = json.dumps({"state": state, **more}).encode()
        return self._sent(f"{self._url}/{id}", body, _ANSWER_S)

    def _sent(self, url: str, body: bytes | None, timeout: float) -> Told | None:
        try:
            headers = {"Authorization": f"Bearer {self._token.read_text().strip()}"}
            request = urllib.request.Request(url, body, headers)
            with self._opener.open(request, timeout=timeout) as answer:
                text = answer.read()
                return Told(json.loads(text), self.monotonic) if answer.status == 200 else None
        except urllib.error.HTTPError as refusal:
            refusal.close()
            if refusal.code == 404:
                return None
            raise Away(f"{refusal.code} {refusal.reason}") from None
        except (OSError, ValueError) as failure:
            raise Away(str(failure)) from None


def _instant(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
