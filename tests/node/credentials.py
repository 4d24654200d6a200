"""Certificates of one cluster: an authority, servers, and clients with their kubeconfigs."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority"]


class Authority:
    """Signs for one cluster, whose API server is at `server`; all files lie in `folder`."""

    def __init__(self, folder: Path, server: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificate = folder / "ca.crt"
        self._server = server
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("node-tests", "")
        made = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        signed = made.sign(self._key, hashes.SHA256())
        self.certificate.write_bytes(signed.public_bytes(Encoding.PEM))

    def server(self, name: str, names: Sequence[str]) -> None:
        """Write `NAME.crt` and `NAME.key` of a server with these names and addresses."""
        self._sign(name, _name(name, ""), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, name: str, user: str, group: str = "") -> Path:
        """Write the certificate of a user, and return its kubeconfig."""
        self._sign(name, _name(user, group), ExtendedKeyUsageOID.CLIENT_AUTH, ())
        cluster = {"server": self._server, "certificate-authority": str(self.certificate)}
        credentials = {
            "client-certificate": str(self.folder / f"{name}.crt"),
            "client-key": str(self.folder / f"{name}.key"),
        }
        path = self.folder / f"{name}.kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": credentials}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def accounts(self) -> tuple[Path, Path]:
        """Write the keys by which tokens of ServiceAccounts are signed and checked."""
        key = rsa.generate_private_key(65537, 2048)
        private, public = self.folder / "accounts.key", self.folder / "accounts.pub"
        form = (Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        private.write_bytes(key.private_bytes(*form))
        public.write_bytes(
            key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        return private, public

    def _sign(
        self, name: str, subject: x509.Name, usage: x509.ObjectIdentifier, names: Sequence[str]
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names:
            alternatives = x509.SubjectAlternativeName([_alternative(each) for each in names])
            builder = builder.add_extension(alternatives, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        (self.folder / f"{name}.crt").write_bytes(signed.public_bytes(Encoding.PEM))
        (self.folder / f"{name}.key").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        )

    def _builder(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=2))
        )


def _name(common: str, organization: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
