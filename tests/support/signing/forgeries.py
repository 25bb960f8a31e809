"""Forgeries of signatures: each changes one part of a good one, and must prove nothing."""

from __future__ import annotations

import json
import random
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import Any

from tensorkeep.signing import PrivateKey, signed_bytes

Forgery = Callable[[dict[str, Any], random.Random], bytes | None]


def _text(bundle: dict[str, Any]) -> bytes:
    return json.dumps(bundle).encode()


def _payload(bundle: dict[str, Any]) -> bytes:
    return b64decode(bundle["dsseEnvelope"]["payload"])


def _with_payload(bundle: dict[str, Any], payload: bytes) -> bytes:
    bundle["dsseEnvelope"]["payload"] = b64encode(payload).decode()
    return _text(bundle)


def _flipped(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _statement(change: Callable[[dict[str, Any], random.Random], None]) -> Forgery:
    def forge(bundle: dict[str, Any], draw: random.Random) -> bytes:
        statement = json.loads(_payload(bundle))
        change(statement, draw)
        return _with_payload(bundle, json.dumps(statement).encode())

    return forge


def _other_digest(statement: dict[str, Any], draw: random.Random) -> None:
    draw.choice(statement["predicate"]["resources"])["digest"] = draw.randbytes(32).hex()


def _other_header(statement: dict[str, Any], draw: random.Random) -> None:
    draw.choice(list(statement["predicate"]["tensorkeep"]["headers"].values()))["blake3"] = draw.randbytes(32).hex()


def _other_name(statement: dict[str, Any], draw: random.Random) -> None:
    name = draw.choice(["../model.safetensors", "/etc/passwd", "a/../../b", "C:\\x", "x\0", "", "a//b", "."])
    draw.choice(statement["predicate"]["resources"])["name"] = name


def _one_less(statement: dict[str, Any], draw: random.Random) -> None:
    resources = statement["predicate"]["resources"]
    del resources[draw.randrange(len(resources))]


def _one_more(statement: dict[str, Any], draw: random.Random) -> None:
    digest = draw.randbytes(32).hex()
    statement["predicate"]["resources"].append({"name": "evil.json", "algorithm": "sha256", "digest": digest})


def _one_twice(statement: dict[str, Any], draw: random.Random) -> None:
    resources = statement["predicate"]["resources"]
    resources.append({**draw.choice(resources), "digest": draw.randbytes(32).hex()})


def _other_subject(statement: dict[str, Any], draw: random.Random) -> None:
    statement["subject"][0]["digest"] = {"sha256": draw.randbytes(32).hex()}


def _more_subjects(statement: dict[str, Any], draw: random.Random) -> None:
    statement["subject"] *= draw.choice([0, 2, 3])


def _other_types(statement: dict[str, Any], draw: random.Random) -> None:
    statement[draw.choice(["_type", "predicateType"])] = draw.choice(["", "https://in-toto.io/Statement/v0.1", None])


def _other_algorithm(statement: dict[str, Any], draw: random.Random) -> None:
    draw.choice(statement["predicate"]["resources"])["algorithm"] = draw.choice(["md5", "sha1", "blake3", "SHA256"])


def _flip_payload(bundle: dict[str, Any], draw: random.Random) -> bytes:
    return _with_payload(bundle, _flipped(_payload(bundle), draw))


def _flip_signature(bundle: dict[str, Any], draw: random.Random) -> bytes:
    signature = bundle["dsseEnvelope"]["signatures"][0]
    signature["sig"] = b64encode(_flipped(b64decode(signature["sig"]), draw)).decode()
    return _text(bundle)


def _no_signature(bundle: dict[str, Any], draw: random.Random) -> bytes:
    signature = bundle["dsseEnvelope"]["signatures"][0]
    signature["sig"] = draw.choice(["", "AA==", "MAYCAQACAQA=", b64encode(bytes(64)).decode(), "MAYCAQECAQE="])
    return _text(bundle)


def _several_signatures(bundle: dict[str, Any], draw: random.Random) -> bytes:
    bundle["dsseEnvelope"]["signatures"] *= draw.choice([0, 2, 5])
    return _text(bundle)


def _payload_type(bundle: dict[str, Any], draw: random.Random) -> bytes:
    bundle["dsseEnvelope"]["payloadType"] = draw.choice(["", "application/json", "application/vnd.in-toto+xml", 3])
    return _text(bundle)


def _media_type(bundle: dict[str, Any], draw: random.Random) -> bytes:
    version = draw.choice(["0.1", "0.2", "0.4", "1.0"])
    bundle["mediaType"] = f"application/vnd.dev.sigstore.bundle.v{version}+json"
    return _text(bundle)


def _key_id(bundle: dict[str, Any], draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        bundle["verificationMaterial"] = {"publicKey": {"hint": draw.randbytes(32).hex()}, "tlogEntries": []}
    else:
        bundle["dsseEnvelope"]["signatures"][0]["keyid"] = draw.randbytes(draw.randrange(1, 33)).hex()
    return _text(bundle)


def _material(bundle: dict[str, Any], draw: random.Random) -> bytes:
    bundle["verificationMaterial"] = draw.choice([
        {},
        None,
        [],
        {"certificate": {"rawBytes": "AAAA"}},
    ])
    return _text(bundle)


def _duplicate_key(bundle: dict[str, Any], draw: random.Random) -> bytes:
    text = _text(bundle).decode()
    key = draw.choice(["mediaType", "payload", "payloadType", "sig", "verificationMaterial", "dsseEnvelope"])
    at = text.index(f'"{key}"')
    return f'{text[:at]}"{key}": "x", {text[at:]}'.encode()


def _duplicate_in_statement(bundle: dict[str, Any], draw: random.Random) -> bytes:
    text = _payload(bundle).decode()
    key = draw.choice(["_type", "subject", "predicate", "resources", "digest", "name"])
    at = text.index(f'"{key}"')
    return _with_payload(bundle, f'{text[:at]}"{key}": "x", {text[at:]}'.encode())


def _missing_member(bundle: dict[str, Any], draw: random.Random) -> bytes:
    where = draw.choice([bundle, bundle["dsseEnvelope"], bundle["dsseEnvelope"]["signatures"][0]])
    del where[draw.choice([key for key in where if key != "keyid"])]
    return _text(bundle)


def _strange_value(bundle: dict[str, Any], draw: random.Random) -> bytes:
    where = draw.choice([bundle, bundle["dsseEnvelope"]])
    where[draw.choice(list(where))] = draw.choice([None, 0, 1.5, "", [], {}, [[]] * 3, True, 10**400])
    return _text(bundle)


def _cut(bundle: dict[str, Any], draw: random.Random) -> bytes:
    text = _text(bundle)
    return text[: draw.randrange(len(text))]


def _nested(_: dict[str, Any], draw: random.Random) -> bytes:
    return draw.choice([b"[" * 100_000, b'{"mediaType":' * 50_000, b"\xff\xfe", b"", b"NaN", b"9" * 100_000])


def _other_key(bundle: dict[str, Any], draw: random.Random) -> bytes:
    payload = _payload(bundle)
    stranger = _STRANGERS[draw.randrange(len(_STRANGERS))]
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = b64encode(stranger.sign(signed_bytes(payload))).decode()
    if draw.random() < 0.3:
        bundle["verificationMaterial"].get("publicKey", {}).pop("hint", None)
    return _text(bundle)


_STRANGERS = [PrivateKey.generate(), PrivateKey.generate("ed25519")]

FORGERIES: dict[str, Forgery] = {
    "a bit of the payload": _flip_payload,
    "a bit of the signature": _flip_signature,
    "an empty or trivial signature": _no_signature,
    "no signature, or several": _several_signatures,
    "another payload type": _payload_type,
    "another media type": _media_type,
    "another key id": _key_id,
    "other material": _material,
    "a key of the bundle twice": _duplicate_key,
    "a key of the statement twice": _duplicate_in_statement,
    "a member is missing": _missing_member,
    "a value of another type": _strange_value,
    "the file is cut": _cut,
    "something else": _nested,
    "signed by somebody else": _other_key,
    "another digest of a file": _statement(_other_digest),
    "another digest of a header": _statement(_other_header),
    "another name of a file": _statement(_other_name),
    "a file is left out": _statement(_one_less),
    "a file is added": _statement(_one_more),
    "a file twice": _statement(_one_twice),
    "another digest of the subject": _statement(_other_subject),
    "no subject, or several": _statement(_more_subjects),
    "another type of the statement": _statement(_other_types),
    "another algorithm": _statement(_other_algorithm),
}
"""What is forged, to a function that changes a parsed bundle and returns the text of the forgery."""


def resigned(bundle: dict[str, Any], key: PrivateKey) -> bytes:
    """Return the text of a bundle whose payload was changed, with a good signature of that."""
    signature = key.sign(signed_bytes(_payload(bundle)))
    bundle["dsseEnvelope"]["signatures"] = [{"sig": b64encode(signature).decode(), "keyid": ""}]
    return _text(bundle)


def forgeries(name: str, text: bytes, n: int, seed: int) -> Iterator[bytes]:
    """Yield forgeries of one kind."""
    draw = random.Random(f"{name} {seed}")
    good = json.dumps(json.loads(text)).encode()
    for _ in range(n):
        forged = FORGERIES[name](json.loads(text), draw)
        if forged is not None and forged != good:
            yield forged
