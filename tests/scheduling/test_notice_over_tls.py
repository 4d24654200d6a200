"""Notice over TLS: the operator keeps an authority, pods trust its ConfigMap and nothing else."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.instants import Nanos
from reprieve.kube.resource import CONFIG_MAPS, PODS, SECRETS
from reprieve.planes.quota.webhooks.certificates import new_certificates
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve_notice import Notices
from reprieve_notice.http import Away, HttpSource
from tests.scheduling.site import NAMESPACE, Site, node, pod, site

_CONFIG = "scheduling: {notice: {max: 10m}}\n"
_NOW = Nanos(1_700_000_000 * 10**9)


async def _address(cluster: Site, scheme: str = "https") -> str:
    line = re.search(r"notice server listens on port (\d+), TLS", "\n".join(cluster.lines))
    assert line is not None
    return f"{scheme}://127.0.0.1:{line[1]}"


async def _token(cluster: Site, folder: Path) -> Path:
    uid = (await cluster.client.get(PODS, NAMESPACE, "low", dict))["metadata"]["uid"]
    account = f"system:serviceaccount:{NAMESPACE}:default"
    found = folder / "token"
    found.write_text(cluster.embedded.cluster.token(account, ("reprieve.dev",), pod_uid=uid))
    return found


async def _authority(cluster: Site, folder: Path) -> Path:
    async def published() -> Any:
        page = await cluster.client.list(CONFIG_MAPS, dict, namespace=OPERATOR_NAMESPACE)
        return [each for each in page.items if each["metadata"]["name"] == "asks-ca"]

    await cluster.until("the authority is published", published)
    (found,) = await published()
    assert set(found["data"]) == {"ca.crt"}, "no key leaves the Secret"
    file = folder / "ca.crt"
    file.write_text(found["data"]["ca.crt"])
    return file


def _reached_by_curl(url: str, token: Path, ca: Path) -> None:
    curl = shutil.which("curl")
    for trusted in (["--cacert", str(ca)], []) if curl is not None else ():
        header = f"Authorization: Bearer {token.read_text()}"
        asked = [str(curl), "-sSf", *trusted, "-H", header, f"{url}/v1/notice?wait=55"]
        found = subprocess.run(asked, capture_output=True, check=False)
        assert (found.returncode == 0) == bool(trusted), found.stderr
        assert (b'"state":"Noticed"' in found.stdout) == bool(trusted)


async def test_a_pod_saves_over_tls_and_trusts_only_the_published_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(_CONFIG)
    async with site([node("node-0")], tmp_path / "cluster") as cluster:
        await cluster.classes()
        low = pod("low", 4, priority="low")
        low["metadata"]["annotations"] = {"reprieve.dev/notice": "10m"}
        await cluster.create(low)
        await cluster.operator(
            "--config", str(config), "--notice-port", "0", "--notice-tls", "asks"
        )
        await cluster.until_placed({"low"})
        await cluster.run()
        await cluster.create(pod("high", 4, priority="high"))
        token, ca = await _token(cluster, tmp_path), await _authority(cluster, tmp_path)
        url = await _address(cluster)

        other = tmp_path / "other.crt"
        other.write_bytes(new_certificates(("127.0.0.1",), _NOW).trusted)
        for unknown in (None, tmp_path / "missing", other):
            with pytest.raises(Away, match="certificate verify failed"):
                await asyncio.to_thread(HttpSource(url, token, ca=unknown).ask)
        with pytest.raises(Away):
            plain = url.replace("https", "http")
            await asyncio.to_thread(HttpSource(plain, token, ca=ca).ask)

        monkeypatch.setenv("REPRIEVE_NOTICE_URL", url)
        monkeypatch.setenv("REPRIEVE_NOTICE_TOKEN", str(token))
        monkeypatch.setenv("REPRIEVE_NOTICE_CA", str(ca))

        def trained() -> bool:
            notices = Notices()
            notices.ask(wait=55)
            notice = notices.due()
            assert notice is not None
            notices.close()
            return notice.saved()

        await asyncio.to_thread(_reached_by_curl, url, token, ca)
        assert await asyncio.to_thread(trained)
        assert await cluster.until_victims(1) == {"low"}


async def test_every_process_serves_with_the_certificate_of_the_secret(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(_CONFIG)
    async with site([node("node-0")], tmp_path / "cluster") as cluster:
        await cluster.classes()
        arguments = ("--config", str(config), "--notice-port", "0", "--notice-tls", "asks")
        await cluster.operator(*arguments)
        await cluster.run()
        ca = (await _authority(cluster, tmp_path)).read_text()

        async def stored() -> dict[str, Any]:
            return await cluster.client.get(SECRETS, OPERATOR_NAMESPACE, "asks-tls", dict)

        before = (await stored())["data"]
        await cluster.client.delete(CONFIG_MAPS, OPERATOR_NAMESPACE, "asks-ca")
        await cluster.operator(*arguments)
        await cluster.run()
        assert (await _authority(cluster, tmp_path)).read_text() == ca
        assert (await stored())["data"] == before
