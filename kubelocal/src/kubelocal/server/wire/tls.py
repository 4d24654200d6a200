"""Certificates of the embedded cluster: an authority of its own, and what it signs.

With a data folder the authority is kept there, so that kubeconfig files hold after a restart.
Validity starts a day back, for clocks that differ, and lasts ten years.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubelocal.errors import UsageError

__all__ = ["Certified", "authority_in", "issue", "new_authority", "server_context"]

_VALID: Final = timedelta(days=3_650)
_EARLY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


def new_authority(name: str = "kubelocal") -> Certified:
    """Return a self-signed certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    builder = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _pem(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Certified, names: Sequence[str]) -> Certified:
    """Return a serving certificate for host names and IP addresses."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        _builder(subject, issuer.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        .add_extension(issued_by, critical=False)
    )
    return _pem(builder.sign(signer, hashes.SHA256()), key)


def authority_in(folder: Path | None) -> Certified:
    """Return the authority kept in `folder`, made at the first call; None keeps none.

    Raises:
        UsageError: the files there are not a certificate and its key.
    """
    if folder is None:
        return new_authority()
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if not certificate.exists() or not key.exists():
        made = new_authority()
        key.touch(mode=0o600)
        key.write_bytes(made.key)
        certificate.write_bytes(made.certificate)
    kept = Certified(certificate.read_bytes(), key.read_bytes())
    try:
        issue(kept, ["localhost"])
    except (ValueError, TypeError, AssertionError) as error:
        raise UsageError(
            f"{certificate}, {key}: no certificate authority in them ({error}); accepted: what an "
            "earlier start wrote, or neither file"
        ) from None
    return kept


def server_context(serving: Certified) -> ssl.SSLContext:
    """Return what a server listens with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The interface of OpenSSL accepts files only.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(serving.key + serving.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certified:
    encoding = serialization.Encoding.PEM
    return Certified(
        certificate.public_bytes(encoding),
        key.private_bytes(
            encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
