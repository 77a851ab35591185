"""A self-signed certificate for a server that does not create one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def write(certificate: Path, key: Path) -> None:
    """Write a new key and a self-signed certificate for localhost, both PEM, valid for one year."""
    own_key = ec.generate_private_key(ec.SECP256R1())
    localhost = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(localhost)
        .issuer_name(localhost)
        .public_key(own_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .sign(own_key, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(Encoding.PEM))
    key.write_bytes(own_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
