"""Where the API server is and how to prove who we are.

Merging kubeconfig files, exec plugins, OIDC and re-reading service account tokens are left to the
configuration part of the official `kubernetes` package, imported on first use (its import time and
memory: docs/dependencies.md). Order: the file that is named, `$KUBECONFIG`, the service account of
the pod, `~/.kube/config`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubeworld.units.clock import Clock, SystemClock
from kubeworld.units.durations import SECOND
from reprieve.units.errors import UsageError

__all__ = ["Connection", "CredentialsError", "context_names", "load_connection", "preload"]

# Exec plugins and token files are queried again no more often than this.
_HEADERS_KEPT: Final = 10 * SECOND
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class CredentialsError(UsageError):
    """The kubeconfig or the service account cannot be used."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One API server and the credentials for it.

    Attributes:
        server: URL without a trailing slash, possibly with a path.
        tls: None for plain HTTP.
        headers: see `Headers`; call it before every request.
        namespace: what the context names, or the pod's own; `default` where nothing does.
        tls_server_name: name to check the certificate against, None for the host of `server`.
        proxy: URL of an HTTP proxy, or None.
        origin: where this came from, for messages.
        context: its name in the kubeconfig; empty inside a pod.
    """

    server: str
    tls: ssl.SSLContext | None
    headers: Headers
    namespace: str = "default"
    tls_server_name: str | None = None
    proxy: str | None = None
    origin: str = ""
    context: str = ""


class Headers:
    """Fresh authentication headers: `await headers()`.

    Tokens are looked up again after 10 s, in a thread, since plugins are programs. After a 401,
    `await headers(rejected=True)` loads the credentials anew.
    """

    def __init__(
        self,
        token: Callable[[], str | None],
        reload: Callable[[], Callable[[], str | None]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._token = token
        self._reload = reload
        self._clock = clock or SystemClock()
        self._asked: int | None = None  # monotonic time of the last look-up, None before it
        self._headers: dict[str, str] = {}
        self._lock = asyncio.Lock()

    async def __call__(self, rejected: bool = False) -> Mapping[str, str]:
        """Return the headers.

        Raises:
            CredentialsError: a plugin failed, or a token file cannot be read.
        """
        if not rejected and self._fresh():
            return self._headers
        async with self._lock:
            # Others may have looked it up while this call waited for the lock.
            if rejected or not self._fresh():
                value = await asyncio.to_thread(self._look_up, rejected)
                self._headers = {"Authorization": value} if value else {}
                self._asked = self._clock.monotonic()
        return self._headers

    def _fresh(self) -> bool:
        return self._asked is not None and self._clock.monotonic() - self._asked < _HEADERS_KEPT

    def _look_up(self, rejected: bool) -> str | None:
        try:
            if rejected and self._reload is not None:
                self._token = self._reload()
            return self._token()
        except UsageError:
            raise
        except Exception as cause:
            raise CredentialsError(f"credentials cannot be refreshed: {_line(cause)}") from cause


def preload() -> None:
    """Import what reading credentials needs, once for this process and those that it forks."""
    importlib.import_module("kubernetes.config.kube_config")


async def load_connection(
    kubeconfig: str | None = None, context: str | None = None, clock: Clock | None = None
) -> Connection:
    """Find the API server and the credentials for it.

    Args:
        kubeconfig: a file, or several as in `$KUBECONFIG`; None looks in the usual places.
        context: a context of the kubeconfig; None for its current one.
        clock: for the age of tokens.

    Raises:
        CredentialsError: no file, not YAML, no such context, a plugin that fails, no credentials
            anywhere; the message states where and what is accepted.
    """
    paths, source = _files(kubeconfig)
    if not paths:
        if context is not None:
            raise CredentialsError(
                f"context {context!r} needs a kubeconfig, and none was found; accepted: "
                "--kubeconfig FILE, $KUBECONFIG or ~/.kube/config"
            )
        return await asyncio.to_thread(_from_service_account, clock)
    return await asyncio.to_thread(_from_files, paths, source, context, clock)


def context_names(kubeconfig: str | None = None) -> list[str]:
    """Return the contexts of a kubeconfig, or of those in the usual places.

    Raises:
        CredentialsError: there is none, or it cannot be read.
    """
    paths, source = _files(kubeconfig)
    return _context_names(paths, source)


def _files(kubeconfig: str | None) -> tuple[list[str], str]:
    """Return the files to merge and the switch that named them; no files inside a pod."""
    named = kubeconfig or os.environ.get("KUBECONFIG")
    if named:
        source = "--kubeconfig" if kubeconfig else "$KUBECONFIG"
        paths = [str(Path(part).expanduser()) for part in named.split(os.pathsep) if part]
        found = [path for path in paths if Path(path).is_file()]
        if not found:
            raise CredentialsError(
                f"{source}: no file {named}; accepted: a kubeconfig file, or several separated "
                f"by {os.pathsep!r} of which at least one exists"
            )
        return found, source
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (_SERVICE_ACCOUNT / "token").is_file():
        return [], ""
    usual = Path.home() / ".kube" / "config"
    if usual.is_file():
        return [str(usual)], "kubeconfig"
    raise CredentialsError(
        "no cluster to talk to: no --kubeconfig, no $KUBECONFIG, no service account of a pod, no "
        "~/.kube/config; one of them is needed"
    )


def _from_files(
    paths: list[str], source: str, context: str | None, clock: Clock | None
) -> Connection:
    where = f"{source} {os.pathsep.join(paths)}"
    names = _context_names(paths, source)
    if context is not None and context not in names:
        raise CredentialsError(
            f"{where}: no context {context!r}; accepted: {', '.join(names) or 'none is defined'}"
        )
    settings, namespace, name = _load_files(paths, where, context)

    def reload() -> Callable[[], str | None]:
        return _token_of(_load_files(paths, where, context)[0])

    headers = Headers(_token_of(settings), reload, clock)
    return _connection(settings, headers, namespace, where, name)


def _context_names(paths: list[str], source: str) -> list[str]:
    """Return the contexts that the files define, after checking that each is a kubeconfig."""
    import yaml

    from reprieve.units.bounded_yaml import read_yaml

    names: list[str] = []
    for path in paths:
        try:
            content = read_yaml(Path(path).read_text(encoding="utf-8"))
        except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as cause:
            raise CredentialsError(f"{source} {path}: not YAML: {_line(cause)}") from cause
        except OSError as cause:
            raise CredentialsError(f"{source} {path}: {cause.strerror}") from cause
        if not isinstance(content, dict):
            raise CredentialsError(
                f"{source} {path}: not a kubeconfig; accepted: a mapping with clusters, users, "
                "contexts and current-context"
            )
        contexts = content.get("contexts") or []
        if not isinstance(contexts, list):
            raise CredentialsError(f"{source} {path}: contexts is not a list")
        names += [str(c["name"]) for c in contexts if isinstance(c, dict) and "name" in c]
    return names


def _load_files(paths: list[str], where: str, context: str | None) -> tuple[Any, str, str]:
    """Return the official client's `Configuration`, and the context's namespace and name."""
    from kubernetes.client import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    settings: Any = Configuration()
    try:
        merged = KubeConfigMerger(os.pathsep.join(paths))
        loader = KubeConfigLoader(
            config_dict=merged.config,
            config_base_path=None,
            active_context=context,
            config_persister=merged.save_changes,
        )
        loader.load_and_set(settings)
        name, chosen = loader.current_context["name"], loader.current_context["context"]
    except ConfigException as cause:
        raise CredentialsError(f"{where}: {_line(cause)}") from cause
    except (KeyError, TypeError, AttributeError, ValueError, OSError) as cause:
        raise CredentialsError(f"{where}: cannot be used: {_line(cause)}") from cause
    _check_plugin(merged.config_files.values(), chosen, settings, where)
    return settings, str(chosen.get("namespace") or "default"), str(name)


def _check_plugin(files: Iterable[Any], chosen: Any, settings: Any, where: str) -> None:
    """Refuse a plugin that failed: the official client logs why and continues without a user."""
    users = [user for content in files for user in content.get("users") or []]
    # The first file that defines a user wins.
    user = next((user["user"] for user in users if user["name"] == chosen.get("user")), None)
    plugin = (user or {}).get("exec")
    if plugin and not settings.api_key.get("BearerToken") and not settings.cert_file:
        raise CredentialsError(
            f"{where}: the exec plugin {plugin.get('command')!r} of user {chosen.get('user')!r} "
            "failed (its own message is in the log); accepted: a program that prints an "
            "ExecCredential with a token or a client certificate"
        )


def _from_service_account(clock: Clock | None) -> Connection:
    from kubernetes.client import Configuration
    from kubernetes.config import load_incluster_config
    from kubernetes.config.config_exception import ConfigException

    def load() -> Any:
        settings = Configuration()
        try:
            load_incluster_config(client_configuration=settings)
        except ConfigException as cause:
            raise CredentialsError(f"service account {_SERVICE_ACCOUNT}: {cause}") from cause
        return settings

    settings = load()
    try:
        namespace = (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        namespace = ""
    headers = Headers(_token_of(settings), lambda: _token_of(load()), clock)
    return _connection(settings, headers, namespace or "default", f"service account of {namespace}")


def _token_of(settings: Any) -> Callable[[], str | None]:
    def token() -> str | None:
        value: str | None = settings.get_api_key_with_prefix("BearerToken")
        if value is None and settings.username and settings.password:
            value = settings.get_basic_auth_token()
        return value

    return token


def _connection(
    settings: Any, headers: Headers, namespace: str, origin: str, context: str = ""
) -> Connection:
    server = str(settings.host).rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise CredentialsError(
            f"{origin}: server {server!r} is no URL; accepted: https://HOST:PORT"
        )
    tls = None
    if server.startswith("https://"):
        try:
            tls = ssl.create_default_context(cafile=settings.ssl_ca_cert)
            if settings.cert_file:
                tls.load_cert_chain(settings.cert_file, keyfile=settings.key_file)
        except (OSError, ssl.SSLError) as cause:
            raise CredentialsError(
                f"{origin}: the certificates cannot be used: {_line(cause)}; accepted: PEM"
            ) from cause
        # Cluster authorities made before 2024 often lack what X.509 strictness requests.
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not settings.verify_ssl:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
    return Connection(
        server=server,
        tls=tls,
        headers=headers,
        namespace=namespace,
        tls_server_name=settings.tls_server_name or None,
        proxy=settings.proxy or None,
        origin=origin,
        context=context,
    )


def _line(cause: BaseException) -> str:
    return " ".join(str(cause).split()) or type(cause).__name__
