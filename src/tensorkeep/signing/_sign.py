"""`sign`: sign a checkpoint, so that others can check who published it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import msgspec

from tensorkeep.errors import (
    DestinationExistsError,
    FormatError,
    SourceMissingError,
    TensorkeepError,
    UnsupportedError,
)
from tensorkeep.layout import locate, stem_of_index
from tensorkeep.signing._bundle import emit_bundle, parse_bundle, signed_bytes
from tensorkeep.signing._certificates import chain_of, key_id_of
from tensorkeep.signing._files import Signable, signable
from tensorkeep.signing._hardware import HardwareKey
from tensorkeep.signing._keys import PrivateKey
from tensorkeep.signing._names import (
    IGNORED,
    SUFFIX,
    holds_signature,
    is_signature,
    names_to_sign,
    read_signature,
    signature_names,
)
from tensorkeep.signing._statement import ONLY_FILE, Statement, emit_statement
from tensorkeep.transport import publish, refuse_url


class Signed(msgspec.Struct, frozen=True):
    """A signature that was made.

    Attributes:
        path: Its file.
        signer: Id of the key, 64 hexadecimal digits, or the identity that signed.
        n_files: Number of files that it covers.
        n_recorded: How many of them were not read, since an index records their SHA-256.
    """

    path: str
    signer: str
    n_files: int
    n_recorded: int = 0


def sign(
    path: str | os.PathLike[str],
    key: PrivateKey | HardwareKey | str | os.PathLike[str],
    *,
    password: str | bytes | None = None,
    certificate: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    links: bool = False,
    rehash: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Signed:
    """Sign a directory with all its files, or a single file.

    The signature is a separate file in the format of OpenSSF Model Signing: `model.sig` in the directory, or the
    file's name followed by `.sig`. If another key's signature has that name, it is kept, and the new one has part of
    its key's id in its name. Verify with `tensorkeep.verify(path, trust=...)` or `model_signing verify key`.

    Args:
        path: A directory or a file. Signatures in it, `.git` and `.cache/huggingface` are left out.
        key: A private key, a key in hardware, or the path of a private key.
        password: The password of the key's file.
        certificate: A PEM file with the key's certificate, then each authority's up to the one that others trust.
        output: Where to write the signature; by default, beside what it signs.
        links: Whether to follow symbolic links to files; otherwise they are an error.
        rehash: Whether to read all files. By default, only the headers are read of shards whose SHA-256 is in an
            index that matches its own digest.
        progress: Called with the bytes read so far and the total, by one thread at a time.

    Returns:
        Where the signature is, and what it covers.

    Raises:
        SourceMissingError: If there is nothing at the path.
        IntegrityError: If an index or a header does not match its digest.
        FormatError: If the key's file has no private key, or the certificate's none.
        RefusedError: If the password is missing or wrong, the certificate is for another key, or a private key is
            among the files.
        UnsupportedError: If the path is a URL, an index or a signature, a file's name is not portable, there are
            links, or the certificate is not for signatures.
        LimitError: If there are more than six certificates.
        DestinationExistsError: If `output` exists and is not a signature.
        MissingDependencyError: If `cryptography` is not installed.
        TransportError: If a file cannot be read, the hardware fails, or the signature cannot be written.

    Examples:
        >>> key = tensorkeep.signing.PrivateKey.generate()
        >>> tensorkeep.save({"weight": numpy.eye(2)}, "w.safetensors")
        >>> tensorkeep.signing.sign("w.safetensors", key).path
        'w.safetensors.sig'
    """
    target = target_of(path)
    signer = key if isinstance(key, (PrivateKey, HardwareKey)) else PrivateKey.read(key, password)
    chain = chain_of(certificate, signer.public) if certificate is not None else ()
    destination = destination_for(target, signer.public.id, output)
    found, payload = statement_of(target, destination, links=links, rehash=rehash, progress=progress)
    signature = signer.sign(signed_bytes(payload))
    write_signature(destination, emit_bundle(payload, signature, signer.public.id, chain))
    return Signed(destination, signer.public.id, len(found.files), found.n_recorded)


def target_of(path: str | os.PathLike[str]) -> str:
    """Return a path that can be signed; a save that was killed after its commit is finished first."""
    target = os.fsdecode(path)
    refuse_url(target, hint="Sign a local copy, and upload the signature with it")
    if not os.path.exists(target):
        raise SourceMissingError.at(target)
    if os.path.isfile(target) and stem_of_index(os.path.basename(target)):
        raise UnsupportedError(
            "an index is signed with its shards", path=target, hint="Sign the directory of the index"
        )
    if os.path.isfile(target) and is_signature(os.path.basename(target)):
        raise UnsupportedError("this is a signature", path=target, hint="Sign what it covers")
    with suppress(TensorkeepError):  # directories without a checkpoint are signed as well
        locate(target)
    return target


def statement_of(
    target: str,
    destination: str,
    *,
    links: bool,
    rehash: bool,
    progress: Callable[[int, int], None] | None,
) -> tuple[Signable, bytes]:
    """Return what is signed of a directory or file, and the text to sign."""
    name = os.path.basename(os.path.realpath(target))
    if not os.path.isdir(target):
        directory, file = os.path.split(target)
        found = signable(directory, [file], rehash=rehash, progress=progress)
        found = msgspec.structs.replace(found, files={ONLY_FILE: found.files[file]})
        return found, emit_statement(Statement(name, found.files))
    own = os.path.basename(destination)
    names = names_to_sign(target, own, links=links)
    if not names:
        raise SourceMissingError("no files to sign in the directory", path=target)
    found = signable(target, names, rehash=rehash, progress=progress)
    others = sorted({other for other in os.listdir(target) if holds_signature(target, other)} | {own})
    return found, emit_statement(Statement(name, found.files, (*IGNORED, *others), links))


def destination_for(target: str, key_id: str | None, output: str | os.PathLike[str] | None) -> str:
    """Return a signature's path: the usual name unless another key's signature has it; identities have no key id."""
    if output is not None:
        chosen = os.fsdecode(output)
        if os.path.exists(chosen) and not chosen.endswith(SUFFIX):
            raise DestinationExistsError("this file is not a signature", path=chosen, expected=f"*{SUFFIX}")
        return chosen
    folder, base = (target, "model") if os.path.isdir(target) else os.path.split(target)
    usual, other = (os.path.join(folder, name) for name in signature_names(base, key_id))
    if not os.path.exists(usual):
        return usual
    with suppress(FormatError, UnsupportedError):
        if key_id_of(parse_bundle(read_signature(usual), usual), usual) == key_id:
            return usual
    return other


def write_signature(path: str, text: bytes) -> None:
    """Write a signature, completely or not at all."""
    with publish(path) as sink:
        sink.write([text])
