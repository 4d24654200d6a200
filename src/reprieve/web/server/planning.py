"""`POST /api/plan`: the answer of `reprieve plan -o json`, asked with the rights of who looks.

The plan is made by a process of its own, so that deciding holds up no page and a fault in it ends
with it; two at once at most, each for at most a minute. The manifest goes in by standard input. The
process gets the user's kubeconfig by its name; in the cluster it gets one that lies in a directory
which this process alone may read, since arguments and variables can be seen by others.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from reprieve.kube.credentials import Connection
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.web.server.door import Visit

__all__ = ["Plans", "Question", "as_viewer", "with_kubeconfig"]

_AT_ONCE: Final = 2
_WAITING: Final = 8
_TIME_S: Final = 60.0
_LONGEST_ERROR: Final = 4_000
_LONGEST_NAMESPACE: Final = 63
#: The exit code of a command that was asked what it cannot answer.
_USAGE: Final = 2


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked: manifests in YAML or JSON, and the namespace of those that name none."""

    manifest: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class _Outcome:
    code: int
    output: bytes
    errors: str


#: Gives the options of `reprieve plan` that say which cluster, and with whose rights.
Rights = Callable[[Visit], AbstractAsyncContextManager[Sequence[str]]]


class Plans:
    """Asks `reprieve plan`.

    Args:
        rights: for each question, the options that carry the rights of who asks.
        command: how the command is called.
    """

    def __init__(self, rights: Rights, command: Sequence[str] = ()) -> None:
        self._rights = rights
        self._command = tuple(command) or (sys.executable, "-m", "reprieve", "plan")
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def ask(self, question: Question, visit: Visit) -> bytes:
        """Return the document of the plan, as JSON.

        Raises:
            UsageError: the manifest or the namespace cannot be used.
            ReprieveError: there is no answer; the message says why.
        """
        if len(question.namespace) > _LONGEST_NAMESPACE:
            raise UsageError(f"namespace: accepted: at most {_LONGEST_NAMESPACE} characters")
        if not question.manifest.strip():
            raise UsageError("manifest: empty; accepted: one or several objects in YAML or JSON")
        if self._waiting >= _WAITING:
            raise ReprieveError("many plans are being made; try again in a minute")
        self._waiting += 1
        try:
            async with self._turns, self._rights(visit) as options:
                outcome = await self._run(question, options)
        finally:
            self._waiting -= 1
        if outcome.code == 0:
            return outcome.output
        text = outcome.errors.removeprefix("Error: ").strip()[:_LONGEST_ERROR]
        if outcome.code == _USAGE:
            raise UsageError(text)
        raise ReprieveError(text or "the plan could not be made")

    async def _run(self, question: Question, options: Sequence[str]) -> _Outcome:
        namespace = ("--namespace", question.namespace) if question.namespace else ()
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *("-f", "-", "-o", "json", *namespace, *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_TIME_S):
                output, errors = await process.communicate(question.manifest.encode())
        except TimeoutError:
            raise ReprieveError(
                f"the plan was not made within {_TIME_S:.0f} s; reprieve plan has no such limit"
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        assert process.returncode is not None
        return _Outcome(process.returncode, output, errors.decode(errors="replace"))


def with_kubeconfig(kubeconfig: str | None, context: str | None) -> Rights:
    """Return the rights of the user whose kubeconfig this server uses."""
    options = (
        *(() if kubeconfig is None else ("--kubeconfig", kubeconfig)),
        *(() if context is None else ("--context", context)),
    )

    @asynccontextmanager
    async def rights(visit: Visit) -> AsyncIterator[Sequence[str]]:
        yield options

    return rights


def as_viewer(connection: Connection) -> Rights:
    """Return the rights of who asks, by their token, at the API server of a connection."""
    cluster: dict[str, Any] = {"server": connection.server}
    if connection.tls_server_name is not None:
        cluster["tls-server-name"] = connection.tls_server_name
    if connection.tls is not None and connection.tls.verify_mode is ssl.CERT_NONE:
        cluster["insecure-skip-tls-verify"] = True
    elif connection.tls is not None:
        authorities = connection.tls.get_ca_certs(binary_form=True)
        text = "".join(map(ssl.DER_cert_to_PEM_cert, authorities))
        cluster["certificate-authority-data"] = base64.b64encode(text.encode()).decode()

    @asynccontextmanager
    async def rights(visit: Visit) -> AsyncIterator[Sequence[str]]:
        with tempfile.TemporaryDirectory(prefix="reprieve-plan-") as directory:
            path = Path(directory) / "kubeconfig"
            document = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "it", "cluster": cluster}],
                "users": [{"name": "who", "user": {"token": visit.token}}],
                "contexts": [{"name": "here", "context": {"cluster": "it", "user": "who"}}],
                "current-context": "here",
            }
            path.touch(mode=0o600, exist_ok=False)
            path.write_bytes(msgspec.json.encode(document))
            yield ("--kubeconfig", str(path))

    return rights
