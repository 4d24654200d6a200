"""Certificates of clients of the webhooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from reprieve.planes.quota.webhooks.certificates import Certificates


def client(*names: str) -> tuple[Certificates, bytes]:
    """Return a client's certificate, for these names, and its authority."""
    key, signer = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    subject, issuer = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (names[0], "them")
    )
    moment = datetime.now(UTC)
    found = []
    for name, public, authority in (
        (issuer, signer.public_key(), True),
        (subject, key.public_key(), False),
    ):
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - timedelta(hours=1))
            .not_valid_after(moment + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
            others = x509.SubjectAlternativeName([x509.DNSName(each) for each in names[1:]])
            builder = builder.add_extension(usage, False)
            builder = builder.add_extension(others, False) if names[1:] else builder
        found.append(builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificates(found[1], private), found[0]
