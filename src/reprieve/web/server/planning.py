"""`POST /api/plan`: the answer of `reprieve plan -o json`, with the rights of the viewer.

The plan is made by a process of its own (`commands`). It reads the manifest from standard input.
The process gets the user's kubeconfig by its name; in the cluster it gets one that lies in a
directory which this process alone may read, since arguments and variables can be seen by others.
"""

from __future__ import annotations

import base64
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from reprieve.kube.credentials import Connection
from reprieve.units.errors import UsageError
from reprieve.web.server.commands import Commands, Rights
from reprieve.web.server.door import Visit

__all__ = ["Plans", "Question", "as_viewer", "with_kubeconfig"]

_LONGEST_NAMESPACE: Final = 63


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """The question: manifests in YAML or JSON, and the namespace of those that name none."""

    manifest: str
    namespace: str = ""


class Plans:
    """Runs `reprieve plan`.

    Args:
        rights: for each question, the options that carry the rights of the user.
        command: how the command is called.
    """

    def __init__(self, rights: Rights, command: Sequence[str] = ()) -> None:
        called = tuple(command) or (sys.executable, "-m", "reprieve", "plan")
        self.rights = rights
        self._commands = Commands(rights, called, "plan")

    async def ask(self, question: Question, visit: Visit) -> bytes:
        """Return the document of the plan, as JSON.

        Raises:
            UsageError: the manifest or the namespace cannot be used.
            ReprieveError: there is no answer; the message states why.
        """
        if len(question.namespace) > _LONGEST_NAMESPACE:
            raise UsageError(f"namespace: accepted: at most {_LONGEST_NAMESPACE} characters")
        if not question.manifest.strip():
            raise UsageError("manifest: empty; accepted: one or several objects in YAML or JSON")
        namespace = ("--namespace", question.namespace) if question.namespace else ()
        asked = ("-f", "-", "-o", "json", *namespace)
        return await self._commands.ask(asked, question.manifest.encode(), visit)


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
    """Return the rights of the user, by their token, at the API server of a connection."""
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
