"""A stand-in of the operator, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Operator:
    """What is answered next, and what was said."""

    def __init__(self) -> None:
        self.notice: dict[str, Any] | None = None
        self.refusals: list[int] = []
        self.said: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.url = ""
        self.saved = threading.Event()
        self.heard = threading.Event()

    def answer(self, path: str, body: dict[str, Any] | None, token: str) -> tuple[int, Any]:
        self.tokens.append(token)
        if self.refusals:
            return self.refusals.pop(0), None
        if body is not None:
            self.said.append({"path": path, **body})
            self.heard.set()
            if self.notice is None:
                return 404, None
            self.notice = {
                **self.notice,
                "state": "Saved" if body["state"] == "saved" else "Saving",
            }
            if body["state"] == "saved":
                self.saved.set()
        return (204, None) if self.notice is None else (200, self.notice)


@pytest.fixture(autouse=True)
def no_polls_left() -> Iterator[None]:
    """Fail a test whose thread still polls: it would log in the tests after it."""
    yield
    left = [each for each in threading.enumerate() if each.name == "reprieve-notice"]
    for each in left:
        each.join(10)
    assert not any(each.is_alive() for each in left), "notices of the test are not closed"


@pytest.fixture
def operator() -> Iterator[Operator]:
    found = Operator()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            self._answer(json.loads(self.rfile.read(length)))

        def _answer(self, body: dict[str, Any] | None) -> None:
            status, answer = found.answer(self.path, body, self.headers["Authorization"])
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if status in (301, 307):
                self.send_header("Location", self.path)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield found
        server.shutdown()
        serving.join()
