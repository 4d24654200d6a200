"""The certificate of webhooks, and of notices over TLS: of our own authority, or another's files.

Our own authority and the serving certificate lie in one Secret of the operator's namespace, so that
every process of a deployment serves with the same ones. What has less than a third of its life left
is made anew; after the authority changed, clients trust the old and the new one until the old ends,
since another process may still serve with a certificate of the old one. With cert-manager the files
are mounted, and it keeps both them and what clients trust up to date.

Source: specification of the quota plane, sections 1.6 and 12.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeworld.units.instants import Nanos
from reprieve.kube.errors import AlreadyExists, Conflict, NotFound
from reprieve.kube.own_writer import OwnWriter
from reprieve.kube.resource import SECRETS
from reprieve.kube.retry import retried
from reprieve.units.errors import UsageError

__all__ = [
    "Certificates",
    "certificates_in",
    "kept_certificates",
    "load_chain",
    "new_certificates",
    "renewed",
    "stored_certificates",
]


AUTHORITY_LIFE: Final = timedelta(days=3_650)
SERVING_LIFE: Final = timedelta(days=365)
_EARLY: Final = timedelta(hours=1)  # for clocks that differ
_KEYS: Final = {
    "ca.crt": "trusted",
    "ca.key": "authority_key",
    "tls.crt": "certificate",
    "tls.key": "key",
}


@dataclass(frozen=True, slots=True)
class Certificates:
    """A certificate, its key and its authority, all PEM.

    `trusted` are the authorities that clients trust, the newest first; empty where another keeps
    them. `authority_key` is empty where the authority is not ours.
    """

    certificate: bytes
    key: bytes
    trusted: bytes = b""
    authority_key: bytes = b""

    @property
    def bundle(self) -> str:
        """What clients trust, as `caBundle` wants it."""
        return base64.b64encode(self.trusted).decode()


def new_certificates(names: Sequence[str], now: Nanos, trusted: bytes = b"") -> Certificates:
    """Return a new authority and a certificate for these hosts and addresses.

    Args:
        names: of which the first is the common name.
        now: from when they hold.
        trusted: authorities that clients continue to trust.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named("reprieve-webhook-ca")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    authority = (
        _builder(subject, subject, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _issued(authority, key, names, now, trusted)


def renewed(kept: Certificates, names: Sequence[str], now: Nanos) -> Certificates:
    """Return certificates of which none has less than a third of its life left, for `names`.

    What cannot be read is made anew; authorities that can be read continue to be trusted.
    """
    moment = _moment(now)
    alive = [each for each in _authorities(kept.trusted) if each.not_valid_after_utc > moment]
    others = b"".join(map(_pem, alive))
    try:
        serving = x509.load_pem_x509_certificate(kept.certificate)
        signer = serialization.load_pem_private_key(kept.authority_key, None)
        serialization.load_pem_private_key(kept.key, None)
    except (ValueError, TypeError):
        return new_certificates(names, now, others)
    if not alive or _is_old(alive[0], moment) or not isinstance(signer, ec.EllipticCurvePrivateKey):
        return new_certificates(names, now, others)
    if _is_old(serving, moment) or _hosts(serving) != set(names) or not _signed(serving, alive[0]):
        return _issued(alive[0], signer, names, now, b"".join(map(_pem, alive[1:])))
    return kept


async def kept_certificates(
    client: OwnWriter,
    namespace: str,
    name: str,
    hosts: Sequence[str],
    now: Nanos,
    served: Certificates | None = None,
    trust: Callable[[Certificates], Awaitable[None]] | None = None,
) -> Certificates:
    """Return the certificates in a Secret, made or renewed where they have to be.

    Args:
        client: of the cluster.
        namespace: of the Secret.
        name: of the Secret.
        hosts: what the certificate is for.
        now: the wall clock.
        served: what this process serves with; it is stored again where the Secret is deleted.
        trust: has clients trust them; called before others can see what is new.

    Raises:
        ApiError: the Secret cannot be read or written, or others wrote it at every attempt.
    """

    async def once() -> Certificates:
        secret = await _secret_of(client, namespace, name)
        # The chart makes it empty.
        kept = _of_secret(secret) if secret is not None and secret.get("data") else served
        found = new_certificates(hosts, now) if kept is None else renewed(kept, hosts, now)
        if trust is not None:
            await trust(found)
        if secret is None:
            await client.create(SECRETS, _secret(namespace, name, found), dict)
        elif found != kept:
            written = {**secret, "data": {**(secret.get("data") or {}), **_encoded(found)}}
            await client.replace(SECRETS, written, dict)
        return found

    return await retried(once, client.transport.pause, (AlreadyExists, Conflict, NotFound))


async def stored_certificates(client: OwnWriter, namespace: str, name: str) -> Certificates | None:
    """Return the certificates in a Secret as they are; None without one that can be served with.

    Raises:
        ApiError: the Secret cannot be read.
    """
    secret = await _secret_of(client, namespace, name)
    found = None if secret is None or not secret.get("data") else _of_secret(secret)
    try:
        if found is not None:
            load_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), found)
    except UsageError:
        return None
    return found


