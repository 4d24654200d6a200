"""Kubeconfigs of all kinds: merged, with plugins, broken; and what people are told."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.kube import credentials
from reprieve.kube.credentials import CredentialsError, Headers, load_connection

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def _kubeconfig(
    name: str = "one", server: str = "http://127.0.0.1:8001", **user: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": user}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}
        ],
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: Any, name: str = "config.yaml") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return write


async def test_a_kubeconfig_gives_server_token_and_namespace(write: Write) -> None:
    path = write(_kubeconfig(token="secret", server="http://127.0.0.1:8001/k8s/"))
    connection = await load_connection(str(path))
    assert connection.server == "http://127.0.0.1:8001/k8s"
    assert connection.tls is None
    assert connection.namespace == "ns-one"
    assert await connection.headers() == {"Authorization": "Bearer secret"}
    assert str(path) in connection.origin


async def test_kubeconfigs_of_the_variable_are_merged(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(_kubeconfig("one", token="1"), "one"), write(_kubeconfig("two", token="2"), "t")]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, [*paths, "/nowhere"])))
    connection = await load_connection(context="two")
    assert connection.namespace == "ns-two"
    assert await connection.headers() == {"Authorization": "Bearer 2"}


async def test_user_and_password_are_sent_as_basic(write: Write) -> None:
    connection = await load_connection(str(write(_kubeconfig(username="u", password="p"))))
    expected = base64.b64encode(b"u:p").decode()
    assert await connection.headers() == {"Authorization": f"Basic {expected}"}


async def test_an_exec_plugin_is_run_and_run_again_after_a_rejection(
    write: Write, tmp_path: Path
) -> None:
    script = tmp_path / "plugin.py"
    counter = tmp_path / "count"
    script.write_text(
        "import json, pathlib\n"
        f"path = pathlib.Path({str(counter)!r})\n"
        "count = int(path.read_text()) + 1 if path.exists() else 1\n"
        "path.write_text(str(count))\n"
        'print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", '
        '"kind": "ExecCredential", "status": {"token": f"token-{count}"}}))\n'
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(script)],
        "interactiveMode": "Never",
    }
    connection = await load_connection(str(write(_kubeconfig(exec=plugin))))
    assert await connection.headers() == {"Authorization": "Bearer token-1"}
    assert await connection.headers() == {"Authorization": "Bearer token-1"}
    assert await connection.headers(True) == {"Authorization": "Bearer token-2"}


async def test_an_exec_plugin_that_fails_is_named(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", "import sys; sys.exit('no ticket')"],
    }
    with pytest.raises(CredentialsError, match=r"exec plugin .* failed"):
        await load_connection(str(write(_kubeconfig(exec=plugin))))
    assert "no ticket" in caplog.text


async def test_a_missing_file_is_named_with_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CredentialsError, match=r"--kubeconfig: no file /nowhere/config; accepted"):
        await load_connection("/nowhere/config")
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    with pytest.raises(CredentialsError, match=r"\$KUBECONFIG: no file /nowhere/config; accepted"):
        await load_connection()


async def test_no_cluster_anywhere_says_where_was_looked() -> None:
    with pytest.raises(CredentialsError, match=r"no --kubeconfig, no \$KUBECONFIG"):
        await load_connection()
    with pytest.raises(CredentialsError, match="no cluster to talk to"):
        await load_connection(context="one")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: [", "not YAML"),
        ("- 1\n", "not a kubeconfig; accepted: a mapping"),
        ("", "not a kubeconfig"),
        ({"contexts": "x"}, "contexts is not a list"),
        ({"apiVersion": "v1", "contexts": []}, "current-context"),
        (_kubeconfig(server="127.0.0.1"), "is no URL; accepted: https"),
        ({**_kubeconfig(), "clusters": []}, "clusters"),
    ],
    ids=["yaml", "list", "empty", "contexts", "no context", "server", "no cluster"],
)
async def test_a_file_that_is_no_kubeconfig_says_what_is_wrong(
    write: Write, content: Any, told: str
) -> None:
    path = write(content)
    with pytest.raises(CredentialsError, match=told) as caught:
        await load_connection(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_an_unknown_context_is_answered_with_the_known_ones(write: Write) -> None:
    with pytest.raises(CredentialsError, match="no context 'three'; accepted: one"):
        await load_connection(str(write(_kubeconfig())), "three")


async def test_certificates_that_are_none_are_named(write: Write) -> None:
    content = _kubeconfig(server="https://127.0.0.1:6443")
    content["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(
        b"junk"
    ).decode()
    with pytest.raises(CredentialsError, match="certificates cannot be used"):
        await load_connection(str(write(content)))


async def test_https_checks_certificates_unless_told_not_to(write: Write) -> None:
    content = _kubeconfig(server="https://127.0.0.1:6443")
    connection = await load_connection(str(write(content)))
    assert connection.tls is not None
    assert connection.tls.check_hostname
    content["clusters"][0]["cluster"] |= {
        "insecure-skip-tls-verify": True,
        "tls-server-name": "api",
        "proxy-url": "http://proxy:3128",
    }
    connection = await load_connection(str(write(content)))
    assert connection.tls is not None
    assert not connection.tls.check_hostname
    assert (connection.tls_server_name, connection.proxy) == ("api", "http://proxy:3128")


async def test_headers_are_looked_up_again_after_ten_seconds() -> None:
    clock = VirtualClock()
    tokens = iter("abc")
    headers = Headers(lambda: next(tokens), clock=clock)
    assert (await headers())["Authorization"] == "a"
    await clock.advance(9 * SECOND)
    assert (await headers())["Authorization"] == "a"
    await clock.advance(2 * SECOND)
    answers = await asyncio.gather(headers(), headers())
    assert [answer["Authorization"] for answer in answers] == ["b", "b"]


async def test_a_pod_uses_its_service_account_and_reads_the_token_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import certifi
    from kubernetes.config import incluster_config

    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("first")
    (account / "namespace").write_text("kaiwo-system")
    shutil.copy(certifi.where(), account / "ca.crt")
    monkeypatch.setattr(credentials, "_SERVICE_ACCOUNT", account)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(account / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(account / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    connection = await load_connection()
    assert (connection.server, connection.namespace) == ("https://10.0.0.1:443", "kaiwo-system")
    assert (await connection.headers())["Authorization"].lower() == "bearer first"
    (account / "token").write_text("second")
    assert (await connection.headers(True))["Authorization"].lower() == "bearer second"


def test_the_light_modules_import_nothing_heavy() -> None:
    code = (
        "import sys; import reprieve.kube.resource, reprieve.kube.errors, json; "
        "print(json.dumps(sorted({'aiohttp', 'kubernetes', 'yaml', 'msgspec', 'asyncio'} "
        "& set(sys.modules))))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == []
