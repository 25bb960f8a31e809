"""Signatures of checkpoints in the form of OpenSSF Model Signing, and the keys that make them.

- `_keys`: private and public keys.
- `_key_uri`: where a key in hardware is.
- `_hardware`: keys in hardware.
- `_certificates`: who owns a key, as an authority says.
- `_bundle`: the file of a signature. Pure.
- `_statement`: what a signature says. Pure.
- `_provenance`: where a checkpoint came from. Pure.
- `_verify`: whether a key made a signature.
- `_names`: names of signatures, and which files of a directory they cover.
- `_files`: what is signed of each file.
- `_sign`: `sign`.
- `_keyless`: `sign_keyless`.
"""

from tensorkeep.signing._bundle import Bundle, emit_bundle, parse_bundle, signed_bytes
from tensorkeep.signing._certificates import certified_key, parse_certificate, read_certificates
from tensorkeep.signing._files import header_of
from tensorkeep.signing._hardware import HardwareKey
from tensorkeep.signing._keyless import sign_keyless
from tensorkeep.signing._keys import KEY_KINDS, KeyKind, PrivateKey, PublicKey, is_encrypted
from tensorkeep.signing._names import (
    IGNORED,
    USUAL,
    covered_names,
    files_below,
    has_link,
    holds_signature,
    is_about_others,
    is_ignored,
    is_signature,
    read_signature,
    signed_file_of,
    stale_signatures,
)
from tensorkeep.signing._provenance import PROVENANCE_SUFFIX, Artifact, emit_provenance, is_provenance
from tensorkeep.signing._sign import Signed, sign
from tensorkeep.signing._statement import ONLY_FILE, SignedFile, SignedHeader, Statement, parse_statement
from tensorkeep.signing._verify import is_signed_by

__all__ = [
    "IGNORED",
    "KEY_KINDS",
    "ONLY_FILE",
    "PROVENANCE_SUFFIX",
    "USUAL",
    "Artifact",
    "Bundle",
    "HardwareKey",
    "KeyKind",
    "PrivateKey",
    "PublicKey",
    "Signed",
    "SignedFile",
    "SignedHeader",
    "Statement",
    "certified_key",
    "covered_names",
    "emit_bundle",
    "emit_provenance",
    "files_below",
    "has_link",
    "header_of",
    "holds_signature",
    "is_about_others",
    "is_encrypted",
    "is_ignored",
    "is_provenance",
    "is_signature",
    "is_signed_by",
    "parse_bundle",
    "parse_certificate",
    "parse_statement",
    "read_certificates",
    "read_signature",
    "sign",
    "sign_keyless",
    "signed_bytes",
    "signed_file_of",
    "stale_signatures",
]