def certificates_in(folder: Path) -> Certificates:
    """Return the certificate in `tls.crt` and `tls.key`; `ca.crt` is optional.

    Raises:
        UsageError: the files cannot be read.
    """
    try:
        authority = folder / "ca.crt"
        return Certificates(
            (folder / "tls.crt").read_bytes(),
            (folder / "tls.key").read_bytes(),
            authority.read_bytes() if authority.exists() else b"",
        )
    except OSError as error:
        raise UsageError(
            f"{folder}: {error.strerror or error}; accepted: a folder with tls.crt and tls.key"
        ) from None


def load_chain(context: ssl.SSLContext, certificates: Certificates) -> None:
    """Serve with these certificates from the next connection on.

    Raises:
        UsageError: they are no certificate with its key.
    """
    # The interface of OpenSSL accepts files only.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(certificates.key + b"\n" + certificates.certificate)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except (ssl.SSLError, OSError) as error:
            raise UsageError(f"the certificate and its key do not fit: {error}") from None


def _issued(
    authority: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
    now: Nanos,
    trusted: bytes,
) -> Certificates:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_named(names[0][:64]), authority.subject, key, now, SERVING_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(each) for each in names]), False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
        )
        .sign(signer, hashes.SHA256())
    )
    return Certificates(
        _pem(certificate), _key_pem(key), _pem(authority) + trusted, _key_pem(signer)
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: Nanos,
    life: timedelta,
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(now) - _EARLY)
        .not_valid_after(_moment(now) + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _hosts(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = found.get_values_for_type(x509.IPAddress)
    return {*found.get_values_for_type(x509.DNSName), *map(str, addresses)}


def _authorities(trusted: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(trusted)
    except ValueError:
        return []


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_old(certificate: x509.Certificate, now: datetime) -> bool:
    ends = certificate.not_valid_after_utc
    return (ends - now) * 3 < ends - certificate.not_valid_before_utc


def _moment(now: Nanos) -> datetime:
    return datetime.fromtimestamp(now // 1_000_000_000, UTC)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


async def _secret_of(client: OwnWriter, namespace: str, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = await client.get(SECRETS, namespace, name, dict)
    except NotFound:
        return None
    return found


def _secret(namespace: str, name: str, certificates: Certificates) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"namespace": namespace, "name": name},
        "data": _encoded(certificates),
    }


def _encoded(certificates: Certificates) -> dict[str, str]:
    return {
        file: base64.b64encode(getattr(certificates, field)).decode()
        for file, field in _KEYS.items()
    }


def _of_secret(secret: Mapping[str, Any]) -> Certificates:
    data = secret.get("data") or {}
    found = {}
    for file, field in _KEYS.items():
        try:
            found[field] = base64.b64decode(data.get(file) or "", validate=True)
        except (binascii.Error, ValueError):
            found[field] = b""
    return Certificates(**found)
