"""A stand-in in front of an API server, which fails what is written to objects of some names.

Each answer looks like one of an API server that is overloaded, or does not know the object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from reprieve.kube.errors import Unreachable
from reprieve.kube.transport import Answer, HttpWire, Request
from tests.kube.fakes import FakeAnswer, status

REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
WEBHOOK = 'admission webhook "immune.example.com" denied the request: '
#: A policy whose message has the words of an authorizer about a missing right.
POLICY = (
    "things \"kept\" is forbidden: ValidatingAdmissionPolicy 'immune' with binding 'immune' denied "
    'request: User "u" cannot patch resource "things" in API group "": '
)


class FailingWrites:
    """Fails writes of the first object for which `evicts` holds, with code 0 without an answer.

    `evicts` judges method, path and body of a request whose path matches `path`, of which the first
    group is the name of the object. `everybody`: it fails all requests whatever they are. `most`:
    how many fail.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        path: str,
        evicts: Callable[[str, Any], bool],
        code: int,
        before: str = "",
        most: int | None = None,
    ) -> None:
        self.name, self.tries, self.everybody, self._over = "", 0, False, False
        self._path, self._evicts = re.compile(path), evicts
        self._code, self._before, self._most = code, before, most
        sent = HttpWire.send

        async def send(wire: HttpWire, request: Request, stream: bool, rejected: bool) -> Answer:
            if self._fails(request):
                self.tries += 1
                return self._answer()
            return await sent(wire, request, stream, rejected)

        monkeypatch.setattr(HttpWire, "send", send)

    def end(self) -> None:
        """From now on no request fails."""
        self._over = True

    def _fails(self, request: Request) -> bool:
        if self._most is not None and self.tries >= self._most:
            return False
        if self._over or self.everybody:
            return not self._over
        found = self._path.search(request.path)
        if found is None or request.method == "GET":
            return False
        body = json.loads(request.body or b"{}")
        if not isinstance(body, dict) or not self._evicts(request.method, body):
            return False
        self.name = self.name or found.group(1)
        return found.group(1) == self.name

    def _answer(self) -> FakeAnswer:
        if not self._code:
            raise Unreachable("no answer in time")
        said = status(self._code, REASONS[self._code], f"{self._before}not now")
        return FakeAnswer(self._code, said)
