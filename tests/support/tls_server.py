"""A real HTTPS server on this machine whose connections go wrong as they are told to, one after another."""

from __future__ import annotations

import enum
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Fate(enum.Enum):
    """What becomes of a connection; all that follow the last one told are answered."""

    HANDSHAKE_DROPPED = "closed in the middle of the handshake"
    HANDSHAKE_SILENT = "nothing comes after the client's first bytes"
    CUT = "closed in the middle of an answer, without TLS's own goodbye"
    UNANSWERED = "closed once the request has been read"
    ANSWERED = "answered"


@dataclass
class TlsServer:
    """endpoint   its URL
    authority  file of the certificate that signs its own
    requests   heads and bodies of the requests that it has read
    """

    endpoint: str
    authority: Path
    requests: list[bytes] = field(default_factory=list)


@contextmanager
def tls_server(
    folder: Path, fates: Sequence[Fate], *, body: bytes = b"{}", status: str = "200 OK"
) -> Iterator[TlsServer]:
    """Serve `body` over TLS; one connection a request."""
    authority, key = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, key)
    answer = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = TlsServer(f"https://127.0.0.1:{listener.getsockname()[1]}", authority)
        left = list(fates)
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    raw, _ = listener.accept()
                except OSError:
                    return
                fate = left.pop(0) if left else Fate.ANSWERED
                if fate is Fate.HANDSHAKE_SILENT:
                    held.append(raw)
                else:
                    with suppress(OSError):
                        _one(raw, context, fate, answer.encode() + body, server.requests)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()
            thread.join(10)


def _one(raw: socket.socket, context: ssl.SSLContext, fate: Fate, answer: bytes, requests: list[bytes]) -> None:
    with raw:
        if fate is Fate.HANDSHAKE_DROPPED:
            raw.recv(1)
            return
        with context.wrap_socket(raw, server_side=True) as connection:
            requests.append(_request(connection))
            if fate is Fate.CUT:
                connection.sendall(answer[:-1])
            elif fate is Fate.ANSWERED:
                connection.sendall(answer)
                connection.unwrap().close()
                return
            # Only the socket below: TLS's close_notify is not sent.
            socket.socket(fileno=connection.detach()).close()


def _request(connection: ssl.SSLSocket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    sizes = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while sizes and len(body) < int(sizes[0]):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "tls.pem", folder / "tls.key"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_file, key_file
