"""The operator's notice API over HTTP: `GET /v1/notice` and `POST /v1/notice/ID`."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable

from reprieve_notice.notified import Notified, instant

__all__ = ["Away", "HttpSource"]

_SLACK_S = 15  # allowance for an answer beyond the length of its poll
_ANSWER_S = 10


class Away(Exception):
    """There was no answer, or none of an operator that knows. `status`: of HTTP, 0 without one."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class HttpSource:
    """Queries the operator. The token is read anew each time, since the kubelet renews it.

    `ca`: a file with the authorities that an `https` operator is verified by, also read anew each
    time; without the file those of the system are.
    """

    hears = True

    def __init__(
        self,
        url: str,
        token: Path,
        monotonic: Callable[[], float] = time.monotonic,
        ca: Path | None = None,
    ) -> None:
        self._root = url.rstrip("/")
        self._url = self._root + "/v1/notice"
        self._token = token
        self.monotonic = monotonic
        self._ca = ca

    def ask(self, wait: int = 0) -> Notified | None:
        """Return the notice of this pod as soon as there is one, None after so many seconds.

        Raises:
            Away: no operator answered.
        """
        return self._sent(f"{self._url}?wait={wait}", None, wait + _SLACK_S)

    def report(self, id: str, state: str, **more: Any) -> Notified | None:
        """Report the state of this pod; return the notice, None where it is not known any more.

        Raises:
            Away: no operator answered.
        """
        body = json.dumps({"state": state, **more}).encode()
        return self._sent(f"{self._url}/{id}", body, _ANSWER_S)

    def checkpoint(self, ago: int, step: int | None = None) -> None:
        """Report that this pod saved so many seconds ago; not every operator records that.

        Raises:
            Away: no operator answered.
        """
        said = {"ago": ago} if step is None else {"ago": ago, "step": step}
        self._sent(f"{self._root}/v1/checkpoint", json.dumps(said).encode(), _ANSWER_S)

    def _sent(self, url: str, body: bytes | None, timeout: float) -> Notified | None:
        try:
            headers = {"Authorization": f"Bearer {self._token.read_text().strip()}"}
            request = urllib.request.Request(url, body, headers)
            with self._opener().open(request, timeout=timeout) as answer:
                text = answer.read()
                return _notified(text, self.monotonic()) if answer.status == 200 else None
        except urllib.error.HTTPError as refusal:
            refusal.close()
            if refusal.code == 404:
                return None
            raise Away(f"{refusal.code} {refusal.reason}", refusal.code) from None
        except (OSError, ValueError) as failure:
            raise Away(str(failure)) from None

    def _opener(self) -> urllib.request.OpenerDirector:
        # A proxy is for what is outside of the cluster.
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self._root.startswith("https:"):
            known = str(self._ca) if self._ca is not None and self._ca.is_file() else None
            context = ssl.create_default_context(cafile=known)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        return urllib.request.build_opener(*handlers, _NotElsewhere())


class _NotElsewhere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is for the operator alone."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _notified(text: bytes, monotonic: float) -> Notified:
    answer = json.loads(text)
    try:
        now = instant(answer["now"])
    except (KeyError, TypeError) as missing:
        raise ValueError(f"no notice: {missing!r}") from None
    return Notified.at(answer, now, monotonic)
