"""Sigstore's services on this machine: an authority that certifies identities, and a log with room for one entry.

Their answers are what the `sigstore` package demands of the real ones: certificates with the timestamp of a log of
certificates, and entries with a promise, a proof of inclusion and a signed checkpoint.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import struct
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

CLIENT = "sigstore"
_SINCE = {"start": "2020-01-01T00:00:00Z"}
_ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_SCTS = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")


def _der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_der(key)).digest()


def _octets(content: bytes) -> bytes:
    """Return the DER of an OCTET STRING."""
    length = len(content)
    return b"\x04" + (bytes([length]) if length < 128 else b"\x82" + length.to_bytes(2, "big")) + content


def _segment(value: object) -> str:
    return b64encode(json.dumps(value).encode()).decode().rstrip("=").replace("+", "-").replace("/", "_")


class Sigstore:
    """The keys of the services, and what they answer.

    Attributes:
        refuses: Whether the authority certifies nobody.
    """

    def __init__(self) -> None:
        self.refuses = False
        self.url = ""
        self._authority, self._certificates, self._log = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self._root = (
            self
            ._certificate(self._name, self._authority.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_authority=True), critical=True)
            .sign(self._authority, hashes.SHA256())
        )

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509
            .CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=1))
            .not_valid_after(now + dt.timedelta(minutes=10))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )

    def token(self, identity: str, issuer: str) -> str:
        """Return what an identity provider says of somebody; nobody looks at its signature."""
        now = int(time.time())
        claims = {"iss": issuer, "aud": CLIENT, "sub": identity, "iat": now, "exp": now + 600}
        return f"{_segment({'alg': 'HS256', 'typ': 'JWT'})}.{_segment(claims)}.AAAA"

    def trust_config(self) -> dict[str, Any]:
        """Return where the services are, and their public keys."""
        service = {"url": self.url, "majorApiVersion": 1, "validFor": _SINCE, "operator": "here"}
        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service],
                "oidcUrls": [service],
                "rekorTlogUrls": [service],
                "tsaUrls": [],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaConfig": {"selector": "ANY"},
            },
            "trustedRoot": {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [self._instance(self._log)],
                "ctlogs": [self._instance(self._certificates)],
                "timestampAuthorities": [],
                "certificateAuthorities": [
                    {
                        "subject": {"organization": "here", "commonName": "authority"},
                        "uri": self.url,
                        "certChain": {"certificates": [{"rawBytes": _text(self._root.public_bytes(Encoding.DER))}]},
                        "validFor": _SINCE,
                    }
                ],
            },
        }

    def _instance(self, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
        public = {"rawBytes": _text(_der(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": _SINCE}
        return {
            "baseUrl": self.url,
            "hashAlgorithm": "SHA2_256",
            "publicKey": public,
            "logId": {"keyId": _text(_id(key))},
        }

    def certified(self, request: bytes, token: str) -> list[str]:
        """Return a certificate for a key and its issuer's."""
        claims = json.loads(b64decode(token.split(".")[1] + "==", altchars=b"-_"))
        key: Any = x509.load_pem_x509_csr(request).public_key()
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._authority.public_key())
        builder = (
            self
            ._certificate(x509.Name([]), key)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(authority, critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.RFC822Name(claims["sub"])]), critical=True)
            .add_extension(x509.UnrecognizedExtension(_ISSUER, claims["iss"].encode()), critical=False)
        )
        before = builder.sign(self._authority, hashes.SHA256()).tbs_certificate_bytes
        stamped = builder.add_extension(x509.UnrecognizedExtension(_SCTS, self._timestamp(before)), critical=False)
        leaf = stamped.sign(self._authority, hashes.SHA256())
        return [certificate.public_bytes(Encoding.PEM).decode() for certificate in (leaf, self._root)]

    def _timestamp(self, certificate: bytes) -> bytes:
        """Return the list of one timestamp that the log of certificates gives (RFC 6962)."""
        now = struct.pack(">Q", int(time.time() * 1000))
        entry = b"\0\1" + _id(self._authority) + len(certificate).to_bytes(3, "big") + certificate + b"\0\0"
        signature = self._certificates.sign(b"\0\0" + now + entry, ec.ECDSA(hashes.SHA256()))
        stamp = b"\0" + _id(self._certificates) + now + b"\0\0\4\3" + struct.pack(">H", len(signature)) + signature
        stamps = struct.pack(">H", len(stamp)) + stamp
        return _octets(struct.pack(">H", len(stamps)) + stamps)

    def logged(self, proposed: dict[str, Any]) -> dict[str, Any]:
        """Return the entry of a log that has only this one."""
        content = proposed["spec"]["proposedContent"]
        envelope = json.loads(content["envelope"])
        payload = hashlib.sha256(b64decode(envelope["payload"])).hexdigest()
        signatures = [
            {"signature": each["sig"], "verifier": content["verifiers"][0]} for each in envelope["signatures"]
        ]
        spec = {
            "envelopeHash": {
                "algorithm": "sha256",
                "value": hashlib.sha256(content["envelope"].encode()).hexdigest(),
            },
            "payloadHash": {"algorithm": "sha256", "value": payload},
            "signatures": signatures,
        }
        body = _canonical({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        root = hashlib.sha256(b"\0" + body).digest()
        promised = {
            "body": _text(body),
            "integratedTime": int(time.time()),
            "logID": _id(self._log).hex(),
            "logIndex": 0,
        }
        note = f"here\n1\n{_text(root)}\n"
        checkpoint = f"{note}\n— here {_text(_id(self._log)[:4] + self._signed(note.encode()))}\n"
        proof = {"logIndex": 0, "rootHash": root.hex(), "treeSize": 1, "hashes": [], "checkpoint": checkpoint}
        promise = _text(self._signed(_canonical(promised)))
        return {"0": promised | {"verification": {"inclusionProof": proof, "signedEntryTimestamp": promise}}}

    def _signed(self, content: bytes) -> bytes:
        return self._log.sign(content, ec.ECDSA(hashes.SHA256()))


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(not is_authority, *[False] * 4, is_authority, is_authority, False, False)


def _text(content: bytes) -> str:
    return b64encode(content).decode()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class _Handler(BaseHTTPRequestHandler):
    sigstore: Sigstore

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/log/entries"):
            self._answer(201, self.sigstore.logged(request))
        elif self.sigstore.refuses:
            self._answer(403, {"message": f"no certificate for {self.headers['Authorization']}"})
        else:
            token = self.headers["Authorization"].removeprefix("Bearer ")
            chain = self.sigstore.certified(b64decode(request["certificateSigningRequest"]), token)
            self._answer(201, {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}})

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def running_sigstore() -> Iterator[Sigstore]:
    """Run the services until the block ends."""
    sigstore = Sigstore()
    handler = type("_Bound", (_Handler,), {"sigstore": sigstore})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    sigstore.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield sigstore
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
