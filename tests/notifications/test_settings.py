"""Messages go to hosts that the operator named, and to public addresses unless named in full."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from reprieve.notifications.resolver import PublicResolver
from reprieve.notifications.settings import (
    AllowedHosts,
    NotAllowed,
    Target,
    notification_settings,
)
from reprieve.units.errors import UsageError


def allowed(*hosts: str) -> AllowedHosts:
    found = notification_settings(hosts, None)
    assert found is not None
    return found.allowed


@pytest.mark.parametrize(
    ("pattern", "url", "named"),
    [
        ("hooks.slack.com", "https://hooks.slack.com/services/T/B/x", True),
        ("Hooks.Slack.com", "https://hooks.SLACK.com./services?a=b", True),
        ("hooks.slack.com", "https://hooks.slack.com:443/x", True),
        ("relay.chat.svc:8080", "http://relay.chat.svc:8080/x", True),
        ("relay.chat.svc:8443", "https://relay.chat.svc:8443/x", True),
        ("10.0.0.5:8080", "http://10.0.0.5:8080/x", True),
        ("*.example.com", "https://a.b.example.com/x", False),
        ("*.example.com:8443", "https://a.example.com:8443/x", False),
    ],
)
def test_a_host_that_was_named_is_called(pattern: str, url: str, named: bool) -> None:
    target = allowed(pattern).target(f"{url}#part")
    assert isinstance(target, Target)
    assert target.named is named
    assert "#" not in target.url


@pytest.mark.parametrize(
    "url",
    [
        "https://other.com/x",
        "https://example.com.evil.com/x",
        "https://notexample.com/x",
        "https://example.com/x",  # the domain itself is not below it
        "http://a.example.com/x",
        "http://a.example.com:443/x",
        "https://a.example.com:6443/x",
        "https://user:password@a.example.com/x",
        "https://a.example.com@evil.com/x",
        "https://evil.com\\@a.example.com/x",
        "https://[::1]/x",
        "https://[::1/x",
        "https://169.254.169.254/latest",
        "https://a.example.com:99999/x",
        "file:///etc/passwd",
        "//a.example.com/x",
        "",
        "https://a.example.com/" + "x" * 2_000,
    ],
)
def test_no_other_url_is_called(url: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        allowed("*.example.com").target(url)
    assert len(str(refused.value)) < 400
    assert "password" not in str(refused.value)


@pytest.mark.parametrize(
    "pattern", ["", "*", "https://a.com", "a.com/x", "a.com:0", "a.com:99999", "a.com:x", "*.*.com"]
)
def test_a_host_that_is_none_is_refused_with_what_is_accepted(pattern: str) -> None:
    with pytest.raises(UsageError, match=r"--notify: .* is no host; accepted: "):
        notification_settings([pattern], None)


def test_a_key_that_cannot_sign_is_refused(tmp_path: Path) -> None:
    short, good = tmp_path / "short", tmp_path / "good"
    short.write_bytes(b"12345\n")
    good.write_bytes(b"0123456789abcdef\n")
    with pytest.raises(UsageError, match=r"5 bytes are too few; accepted: 16 or more"):
        notification_settings(["a.com"], short)
    with pytest.raises(UsageError, match=r"--notify-key .*none: No such file"):
        notification_settings(["a.com"], tmp_path / "none")
    with pytest.raises(UsageError, match=r"there is no --notify HOST"):
        notification_settings([], good)
    found = notification_settings(["a.com"], good)
    assert found is not None and found.key == b"0123456789abcdef"
    assert notification_settings([], None) is None


class Names(AbstractResolver):
    """A resolver that knows these addresses for every name."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        answer: Any = [{"hostname": host, "host": each, "port": port} for each in self.addresses]
        return list(answer)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "inside",
    [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "192.168.1.1",
        "100.64.0.1",
        "fd00::1",
        "ff0e::1",
        "::ffff:10.0.0.1",
        "2002:a00:1::",
        "64:ff9b::a9fe:a9fe",
    ],
)
async def test_a_name_that_stands_for_an_address_inside_is_called_only_if_named(
    inside: str,
) -> None:
    resolver = PublicResolver(allowed("*.example.com", "relay.svc:80"), Names(inside))
    with pytest.raises(OSError, match="at no public address; name it in full"):
        await resolver.resolve("a.example.com", 443)
    assert [each["host"] for each in await resolver.resolve("relay.svc", 80)] == [inside]
    both = PublicResolver(allowed("*.example.com"), Names(inside, "1.1.1.1"))
    assert [each["host"] for each in await both.resolve("a.example.com", 443)] == ["1.1.1.1"]
